// SPDX-License-Identifier: MIT
#include "sim_fixture.hpp"

#include <cstring>
#include <random>

namespace weft::test {

Sim::Sim(const SimOptions& options) {
  const auto text = [](const std::string& value) { return value.empty() ? nullptr : value.c_str(); };
  weft_sim_config config{};
  config.size = sizeof(config);
  config.devices = options.devices;
  config.ports = options.ports;
  config.hbm_bytes = options.hbm_bytes;
  config.seed = options.seed;
  config.loss = options.loss;
  config.log = text(options.log);
  config.capture = text(options.capture);
  config.firmware = text(options.firmware);
  EXPECT_EQ(weft_sim_start(&config), 0) << weft_last_error();
}

Sim::~Sim() { EXPECT_EQ(weft_sim_stop(), 0) << weft_last_error(); }

Accel::Accel(unsigned number) {
  EXPECT_EQ(weft_device_open(("sim:" + std::to_string(number)).c_str(), &device_), 0) << weft_last_error();
}

Accel::~Accel() { weft_device_close(device_); }

weft_mem* Accel::alloc(std::size_t bytes, unsigned flags) {
  weft_mem* mem = nullptr;
  EXPECT_EQ(weft_mem_alloc(device_, bytes, flags, &mem), 0) << weft_last_error();
  return mem;
}

weft_queue* Accel::queue(std::uint32_t entries, unsigned flags) {
  weft_queue* made = nullptr;
  EXPECT_EQ(weft_queue_create(device_, entries, flags, &made), 0) << weft_last_error();
  return made;
}

std::uint32_t Accel::sync(std::uint32_t count) {
  std::uint32_t first = 0;
  EXPECT_EQ(weft_sync_alloc(device_, count, 0, &first), 0) << weft_last_error();
  return first;
}

int Accel::wait(std::uint32_t id, std::uint64_t value, std::int64_t timeout_ns, weft_failure* failure) {
  const weft_sync_event event{id, 0, value};
  return weft_sync_wait(device_, &event, 1, timeout_ns, nullptr, nullptr, failure);
}

std::vector<std::byte> Accel::bytes(const weft_mem* mem) {
  std::vector<std::byte> out(weft_mem_bytes(mem));
  EXPECT_EQ(weft_read(device_, out.data(), weft_mem_va(mem), out.size()), 0) << weft_last_error();
  return out;
}

void Accel::fill(const weft_mem* mem, const std::vector<std::byte>& bytes) {
  EXPECT_EQ(weft_write(device_, weft_mem_va(mem), bytes.data(), bytes.size()), 0) << weft_last_error();
}

std::uint64_t Accel::counter(weft_counter which) {
  std::vector<std::uint64_t> values(WEFT_CTR_COUNT);
  EXPECT_EQ(weft_counters(device_, -1, values.data(), values.size()), WEFT_CTR_COUNT);
  return values[which];
}

std::uint64_t Accel::port_counter(weft_port_counter which, int port) {
  std::vector<std::uint64_t> values(WEFT_PCTR_COUNT);
  EXPECT_EQ(weft_counters(device_, port, values.data(), values.size()), WEFT_PCTR_COUNT);
  return values[which];
}

void connect(Accel& one, End& at_one, Accel& other, End& at_other, std::uint8_t timeout, std::uint8_t retry,
             std::uint32_t port) {
  weft_endpoint here{}, there{};
  at_one.arrivals = one.sync();
  at_other.arrivals = other.sync();
  ASSERT_EQ(weft_channel_create(one.get(), port, at_one.arrivals, 1, &at_one.channel, &here), 0) << weft_last_error();
  ASSERT_EQ(weft_channel_create(other.get(), port, at_other.arrivals, 1, &at_other.channel, &there), 0)
      << weft_last_error();
  ASSERT_EQ(weft_channel_connect(at_one.channel, &there, timeout, retry), 0) << weft_last_error();
  ASSERT_EQ(weft_channel_connect(at_other.channel, &here, timeout, retry), 0) << weft_last_error();
}

weft_cmd write_imm(const End& end, const weft_mem* from, std::uint64_t offset, std::uint32_t bytes, std::uint64_t to_va,
                   std::uint32_t to_key) {
  weft_cmd cmd = command(WEFT_OP_RDMA);
  cmd.arg0 = WEFT_RDMA_WRITE_IMM;
  operand(cmd, 0, from, offset);
  cmd.addr[1] = to_va;
  cmd.key[1] = to_key;
  cmd.key[2] = weft_channel_number(end.channel);
  cmd.length = bytes;
  return cmd;
}

std::vector<std::byte> noise(std::size_t bytes, std::uint64_t seed) {
  std::vector<std::byte> out(bytes);
  std::mt19937_64 random(seed);
  for (std::size_t at = 0; at < bytes; at += 8) {
    const std::uint64_t word = random();
    std::memcpy(out.data() + at, &word, std::min<std::size_t>(8, bytes - at));
  }
  return out;
}

}  // namespace weft::test
