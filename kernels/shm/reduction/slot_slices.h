#ifndef MPISTRAT_SHM_REDUCTION_SLOT_SLICES_H_
#define MPISTRAT_SHM_REDUCTION_SLOT_SLICES_H_

// The slices of a chunk in the ranks' slots: copied in, summed, and copied out.

#include "../exchange.h"
#include "operands.h"

namespace mpistrat {

class SlotSlices {
 public:
  SlotSlices(Operands& operands, const Chunks& chunks, PastCaches past)
      : operands_(operands), chunks_(chunks), past_(past) {}

  // Copy this rank's source to its slot, except for its own slice.
  void bring(const NodeView& view, int64_t chunk);

  // Fill view.sources: a part of this rank's slice, of all ranks' slots and its own source.
  void find_sources(const NodeView& view, int64_t chunk, Slice part);

  // Reduce view.sources to this rank's slot, for the others, and to its own result.
  void reduce(const NodeView& view, int64_t chunk, Slice part);

  // Copy the other ranks' slices of the total from the slots of the step before.
  void take(const NodeView& view, int64_t chunk);

 private:
  Operands& operands_;
  const Chunks chunks_;
  const PastCaches past_;
};

}  // namespace mpistrat

#endif  // MPISTRAT_SHM_REDUCTION_SLOT_SLICES_H_
