#ifndef MPISTRAT_SHM_EXCHANGE_H_
#define MPISTRAT_SHM_EXCHANGE_H_

// The interface of a collective on one node: steps that all ranks take together.
//
//   produce(k): write what this rank brings into its own buffers;
//   then the node publishes the step, and waits until all ranks have;
//   consume(k): read what the others have published, all at once or in portions.
//
// Each step has a slot of each rank's buffers (slot_ring.h), and costs one flag a rank. What is
// written in produce(k) is safe to read in consume(k) and consume(k + 1), and not later: the ring
// may come to the slot again in step k + 3, which no rank begins before all have published k + 2.

#include <cstdint>

#include "layout.h"
#include "node_view.h"

namespace mpistrat {

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
  bool streams_slots = false;      // what this rank writes to them goes past the caches
};

}  // namespace mpistrat

#endif  // MPISTRAT_SHM_EXCHANGE_H_
