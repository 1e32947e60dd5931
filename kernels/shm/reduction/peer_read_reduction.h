#ifndef MPISTRAT_SHM_REDUCTION_PEER_READ_REDUCTION_H_
#define MPISTRAT_SHM_REDUCTION_PEER_READ_REDUCTION_H_

// Reduce long arrays by reading the other ranks' where they are, through no slot.
//
//   step 0: each rank reduces its slice of all ranks' arrays to its own result;
//   step 1: each copies the others' slices from their results, unless all results are one array;
//   last:   says that this rank reads no more.
//
// Only after the ranks have found that all of them can (peer_read/address_exchange.h).

#include "../exchange.h"
#include "../peer_read/transfers.h"
#include "operands.h"

namespace mpistrat {

class PeerReadReduction final : public Exchange {
 public:
  PeerReadReduction(Operands& operands, const MpistratSpec& spec, const NodeView& view);
  void consume(const NodeView& view, int64_t step) override;

 private:
  void reduce_slice(const NodeView& view);
  void copy_slices(const NodeView& view);

  Operands& operands_;
  const Chunks chunks_;  // one, of the whole array
  const bool streams_results_, has_one_result_;
  RangeReduction reduction_;
  RangeCopy copy_;
};

}  // namespace mpistrat

#endif  // MPISTRAT_SHM_REDUCTION_PEER_READ_REDUCTION_H_
