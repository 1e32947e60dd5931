#include "exchange_choice.h"

namespace mpistrat {

Exchange* ExchangeChoice::begin(const MpistratSpec& spec, const NodeView& view) {
  switch (spec.kind) {
    case MPISTRAT_ALLREDUCE:
    case MPISTRAT_REDUCE:
      return begin_reduction(spec, view);
    case MPISTRAT_REDUCE_SCATTER:
      return &exchange_.emplace<PeerReadExchange<ReduceScatter>>(spec, view);
    case MPISTRAT_BCAST:
    case MPISTRAT_ALLGATHER:
    case MPISTRAT_GATHER:
      return &exchange_.emplace<PeerReadExchange<Spread>>(spec, view);
    case MPISTRAT_SCATTER:
    case MPISTRAT_ALLTOALL:
      return &exchange_.emplace<PeerReadExchange<Blocks>>(spec, view);
    default:  // one step, with nothing besides the lines
      return &exchange_.emplace<Exchange>();
  }
}

Exchange* ExchangeChoice::begin_reduction(const MpistratSpec& spec, const NodeView& view) {
  if (FlatReduction::suits(spec, view)) return &exchange_.emplace<FlatReduction>(spec, view);
  return &exchange_.emplace<LongReduction>(spec, view);
}

bool ExchangeChoice::has_gone_past() const {
  const auto* last = std::get_if<LongReduction>(&exchange_);
  return last && last->algorithm() == AlgorithmChoice::kStreamed;
}

}  // namespace mpistrat
