// SPDX-License-Identifier: MIT
// Lowering: a rank's ops become steps on slices, in the one order that executors submit and the time model replays.
//
// A connection (peer, lane) carries a message as slices through a FIFO of `slots` staging slots in the receiver's
// memory. Slice number q of a connection's life goes to slot q mod slots. Four kinds of event count a slot's laps, so
// that one counter per (kind, slot) is exact although commands of a queue may finish in any order:
//   arrival  at the receiver: slice q is in its slot            credit  at the sender: the slot that slice q uses is
//   free done     at the receiver: slice q is taken out of the slot  sent    at the sender: slice q's source may be
//   overwritten
//
// Order. Steps come out by (step of the op, slice, sends and local ops < receives < credits). That is one global order
// in which everything that a step waits for comes earlier, so ranks that start theirs in this order cannot block each
// other, with any look-ahead: a slice waits for dependencies (smaller step), its own SEND (same slice, earlier phase),
// and a credit for a slice that was `slots` earlier (smaller slice of the same message, or smaller step).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "sched/schedule.hpp"

namespace weft::ccl {

inline constexpr std::uint32_t kLocalObjects = 32;        // counters for local ops that others wait for
inline constexpr std::uint64_t kLocalPiece = 1ull << 30;  // bytes that one local command moves at most

// Bytes [offset, offset + bytes) of a buffer (enum wccl_sched_buffer); in place, shared memory has one name.
struct Place {
  std::uint8_t buffer = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

// Where chunks lie in one execution.
class Layout {
 public:
  virtual ~Layout() = default;
  virtual Place place(std::uint8_t buffer, std::uint32_t chunk, std::uint32_t chunks) const = 0;
  // Bytes of a message with `peer` that one slice carries; both ends must get the same.
  virtual std::uint32_t slice_bytes(std::uint32_t peer) const = 0;
};

// A collective of `count` elements cut into parts. Boundaries lie on multiples of 64 bytes where that leaves no part
// empty.
class PartLayout final : public Layout {
 public:
  PartLayout(const Shape& shape, std::uint32_t rank, std::uint64_t count, std::uint32_t element_bytes, bool in_place,
             std::uint32_t slice_bytes);
  Place place(std::uint8_t buffer, std::uint32_t chunk, std::uint32_t chunks) const override;
  std::uint32_t slice_bytes(std::uint32_t) const override { return slice_bytes_; }

  // First byte of part `part` of `parts`.
  static std::uint64_t part_begin(std::uint64_t count, std::uint32_t element_bytes, std::uint32_t parts,
                                  std::uint32_t part);
  // Bytes of the scratch buffer.
  static std::uint64_t scratch_bytes(const Shape& shape, std::uint64_t count, std::uint32_t element_bytes);

 private:
  std::uint64_t offset(std::uint32_t chunk) const;

  const Shape& shape_;
  std::uint32_t rank_;
  std::uint64_t count_;
  std::uint32_t element_bytes_;
  bool in_place_;
  std::uint32_t slice_bytes_;
};

// Slots, and the least that is cut off for overlap's sake, where nobody asks for others. A NIC that serves HBM itself
// works on larger pieces, as in Gaudi's HCL (HCL_SLICE_SIZE, HCL_GDR_SLICE_SIZE): each costs a flush.
struct Slicing {
  std::uint32_t slot_bytes = 512 * 1024;
  std::uint32_t least = 64 * 1024;
};
inline constexpr Slicing kPeerSlicing{1024 * 1024, 512 * 1024};

// Slice size for a collective: a quarter of the largest message for overlap, at least `least`, at most a slot, and
// large enough that no rank needs more than `entries` command slots. 0: does not fit at all. Depends on what all ranks
// share.
std::uint32_t choose_slice(const Shape& shape, std::uint64_t count, std::uint32_t element_bytes,
                           std::uint32_t slot_bytes, std::uint32_t entries, std::uint32_t least = Slicing().least);

// Slices that a connection has carried so far, in each direction.
struct Flow {
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
};
inline std::uint64_t flow_key(std::uint32_t peer, std::uint32_t lane) {
  return static_cast<std::uint64_t>(peer) << 32 | lane;
}
using Flows = std::unordered_map<std::uint64_t, Flow>;  // by flow_key()

enum class StepKind : std::uint8_t {
  kSend,        // src -> slot of the peer; raises sent here, arrival there
  kRecvCopy,    // slot -> dst; raises done
  kRecvReduce,  // src (op) slot -> dst; raises done
  kCredit,      // empty message to the peer: raises its credit
  kCopy,        // src -> dst; raises local object `local`
  kReduce,      // src (op) src2 -> dst; raises `local`
  kEnd,         // when all steps before it are complete, so is the work
};

enum class EventKind : std::uint8_t { kArrival, kCredit, kDone, kSent, kLocal };

// The event `kind` of slice `seq` of (peer, lane) has happened. kCredit: of the slice that used the slot before `seq`
// does; kLocal: object `peer` was raised `seq` times in this execution.
struct WaitFor {
  EventKind kind = EventKind::kArrival;
  std::uint32_t lane = 0;
  std::uint32_t peer = 0;
  std::uint64_t seq = 0;
};

struct Step {
  StepKind kind = StepKind::kSend;
  bool final = false;   // WCCL_OP_FINAL
  bool fenced = false;  // starts when all earlier steps of the rank are complete; later ones wait for it
  std::uint8_t waits = 0;
  std::uint32_t lane = 0;
  std::uint32_t peer = 0;
  std::uint32_t op = 0;     // of the rank's list
  std::uint32_t slice = 0;  // of the op
  std::uint32_t local = 0;  // kCopy, kReduce: object; kLocalObjects: nobody waits
  std::uint64_t seq = 0;    // of the connection
  std::uint64_t bytes = 0;
  std::uint64_t message = 0;  // bytes of all its slices
  Place dst, src, src2;
  std::array<WaitFor, 3> wait;
};

// What of a schedule lowering does not run yet: v-counts, roots that are bound when it runs, several classes of
// links. Empty: nothing.
std::string not_lowered(const Shape& shape);

class Lowering {
 public:
  // `flows` goes on counting; the others must outlive this. Throws std::invalid_argument with not_lowered's text.
  Lowering(const Source& source, std::uint32_t rank, const Layout& layout, std::uint32_t slots, Flows& flows);
  // The next step; one of them is kEnd. False: that was all.
  bool next(Step& out);

 private:
  // What stays known of an op: 16 bytes, since a ring of a thousand ranks has millions of them.
  struct Past {
    std::uint64_t first_seq = 0;
    std::uint32_t slices = 0;  // 0: moves nothing here
    std::uint32_t local = kLocalObjects;
  };
  struct Runs {
    wccl_sched_op op{};
    std::uint32_t slice_bytes = 0;
    Place dst, src, src2;
  };
  struct Dep {
    WaitFor wait;
    bool per_slice = false;  // slice j waits for the event of seq + j
  };
  // An op of the present group.
  struct Current {
    Runs runs;
    Past past;
    bool fenced = false;
    boost::container::small_vector<Dep, 3> deps;
  };

  void find_last_credits();
  static std::uint32_t slices_of(const Runs& runs);
  bool load_group();
  Runs runs_of(const wccl_sched_op& op) const;
  void load(Current& current, std::uint32_t index);
  void add_dep(Current& current, std::uint32_t index, std::uint32_t dep);
  bool emit(const Current& current, std::uint32_t index, Step& out);
  bool emit_tail(Step& out);
  static void add_wait(Step& out, const WaitFor& wait);
  static bool slicewise(const Runs& a, std::uint32_t a_slices, const Runs& b, std::uint32_t b_slices);
  static bool conflict(const Runs& a, const Runs& b);

  const Source& source_;
  const std::uint32_t rank_;
  const std::uint32_t count_;
  const Layout& layout_;
  const std::uint32_t slots_;
  Flows& flows_;
  std::vector<Past> past_;  // of all ops so far
  // Deps that an op was excused from: those who depend on that op must look at them again.
  std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> excused_;
  // By flow: credits from this slice on are not waited for in this execution; and the same in the order of flows.
  std::unordered_map<std::uint64_t, std::uint64_t> late_from_;
  struct Late {
    std::uint32_t op, peer, lane;
    std::uint64_t seq;
  };
  std::vector<Late> late_;
  std::size_t late_at_ = 0;
  bool started_ = false, ended_ = false;
  OpView view_, dep_view_;
  std::uint32_t locals_ = 0;
  // The group of ops with the same step, and where in it we are.
  std::vector<Current> group_;
  std::uint32_t group_begin_ = 0, group_size_ = 0, group_slices_ = 0;
  std::uint32_t slice_ = 0, phase_ = 0, at_ = 0;
};

// Command slots of 64 bytes that a step takes when `divides` says whether a FINAL step needs its divisor.
inline std::uint32_t command_slots(const Step& step, bool divides) {
  return step.waits > 1 || (step.final && divides) ? 2 : 1;
}

}  // namespace weft::ccl
