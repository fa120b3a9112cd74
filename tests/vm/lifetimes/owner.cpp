// SPDX-License-Identifier: MIT
#include "owner.hpp"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <sstream>
#include <stdexcept>

#include "weft/ofi_load.h"

namespace lifetimes {

const char* const kCommands =
    "  address                     of this endpoint\n"
    "  alloc NAME BYTES            HBM; its device address\n"
    "  free NAME                   the HBM; a registration stays\n"
    "  add NAME                    register its DMA-BUF with the NIC; address and key for peers\n"
    "  remove NAME                 end the registration\n"
    "  seed NAME N, holds NAME N   fill with a pattern; compare with it, without the NIC\n"
    "  stream NAME BYTES PEER ADDRESS KEY [keep]\n"
    "                              write over and over until the first failure, or go on after it\n"
    "  status                      of the stream: completed=N failed=N in_flight=N TEXT\n"
    "  stop                        end it and wait for what is in flight; its status\n"
    "  freed                       accesses to freed ranges that the accelerator has seen\n"
    "  quit\n";

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kDepth = 4;
constexpr std::uint32_t kTimeoutMs = 15000;  // NICs give a peer up after 5 s

[[noreturn]] void fail(const std::string& text) { throw std::runtime_error(text); }

std::vector<unsigned char> pattern(std::uint64_t bytes, unsigned seed) {
  std::vector<unsigned char> out(bytes);
  for (std::uint64_t i = 0; i < bytes; ++i) out[i] = static_cast<unsigned char>(i * 131 + (i >> 8) * 7 + seed);
  return out;
}

void check(int error) {
  if (error != 0) fail(std::string(weft_last_error()) + " (" + std::strerror(-error) + ")");
}

}  // namespace

Owner::Owner() {
  char message[512];
  api_ = weft_ofi_load(nullptr, message, sizeof(message));
  if (api_ == nullptr) fail(message);
  check(weft_device_open("kernel", &device_));
  weft_ofi_open_args args{};
  args.size = sizeof(args);
  args.provider = "efa-direct";
  args.tx_depth = kDepth;
  args.timeout_ms = kTimeoutMs;
  if (api_->open(&args, &ofi_) != 0) fail(api_->error());
}

// As a careful program ends: no transfer, no registration, no memory.
Owner::~Owner() {
  for (auto& [name, one] : buffers_) drop(one);
  if (ofi_ != nullptr) api_->close(ofi_);
  for (auto& [name, one] : buffers_)
    if (one.mem != nullptr) weft_mem_free(one.mem);
  weft_device_close(device_);
}

Owner::Buffer& Owner::buffer(const std::string& name) {
  const auto found = buffers_.find(name);
  if (found == buffers_.end()) fail("no buffer " + name);
  return found->second;
}

std::string Owner::add(const std::string& name) {
  Buffer& one = buffer(name);
  if (one.mem == nullptr || one.region != nullptr) fail(name + " is freed or registered");
  int fd = -1;
  check(weft_mem_export(one.mem, 0, one.bytes, &fd));
  const int error = api_->register_dmabuf(ofi_, fd, 0, one.bytes, weft_mem_va(one.mem), 0, &one.region);
  ::close(fd);
  if (error != 0) fail(api_->error());
  std::uint64_t address = 0, key = 0;
  if (api_->remote(one.region, &address, &key) != 0) fail(api_->error());
  return std::to_string(address) + " " + std::to_string(key);
}

void Owner::drop(Buffer& one) {
  if (one.region == nullptr) return;
  if (const int error = api_->deregister(one.region); error != 0)
    fail(std::string(api_->error()) + " (" + std::strerror(-error) + ")");
  one.region = nullptr;
}

void Owner::seed(const Buffer& one, unsigned seed) {
  if (one.mem == nullptr) fail("freed");
  const auto host = pattern(one.bytes, seed);
  check(weft_write(device_, weft_mem_va(one.mem), host.data(), host.size()));
}

std::string Owner::holds(const Buffer& one, unsigned seed) {
  if (one.mem == nullptr) fail("freed");
  std::vector<unsigned char> host(one.bytes);
  check(weft_read(device_, host.data(), weft_mem_va(one.mem), host.size()));
  const auto right = pattern(one.bytes, seed);
  for (std::uint64_t i = 0; i < one.bytes; ++i)
    if (host[i] != right[i])
      fail("byte " + std::to_string(i) + " is " + std::to_string(host[i]) + ", not " + std::to_string(right[i]));
  return "";
}

std::uint32_t Owner::peer(const std::string& hex) {
  const auto [at, fresh] = peers_.try_emplace(hex, WEFT_OFI_ANY);
  if (fresh) {
    std::vector<unsigned char> blob(hex.size() / 2);
    for (std::size_t i = 0; i < blob.size(); ++i)
      blob[i] = static_cast<unsigned char>(std::stoul(hex.substr(2 * i, 2), nullptr, 16));
    if (api_->insert(ofi_, blob.data(), blob.size(), &at->second) != 0) fail(api_->error());
  }
  return at->second;
}

void Owner::post() {
  while (stream_.on && in_flight_ < kDepth) {
    const int error =
        api_->write(ofi_, stream_.peer, stream_.region, 0, stream_.bytes, stream_.address, stream_.key, nullptr);
    if (error == -EAGAIN) return;
    if (error != 0) {
      ++stream_.failed;
      stream_.text = api_->error();
      stream_.on = false;
      return;
    }
    ++in_flight_;
  }
}

bool Owner::progress() {
  weft_ofi_completion done[kDepth];
  const int count = api_->poll(ofi_, done, kDepth);
  for (int i = 0; i < count; ++i) {
    if (done[i].op != WEFT_OFI_WRITE) continue;
    --in_flight_;
    if (done[i].status == 0) {
      ++stream_.completed;
      continue;
    }
    ++stream_.failed;
    stream_.text = done[i].text;
    if (!stream_.keep) stream_.on = false;
  }
  post();
  return in_flight_ != 0;
}

std::string Owner::status() {
  return "completed=" + std::to_string(stream_.completed) + " failed=" + std::to_string(stream_.failed) +
         " in_flight=" + std::to_string(in_flight_) + " " + stream_.text;
}

std::string Owner::stop() {
  stream_.on = false;
  const auto end = Clock::now() + std::chrono::milliseconds(2 * kTimeoutMs);
  while (progress())
    if (Clock::now() > end) fail("transfers hang: " + status());
  return status();
}

std::string Owner::serve(const std::string& line) {
  std::istringstream in(line);
  std::string verb, name;
  std::uint64_t number = 0;
  in >> verb;
  if (verb == "address") {
    unsigned char blob[256];
    std::size_t bytes = sizeof(blob);
    if (api_->address(ofi_, blob, &bytes) != 0) fail(api_->error());
    std::string hex;
    for (std::size_t i = 0; i < bytes; ++i) {
      char two[3];
      std::snprintf(two, sizeof(two), "%02x", blob[i]);
      hex += two;
    }
    return hex;
  }
  if (verb == "alloc" && in >> name >> number) {
    if (buffers_.contains(name)) fail(name + " is there");
    weft_mem* mem = nullptr;
    check(weft_mem_alloc(device_, number, 0, &mem));
    buffers_[name] = {mem, weft_mem_bytes(mem), nullptr};
    return std::to_string(weft_mem_va(mem));
  }
  if (verb == "free" && in >> name) {
    Buffer& one = buffer(name);
    if (one.mem == nullptr) fail("freed already");
    weft_mem_free(one.mem);
    one.mem = nullptr;
    if (one.region == nullptr) buffers_.erase(name);
    return "";
  }
  if (verb == "add" && in >> name) return add(name);
  if (verb == "remove" && in >> name) {
    Buffer& one = buffer(name);
    if (one.region == nullptr) fail("not registered");
    drop(one);
    if (one.mem == nullptr) buffers_.erase(name);
    return "";
  }
  if (verb == "seed" && in >> name >> number) return seed(buffer(name), static_cast<unsigned>(number)), "";
  if (verb == "holds" && in >> name >> number) return holds(buffer(name), static_cast<unsigned>(number));
  if (verb == "stream") {
    Stream next;
    std::string hex, keep;
    if (!(in >> name >> next.bytes >> hex >> next.address >> next.key)) fail("stream: see help");
    in >> keep;
    if (in_flight_ != 0) fail("a stream is on");
    next.region = buffer(name).region;
    if (next.region == nullptr) fail("not registered");
    next.peer = peer(hex);
    next.keep = keep == "keep";
    next.on = true;
    stream_ = next;
    return "";
  }
  if (verb == "status") return status();
  if (verb == "stop") return stop();
  if (verb == "freed") {
    std::uint64_t value[WEFT_CTR_COUNT] = {};
    const int count = weft_counters(device_, -1, value, WEFT_CTR_COUNT);
    if (count <= WEFT_CTR_dma_freed) fail(weft_last_error());
    return std::to_string(value[WEFT_CTR_dma_freed]);
  }
  if (verb == "quit") {
    stop();
    finished_ = true;
    return "";
  }
  fail("what is \"" + line + "\"? There are:\n" + kCommands);
}

}  // namespace lifetimes
