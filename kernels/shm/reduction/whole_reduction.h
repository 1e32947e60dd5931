#ifndef MPISTRAT_SHM_REDUCTION_WHOLE_REDUCTION_H_
#define MPISTRAT_SHM_REDUCTION_WHOLE_REDUCTION_H_

// Reduce arrays of two ranks by whole chunks: each reduces all of a chunk, to its own result.
//
// Twice the arithmetic of slices (chunked_reduction.h), but no copy of the other rank's slice, and
// no step to wait for it. Where a root alone gets the result, it reduces a chunk while the other
// rank brings the next one.

#include "../exchange.h"
#include "operands.h"

namespace mpistrat {

class WholeReduction final : public Exchange {
 public:
  WholeReduction(Operands& operands, const Chunks& chunks, PastCaches past);
  int64_t slot_bytes(const NodeView&, int64_t chunk) const override {
    return chunks_.nbytes(chunk);
  }
  void produce(const NodeView& view, int64_t chunk) override;
  void consume(const NodeView& view, int64_t chunk) override;

 private:
  const uint8_t* source(const NodeView& view, int64_t chunk, int of, Slice part);

  Operands& operands_;
  const Chunks chunks_;
  const PastCaches past_;
};

}  // namespace mpistrat

#endif  // MPISTRAT_SHM_REDUCTION_WHOLE_REDUCTION_H_
