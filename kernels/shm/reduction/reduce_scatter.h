#ifndef MPISTRAT_SHM_REDUCTION_REDUCE_SCATTER_H_
#define MPISTRAT_SHM_REDUCTION_REDUCE_SCATTER_H_

// reduce_scatter on one node: every rank reduces its own block, from slots that are cut in one part
// a rank.

#include "../../common/pieces.h"
#include "../exchange.h"
#include "../peer_read/transfers.h"

namespace mpistrat {

class ReduceScatter : public Exchange {
 public:
  ReduceScatter(const MpistratSpec& spec, const NodeView& view);
  int64_t slot_bytes(const NodeView& view, int64_t) const override {
    return view.size * part_bytes_;
  }
  void produce(const NodeView& view, int64_t step) override;
  void consume(const NodeView& view, int64_t step) override;

  // What PeerReadExchange needs.
  Pieces* send() { return &send_; }
  Pieces* recv() { return &recv_; }
  int64_t most_bytes(const NodeView& view) const;
  bool read_peers(const NodeView& view);

 private:
  const MpistratSpec& spec_;
  Pieces send_, recv_;
  int64_t part_bytes_;
  RangeReduction reduction_;
};

}  // namespace mpistrat

#endif  // MPISTRAT_SHM_REDUCTION_REDUCE_SCATTER_H_
