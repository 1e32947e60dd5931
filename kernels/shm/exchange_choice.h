#ifndef MPISTRAT_SHM_EXCHANGE_CHOICE_H_
#define MPISTRAT_SHM_EXCHANGE_CHOICE_H_

// Choose the exchange that a call on one node goes by: the only place that knows all of them.

#include <variant>

#include "data_movement.h"
#include "exchange.h"
#include "peer_read/peer_read_exchange.h"
#include "reduction/flat_reduction.h"
#include "reduction/long_reduction.h"
#include "reduction/reduce_scatter.h"

namespace mpistrat {

class ExchangeChoice {
 public:
  // Begin the exchange of `spec`, which takes the place of the one before. Both arguments have to
  // stay as long as it is in use.
  Exchange* begin(const MpistratSpec& spec, const NodeView& view);

  // See mpistrat_has_gone_past().
  bool has_gone_past() const;

 private:
  Exchange* begin_reduction(const MpistratSpec& spec, const NodeView& view);

  // Memory for one of them: a call allocates nothing.
  std::variant<Exchange, FlatReduction, LongReduction, PeerReadExchange<ReduceScatter>,
               PeerReadExchange<Spread>, PeerReadExchange<Blocks>>
      exchange_;
};

}  // namespace mpistrat

#endif  // MPISTRAT_SHM_EXCHANGE_CHOICE_H_
