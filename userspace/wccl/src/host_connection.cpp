// SPDX-License-Identifier: MIT
#include "host_connection.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "error.hpp"

namespace weft::ccl {
namespace {

struct HostOffer {
  std::uint32_t size = 0;  // of this structure
  std::uint32_t slots = 0;
  std::uint32_t slot_bytes = 0;
  std::uint32_t number = 0;
  std::uint64_t address = 0;  // of the first slot
  std::uint64_t key = 0;
  std::uint64_t records_address = 0;  // its ring of CallRecord
  std::uint64_t records_key = 0;
  std::uint32_t nic_bytes = 0;
  std::uint32_t reserved = 0;
  std::byte nic[256] = {};  // its address
};

}  // namespace

std::uint32_t Immediate::pack() const {
  return communicator << 24 | connection << 14 | static_cast<std::uint32_t>(credit) << 13 | chunk;
}

Immediate Immediate::unpack(std::uint32_t value) {
  return {value >> 24, value >> 14 & (kConnections - 1), (value >> 13 & 1) != 0, value & (kChunks - 1)};
}

void HostConnection::Unmap::operator()(void* base) const { munmap(base, bytes); }

HostConnection::HostMemory HostConnection::map(std::size_t bytes, const std::string& what) {
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (base == MAP_FAILED) {
    throw Failure(wcclSystemError, "no " + std::to_string(bytes) + " bytes of host memory for " + what);
  }
  return {base, Unmap{bytes}};
}

HostConnection::HostConnection(weft_device* device, HostNic& nic, bool staged, std::uint32_t number, std::uint32_t peer,
                               std::uint32_t lane, std::uint32_t slots, std::uint32_t slot_bytes)
    : nic_(nic), staged_(staged), number_(number), peer_(peer), lane_(lane), slots_(slots), slot_bytes_(slot_bytes) {
  for (auto& laps : laps_) laps.resize(slots);
  gone_.resize(slots);
  records_gone_.resize(entries());
  const std::string whom = "connection to rank " + std::to_string(peer);
  const std::size_t rings = 2 * CallBook::ring_bytes(slots);
  records_ = map(rings, whom + ": records");
  records_region_ = nic.register_host(records_.get(), rings);
  const std::size_t bytes = std::size_t{slots} * slot_bytes;
  if (!staged) {
    memory_ = allocate(device, bytes, 0, (whom + ": staging (a smaller WCCL_BUFFSIZE needs less)").c_str());
    region_ = nic.register_hbm(memory_.get());
    return;
  }
  host_ = map(2 * bytes, whom + ": staging");
  weft_mem* mem = nullptr;
  if (weft_mem_register(device, host_.get(), 2 * bytes, 0, &mem) != 0) throw device_failure(whom + ": staging");
  memory_.reset(mem);
  region_ = nic.register_host(host_.get(), 2 * bytes);
}

// Its region ends with the NIC's endpoint, before memory and connections go.
HostConnection::~HostConnection() = default;

std::uint64_t HostConnection::staging_bytes() const { return staged_ ? 0 : weft_mem_bytes(memory_.get()); }

Bytes HostConnection::offer() const {
  HostOffer offer;
  offer.size = sizeof offer;
  offer.slots = slots_;
  offer.slot_bytes = slot_bytes_;
  offer.number = number_;
  if (nic_.api().remote(region_, &offer.address, &offer.key) != 0 ||
      nic_.api().remote(records_region_, &offer.records_address, &offer.records_key) != 0) {
    throw Failure(wcclSystemError, nic_.api().error());
  }
  const Bytes address = nic_.address();
  offer.nic_bytes = static_cast<std::uint32_t>(address.size());
  std::copy(address.begin(), address.end(), offer.nic);
  const auto* at = reinterpret_cast<const std::byte*>(&offer);
  return {at, at + sizeof offer};
}

void HostConnection::connect(std::span<const std::byte> bytes) {
  HostOffer offer;
  if (bytes.size() == sizeof offer) std::memcpy(&offer, bytes.data(), sizeof offer);
  if (offer.size != sizeof offer || offer.slots != slots_ || offer.slot_bytes != slot_bytes_ ||
      offer.number >= Immediate::kConnections || offer.nic_bytes > sizeof offer.nic) {
    throw Failure(wcclInternalError, "connection to rank " + std::to_string(peer_) + ": its end is of another shape",
                  static_cast<int>(peer_));
  }
  if (nic_.api().insert(nic_.endpoint(), offer.nic, offer.nic_bytes, &nic_peer_) != 0) {
    throw Failure(wcclSystemError, "connection to rank " + std::to_string(peer_) + ": " + nic_.api().error());
  }
  remote_number_ = offer.number;
  remote_address_ = offer.address;
  remote_key_ = offer.key;
  remote_records_ = offer.records_address;
  remote_records_key_ = offer.records_key;
  connected_ = true;
}

std::optional<std::uint64_t> HostConnection::due(bool credit, std::uint32_t chunk) {
  // The slice nearest to the newest one: far fewer than half of kChunks are under way.
  std::uint64_t& newest = newest_[credit];
  const auto behind = static_cast<std::int32_t>((newest - chunk) % Immediate::kChunks);
  const std::int32_t distance = behind < static_cast<std::int32_t>(Immediate::kChunks / 2)
                                    ? -behind
                                    : static_cast<std::int32_t>(Immediate::kChunks) - behind;
  const std::uint64_t seq = newest + static_cast<std::uint64_t>(static_cast<std::int64_t>(distance));
  const EventKind kind = credit ? EventKind::kCredit : EventKind::kArrival;
  if (distance < 0 && seq > newest) return std::nullopt;
  if (laps_[index(kind)][seq % slots_] != seq / slots_) return std::nullopt;
  newest = std::max(newest, seq);
  return seq;
}

std::uint64_t HostConnection::put_record(const CallRecord& sent) {
  const std::uint64_t entry = entries() + sent.number % entries();
  std::memcpy(record(entry), &sent, sizeof sent);
  return entry * sizeof sent;
}

Operand HostConnection::incoming(std::uint64_t seq) const {
  return {weft_mem_va(memory_.get()) + incoming_offset(seq), weft_mem_key(memory_.get())};
}

Operand HostConnection::outgoing(std::uint64_t seq) const {
  return {weft_mem_va(memory_.get()) + outgoing_offset(seq), weft_mem_key(memory_.get())};
}

}  // namespace weft::ccl
