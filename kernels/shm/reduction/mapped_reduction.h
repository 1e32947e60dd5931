#ifndef MPISTRAT_SHM_REDUCTION_MAPPED_REDUCTION_H_
#define MPISTRAT_SHM_REDUCTION_MAPPED_REDUCTION_H_

// Reduce registered arrays (regions.h), which every rank has mapped.
//
// As by chunks (chunked_reduction.h), except that mapped sources are not copied into the slots, and
// that each rank writes its slice of the total to all results that are mapped, from which nothing
// is copied out. Where sources and results are mapped, no slot is used, and there is one chunk.

#include "../exchange.h"
#include "operands.h"
#include "slot_slices.h"

namespace mpistrat {

class MappedReduction final : public Exchange {
 public:
  // Which of all ranks' arrays are mapped; where neither are, this is the wrong algorithm.
  struct Mapped {
    bool sources, results;
    bool all() const { return sources && results; }
  };

  MappedReduction(Operands& operands, const Chunks& chunks, PastCaches past, Mapped mapped);
  int64_t slot_bytes(const NodeView&, int64_t chunk) const override {
    return mapped_.all() ? 0 : chunks_.nbytes(chunk);
  }
  void produce(const NodeView& view, int64_t chunk) override {
    if (!mapped_.sources) slices_.bring(view, chunk);
  }
  void consume(const NodeView& view, int64_t chunk) override;

 private:
  void find_sources(const NodeView& view, int64_t chunk, Slice part);
  void reduce_to_all(const NodeView& view, int64_t chunk, Slice part);

  Operands& operands_;
  const Chunks chunks_;
  const bool streams_results_;
  const Mapped mapped_;
  SlotSlices slices_;
};

}  // namespace mpistrat

#endif  // MPISTRAT_SHM_REDUCTION_MAPPED_REDUCTION_H_
