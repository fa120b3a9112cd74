// SPDX-License-Identifier: MIT
// Contexts and their sync objects: 64-bit counters that commands wait for and signal, mirrored to shadow arrays in host
// memory.
#pragma once

#include <array>
#include <boost/intrusive/list.hpp>
#include <cstdint>
#include <memory>

#include "counters.hpp"
#include "host_port.hpp"
#include "interrupts.hpp"
#include "weft/hw/mbox.h"
#include "weft/hw/regs.h"
#include "weft/model/memory.hpp"

namespace weft::model {

// Auto-unlink: what is destroyed leaves the list that it is in, at once.
using Hook = boost::intrusive::list_member_hook<boost::intrusive::link_mode<boost::intrusive::auto_unlink>>;
template <class T, Hook T::* member>
using LinkedList = boost::intrusive::list<T, boost::intrusive::member_hook<T, Hook, member>,
                                          boost::intrusive::constant_time_size<false>>;

// Somebody who waits for a sync object to reach `value`. Leaves the list before reached() is called.
class Waiter {
 public:
  virtual void reached() = 0;
  bool waiting() const { return hook.is_linked(); }
  void forget() { hook.unlink(); }

  std::uint64_t value = 0;
  Hook hook;

 protected:
  ~Waiter() = default;
};

class Contexts {
 public:
  Contexts(HostPort& host, Counters& counters, Interrupts& interrupts);
  ~Contexts();

  // As WEFT_MBOX_CTX_CREATE. WEFT_ERR_BAD_FIELD, WEFT_ERR_BAD_ALIGN, WEFT_ERR_MBOX_BUSY.
  Error create(const weft_mbox_ctx& entry);
  // Values and waiters go with it. WEFT_ERR_MBOX_NOT_FOUND.
  Error destroy(std::uint32_t context);
  // As WEFT_MBOX_SYNC_CONFIG.
  Error configure(const weft_mbox_sync& entry);
  void reset();

  bool exists(std::uint32_t context) const { return context < WEFT_CONTEXTS_MAX && contexts_[context]; }
  bool valid(std::uint32_t context, std::uint32_t sync) const {
    return exists(context) && sync < contexts_[context]->syncs;
  }
  // Sync objects of the context, 0 when there is none.
  std::uint32_t syncs(std::uint32_t context) const { return exists(context) ? contexts_[context]->syncs : 0; }
  std::uint64_t value(std::uint32_t context, std::uint32_t sync);

  // Adds, and wakes who waits. WEFT_ERR_BAD_SYNC. `before` (may be null) gets the value before.
  Error signal(std::uint32_t context, std::uint32_t sync, std::uint64_t add, std::uint64_t* before = nullptr);
  // True when the value is reached; otherwise `waiter` (with its value set) is listed. The object must be valid().
  bool wait(std::uint32_t context, std::uint32_t sync, Waiter& waiter);

  // Doorbells: take a note; process_doorbells() does what follows from it. False: no such sync object.
  bool ring_signal(std::uint32_t context, std::uint32_t sync, std::uint32_t add);
  // `target`: the low WEFT_ARM_VALUE_BITS bits of a value.
  bool ring_arm(std::uint32_t context, std::uint32_t sync, std::uint64_t target);
  void process_doorbells();
  bool doorbells_wait() const { return !touched_.empty(); }

  // Writes the changed shadows: at the end of a step, after all data.
  void flush();

 private:
  struct Sync;
  static constexpr std::uint32_t kSyncsPerPage = 64;
  struct Page;
  struct Context {
    std::uint32_t vector = 0;
    std::uint32_t syncs = 0;
    std::uint64_t shadow = 0;
    std::array<std::unique_ptr<Page>, WEFT_SYNCS_PER_CONTEXT / kSyncsPerPage> pages;
  };

  Sync& at(std::uint32_t context, std::uint32_t sync);
  void react(Sync& sync);

  HostPort& host_;
  Counters& counters_;
  Interrupts& interrupts_;
  std::array<std::unique_ptr<Context>, WEFT_CONTEXTS_MAX> contexts_;

  struct Sync {
    std::uint64_t value = 0;
    std::uint16_t context = 0;
    std::uint16_t number = 0;
    bool notify = false;
    // Armed for `near`; `armed` - 1 further targets lie up to `far`.
    std::uint32_t armed = 0;
    std::uint64_t near = 0;
    std::uint64_t far = 0;
    LinkedList<Waiter, &Waiter::hook> waiters;  // ascending
    Hook touched;
    Hook dirty;
  };
  struct Page {
    std::array<Sync, kSyncsPerPage> sync;
  };
  LinkedList<Sync, &Sync::touched> touched_;
  LinkedList<Sync, &Sync::dirty> dirty_;
};

}  // namespace weft::model
