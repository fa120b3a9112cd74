// SPDX-License-Identifier: MIT
#include "weft/fabric/switch.hpp"

#include <algorithm>
#include <utility>

#include "unreachable.hpp"

namespace weft::fabric {
namespace {

constexpr std::size_t kEthernetHeader = 14;
constexpr unsigned kAnswersPerTenth = 20;        // ICMP errors a port in 0.1 s (RFC 1812 4.3.2.8)
constexpr std::uint64_t kGroupBit = 1ull << 40;  // of the first byte: multicast and broadcast

std::uint64_t address_at(std::span<const std::byte> frame, std::size_t offset) {
  std::uint64_t address = 0;
  for (std::size_t i = 0; i < 6; i++) address = address << 8 | std::to_integer<std::uint64_t>(frame[offset + i]);
  return address;
}

Mac mac_of(std::uint64_t address) {
  Mac mac;
  for (std::size_t i = 0; i < mac.size(); i++) mac[i] = static_cast<std::uint8_t>(address >> (40 - 8 * i));
  return mac;
}

}  // namespace

struct Switch::Held {
  Held(Switch& owner, unsigned from, unsigned cls, std::span<const std::byte> frame, bool owes_credit)
      : owner(owner), from(from), cls(cls), owes_credit(owes_credit), bytes(frame.begin(), frame.end()) {}
  ~Held() {
    if (!owes_credit) return;
    const auto port = owner.ports_.find(from);  // it may be gone by now
    if (port != owner.ports_.end() && port->second->link_) port->second->link_->release(cls, 1);
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  Switch& owner;
  unsigned from, cls;
  bool owes_credit;
  std::vector<std::byte> bytes;
};

Switch::Switch(SwitchConfig config) : config_(std::move(config)) {}

Switch::~Switch() {
  // Held frames look their sender up in ports_: empty the queues while it is whole.
  for (auto& [number, port] : ports_) port->detach();
}

Switch::Port& Switch::add_port(PortOptions options) {
  const unsigned number = next_number_++;
  auto port = std::make_unique<Port>(*this, number, std::move(options));
  if (config_.capture) port->interface_ = config_.capture->interface(port->name());
  return *ports_.emplace(number, std::move(port)).first->second;
}

void Switch::remove_port(Port& port) {
  port.detach();
  set_stations(port, false);
  for (auto& [address, station] : table_)
    if (station.port == &port) station.port = nullptr;
  ports_.erase(port.number_);
}

std::vector<const Switch::Port*> Switch::ports() const {
  std::vector<const Port*> all;
  for (const auto& [number, port] : ports_) all.push_back(port.get());
  return all;
}

void Switch::set_plan(const ImpairmentPlan& plan) {
  config_.plan = plan;
  for (auto& [number, port] : ports_) port->impairment_ = Impairment(plan, port->name());
}

void Switch::set_capture(Capture* capture) {
  config_.capture = capture;
  for (auto& [number, port] : ports_) {
    port->interface_.reset();
    if (capture) port->interface_ = capture->interface(port->name());
  }
}

void Switch::receive(Port& from, unsigned cls, std::span<const std::byte> frame) {
  from.counters_.rx_frames++;
  from.counters_.rx_bytes += frame.size();
  if (frame.size() < kEthernetHeader) {
    from.counters_.dropped_short++;
    from.link_->release(cls, 1);
    return;
  }
  const Fate fate = from.options_.impaired ? from.impairment_.next() : Fate{};
  if (from.interface_) {
    const Segment segment(frame);
    config_.capture->frame(*from.interface_, config_.now_ns ? config_.now_ns() : 0, {&segment, 1},
                           fate.lost        ? "lost by plan"
                           : fate.corrupted ? "corrupted by plan"
                                            : "");
  }
  if (fate.lost) {
    from.counters_.lost++;
    from.link_->release(cls, 1);
    return;
  }
  if (fate.reordered && !from.reordered_) {
    from.counters_.reordered++;
    from.reordered_ = std::make_shared<Held>(*this, from.number_, cls, frame, true);
    return;
  }
  if (fate.corrupted) {
    from.counters_.corrupted++;
    std::vector<std::byte> changed(frame.begin(), frame.end());
    changed[kEthernetHeader + (fate.where >> 8) % std::max<std::size_t>(1, frame.size() - kEthernetHeader)] ^=
        static_cast<std::byte>((fate.where & 0xff) | 1);
    forward(from, cls, changed, true);
  } else {
    forward(from, cls, frame, true);
  }
  if (fate.duplicated) {
    from.counters_.duplicated++;
    forward(from, cls, frame, false);
  }
  forward_reordered(from);
}

void Switch::forward_reordered(Port& from) {
  if (const auto late = std::exchange(from.reordered_, nullptr)) {
    const bool owes = std::exchange(late->owes_credit, false);
    forward(from, late->cls, late->bytes, owes);
  }
}

bool Switch::holds_reordered() const {
  return std::any_of(ports_.begin(), ports_.end(),
                     [](const auto& entry) { return entry.second->reordered_ != nullptr; });
}

void Switch::release_reordered() {
  for (auto& [number, port] : ports_) forward_reordered(*port);
}

bool Switch::room_for_station() {
  if (table_.size() < config_.addresses) return true;
  const auto old = std::find_if(table_.begin(), table_.end(), [](const auto& entry) { return !entry.second.port; });
  if (old == table_.end()) return false;
  table_.erase(old);
  return true;
}

bool Switch::learn(Port& from, Address source) {
  if (source & kGroupBit) return true;
  const auto known = table_.find(source);
  if (known == table_.end()) {
    if (from.stations_ < config_.port_addresses && room_for_station()) {
      table_.emplace(source, Station{&from, false});
      from.stations_++;
    }
    return true;
  }
  Station& station = known->second;
  if (!station.gone) return station.port == &from;
  if (station.port) station.port->stations_--;
  station = {&from, false};
  from.stations_++;
  tell(from, source, true);
  return true;
}

void Switch::set_stations(Port& port, bool up) {
  for (auto& [address, station] : table_) {
    if (station.port != &port || station.gone != up) continue;
    station.gone = !up;
    tell(port, address, up);
  }
}

void Switch::tell(const Port& except, Address address, bool up) {
  for (auto& [number, port] : ports_)
    if (port.get() != &except && port->link_) port->link_->station(mac_of(address), up);
}

bool Switch::unreachable(Port& from, std::span<const std::byte> frame) {
  const std::vector<std::byte> answer = host_unreachable(frame);
  if (answer.empty()) return false;
  from.counters_.unreachable++;
  if (config_.now_ns) {
    const std::uint64_t now = config_.now_ns() / 100'000'000;
    if (std::exchange(from.answer_time_, now) != now) from.answers_ = 0;
    if (++from.answers_ > kAnswersPerTenth) return true;
  }
  offer(from, 0, answer);
  return true;
}

void Switch::forward(Port& from, unsigned cls, std::span<const std::byte> frame, bool owes_credit) {
  const Address destination = address_at(frame, 0);
  const Address source = address_at(frame, 6);
  if (!learn(from, source)) {
    from.counters_.dropped_source++;
    if (owes_credit) from.link_->release(cls, 1);
    return;
  }

  std::shared_ptr<Held> held;  // made when the first copy has to wait
  const auto send = [&](Port& to) {
    if (offer(to, cls, frame)) return;
    if (!held) held = std::make_shared<Held>(*this, from.number_, cls, frame, owes_credit);
    to.counters_.waited++;
    to.queue_[cls].push_back(held);
  };
  const auto known = destination & kGroupBit ? table_.end() : table_.find(destination);
  if (known != table_.end() && known->second.gone && from.options_.answers_unreachable && unreachable(from, frame)) {
    // Answered.
  } else if (known != table_.end() && known->second.port) {
    if (known->second.port != &from) send(*known->second.port);
  } else {
    for (auto& [number, to] : ports_) {
      if (to.get() == &from) continue;
      to->counters_.flooded++;
      send(*to);
    }
  }
  if (!held && owes_credit) from.link_->release(cls, 1);
}

bool Switch::offer(Port& to, unsigned cls, std::span<const std::byte> frame) {
  if (!to.link_ || !to.link_->up()) {
    to.counters_.dropped_down++;
    return true;
  }
  if (to.queue_[cls].empty() && !to.paused_[cls]) {
    const Segment segment(frame);
    switch (to.link_->send(cls, {&segment, 1})) {
      case SendResult::kSent:
        to.counters_.tx_frames++;
        to.counters_.tx_bytes += frame.size();
        return true;
      case SendResult::kDown:
        to.counters_.dropped_down++;
        return true;
      case SendResult::kNoCredit:
        break;
    }
  }
  if (to.queue_[cls].size() >= to.options_.queue_frames) {
    to.counters_.dropped_queue++;
    return true;
  }
  return false;
}

void Switch::drain(Port& to, unsigned cls) {
  auto& queue = to.queue_[cls];
  while (!queue.empty() && !to.paused_[cls]) {
    const std::shared_ptr<Held> held = std::move(queue.front());
    queue.pop_front();
    if (!to.link_ || !to.link_->up()) {
      to.counters_.dropped_down++;
      continue;
    }
    const Segment segment(held->bytes);
    const SendResult result = to.link_->send(cls, {&segment, 1});
    if (result == SendResult::kNoCredit) {
      queue.push_front(held);
      return;
    }
    if (result == SendResult::kDown) {
      to.counters_.dropped_down++;
      continue;
    }
    to.counters_.tx_frames++;
    to.counters_.tx_bytes += held->bytes.size();
  }
}

Switch::Port::Port(Switch& owner, unsigned number, PortOptions options)
    : switch_(owner), number_(number), options_(std::move(options)), impairment_(owner.config_.plan, options_.name) {}

void Switch::Port::attach(Link& link) { link_ = &link; }

void Switch::Port::detach() {
  link_ = nullptr;
  reordered_.reset();
  for (auto& queue : queue_) queue.clear();
}

std::size_t Switch::Port::waiting() const {
  std::size_t frames = 0;
  for (const auto& queue : queue_) frames += queue.size();
  return frames;
}

void Switch::Port::on_frame(unsigned cls, std::span<const std::byte> frame) {
  switch_.receive(*this, std::min(cls, kClasses - 1), frame);
}

void Switch::Port::on_ready(unsigned cls) { switch_.drain(*this, std::min(cls, kClasses - 1)); }

void Switch::Port::on_pause(unsigned cls, bool stop) {
  paused_[std::min(cls, kClasses - 1)] = stop;
  if (!stop) on_ready(cls);
}

void Switch::Port::on_state(bool up) {
  switch_.set_stations(*this, up);
  if (up) return;
  reordered_.reset();
  for (auto& queue : queue_) {
    counters_.dropped_down += queue.size();
    queue.clear();
  }
}

}  // namespace weft::fabric
