#ifndef MPISTRAT_SHM_EXCHANGE_H_
#define MPISTRAT_SHM_EXCHANGE_H_

// One collective's data, in steps that all ranks take together:
//
//   produce(k): write what this rank brings into its own buffers;
//   then the node publishes the step, and waits until all ranks have;
//   consume(k): read what the others have published, all at once or in portions.
//
// Since a rank publishes step k + 1 only after it has consumed step k, two sets of buffers, used in
// turn, are enough (layout.h), and a step costs one flag a rank.

#include <algorithm>
#include <cstdint>

#include "layout.h"
#include "mpistrat/shm.h"
#include "pieces.h"
#include "regions.h"

namespace mpistrat {

class Remote;
class Ways;
struct Peer;

constexpr int64_t kTimedBytes = 64 << 10;  // arrays from here on may be timed (ways.h)
constexpr MpistratTuning kTuning{128 << 10, 64 << 10, 20 << 20, 20 << 20, 4 << 20};

// What an exchange sees of its node.
struct Place {
  Memory* memory;
  int rank;
  int size;
  uint64_t counter;            // steps so far, over all calls; says which buffers are in turn
  int64_t sequence;            // of the call, if it crosses the gate
  MpistratTuning tuning;       // of the call
  int64_t apart_stream_bytes;  // as its stream_bytes, of reductions whose result is not in place
  Regions* regions;
  const Remote* remote;
  Ways* ways;  // of the call, where its own time tells whether to read what is private; else null
  // Room for one pointer a rank.
  const void** sources;
  void** targets;
  Peer* peers;  // one for each rank

  const Line& line(int of, int64_t sequence) const {
    return memory->controls()[of].lines[sequence & 1];
  }
  uint8_t* slot(int of) const { return memory->buffers(size)[of].slots[counter % kSlots]; }
  uint8_t* result(int of) const { return memory->buffers(size)[of].results[counter % kResults]; }
  uint8_t* last_result(int of) const {
    return memory->buffers(size)[of].results[(counter + 1) % kResults];
  }
};

class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual void produce(const Place&, int64_t /*step*/) {}
  virtual void consume(const Place&, int64_t /*step*/) {}
  int64_t steps = 1;
  bool is_partial = false;  // set by consume: the step is not done, it is to be called again
};

// Bytes of the `index`-th of pieces of `each` bytes that `total` is cut into; 0 past its end.
inline int64_t piece_bytes(int64_t total, int64_t each, int64_t index) {
  return std::clamp<int64_t>(total - index * each, 0, each);
}

inline int64_t num_pieces(int64_t total, int64_t each) { return (total + each - 1) / each; }

}  // namespace mpistrat

#endif  // MPISTRAT_SHM_EXCHANGE_H_
