#ifndef MPISTRAT_SHM_REDUCTION_CHUNKED_REDUCTION_H_
#define MPISTRAT_SHM_REDUCTION_CHUNKED_REDUCTION_H_

// Reduce long arrays chunk by chunk through the slots, each chunk in one slice a rank.
//
//   step k: copy the others' slices of chunk k into the slot; reduce one's own slice of all slots,
//           to one's result and to its place in the slot; copy out the others' of chunk k - 1.
//
// So a chunk costs one flag, each rank reads its input once and writes its output once, and what
// passes between the ranks stays in the shared cache.

#include "../exchange.h"
#include "operands.h"
#include "slot_slices.h"

namespace mpistrat {

class ChunkedReduction final : public Exchange {
 public:
  ChunkedReduction(Operands& operands, const Chunks& chunks, PastCaches past);
  int64_t slot_bytes(const NodeView&, int64_t chunk) const override {
    return chunks_.nbytes(chunk);
  }
  void produce(const NodeView& view, int64_t chunk) override { slices_.bring(view, chunk); }
  void consume(const NodeView& view, int64_t chunk) override;

 private:
  Operands& operands_;
  const Chunks chunks_;
  SlotSlices slices_;
};

}  // namespace mpistrat

#endif  // MPISTRAT_SHM_REDUCTION_CHUNKED_REDUCTION_H_
