#ifndef MPISTRAT_SHM_EXCHANGE_H_
#define MPISTRAT_SHM_EXCHANGE_H_

// The interface of a collective on one node: steps that all ranks take together.
//
//   produce(k): write what this rank brings into its own buffers;
//   then the node publishes the step, and waits until all ranks have;
//   consume(k): read what the others have published, all at once or in portions.
//
// Each step has a slot of each rank's buffers (layout.h), and costs one flag a rank.

#include <algorithm>
#include <cstdint>

#include "../common/pieces.h"
#include "layout.h"
#include "mpistrat/shm.h"
#include "regions.h"

namespace mpistrat {

class PeerMemory;
class AlgorithmChoice;
struct Peer;

constexpr int64_t kTimedBytes = 1 << 10;    // arrays from here on may be timed (algorithm_choice.h)
constexpr int64_t kReadBytes = 64 << 10;    // and from here on be read, if they are timed
constexpr int64_t kLongLapBytes = 2 << 20;  // two ranks' arrays up to here use the whole ring
constexpr MpistratTuning kDefaultTuning{256 << 10, 64 << 10, 128 << 10, 20 << 20, 4 << 20};

// Where in the ranks' buffers the slots of a step are. All ranks come to the same, since a step's
// slots have as many bytes on all of them.
class SlotRing {
 public:
  // A step with slots of `nbytes`, at most kMaxChunk; those of its call use `lap` bytes of the
  // ring.
  void begin(int64_t nbytes, int64_t lap) {
    last_ = at_;
    nbytes_ = nbytes;
    at_ = is_short() ? kRing + next_short_ * kShortSlot : next_ > lap - kMaxChunk ? 0 : next_;
  }

  // To be called if all ranks have had this step.
  void end() {
    if (is_short())
      next_short_ = (next_short_ + (nbytes_ > 0)) % kShortSlots;
    else
      next_ = at_ + (nbytes_ + kAlignment - 1) / kAlignment * kAlignment;
  }

  int64_t at() const { return at_; }
  int64_t last() const { return last_; }  // those of the step before

 private:
  static constexpr int64_t kAlignment = 2 * kCacheLine;  // processors fetch lines in pairs
  bool is_short() const { return nbytes_ <= kShortSlot; }

  int64_t next_ = 0, next_short_ = 0;
  int64_t nbytes_ = 0, at_ = 0, last_ = 0;
};

// What an exchange sees of its node.
struct NodeView {
  Memory* memory;
  int rank;
  int size;
  uint64_t counter;            // steps so far, over all calls
  SlotRing slot_ring;          // of the steps in the slots
  int64_t sequence;            // of the call, if it crosses the gate
  MpistratTuning tuning;       // of the call
  int64_t apart_stream_bytes;  // as its stream_bytes, of reductions whose result is not in place
  Regions* regions;
  const PeerMemory* peer_memory;
  // Of the call, where its own time tells which algorithm to use, else null: with no registered
  // arrays, with registered sources, with registered results, and with both.
  AlgorithmChoice* choices;
  // Room for one pointer a rank.
  const void** sources;
  void** targets;
  Peer* peers;       // one for each rank
  uint8_t* scratch;  // kMaxChunk bytes of this rank's own

  int64_t lap_bytes(int64_t nbytes) const {
    return size == 2 && nbytes <= kLongLapBytes ? kRing : kShortRing;
  }

  const Line& line(int of, int64_t sequence) const {
    return memory->controls()[of].lines[sequence & 1];
  }
  uint8_t* slot(int of) const { return memory->buffers_of(of, size) + slot_ring.at(); }
  uint8_t* last_slot(int of) const { return memory->buffers_of(of, size) + slot_ring.last(); }
  uint8_t* addresses(int of) const { return memory->buffers(size)[of].addresses; }
};

class Exchange {
 public:
  virtual ~Exchange() = default;
  // Bytes of each rank's slot in a step, at most kMaxChunk; equal on all ranks.
  virtual int64_t slot_bytes(const NodeView&, int64_t /*step*/) const { return 0; }
  virtual void produce(const NodeView&, int64_t /*step*/) {}
  virtual void consume(const NodeView&, int64_t /*step*/) {}
  int64_t steps = 1;
  int64_t lap_bytes = kShortRing;  // of the ring that its slots use; equal on all ranks
  bool is_partial = false;         // set by consume: the step is not done, it is to be called again
};

// Bytes of the `index`-th of pieces of `each` bytes that `total` is cut into; 0 past its end.
inline int64_t piece_bytes(int64_t total, int64_t each, int64_t index) {
  return std::clamp<int64_t>(total - index * each, 0, each);
}

inline int64_t num_pieces(int64_t total, int64_t each) { return (total + each - 1) / each; }

// Bytes, in whole lines, of a slot's part for each rank, where blocks have at most `most_bytes`.
inline int64_t part_bytes(const NodeView& view, int64_t most_bytes) {
  const auto line = static_cast<int64_t>(kCacheLine);
  const int64_t room = view.tuning.chunk_bytes / view.size / line;
  return std::max<int64_t>(std::min(room, num_pieces(most_bytes, line)), 1) * line;
}

}  // namespace mpistrat

#endif  // MPISTRAT_SHM_EXCHANGE_H_
