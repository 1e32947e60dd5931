#ifndef MPISTRAT_SHM_REDUCTION_LONG_REDUCTION_H_
#define MPISTRAT_SHM_REDUCTION_LONG_REDUCTION_H_

// Reduce arrays that are too long for one step (flat_reduction.h): choose one of four algorithms,
// and time it where that tells which one to choose next time.
//
//   WholeReduction     two ranks, not too long: each reduces all of it
//   ChunkedReduction   each rank reduces a slice of each chunk, through the slots
//   MappedReduction    the same without slots, of registered arrays
//   PeerReadReduction  each rank reads the others' arrays where they are
//
// Where arrays may be registered or readable, the call begins with one or two steps in which the
// ranks say where their arrays are, and what they can do (peer_read/address_exchange.h).

#include <cstdint>
#include <variant>

#include "../exchange.h"
#include "../peer_read/address_exchange.h"
#include "algorithm_choice.h"
#include "chunked_reduction.h"
#include "mapped_reduction.h"
#include "operands.h"
#include "peer_read_reduction.h"
#include "whole_reduction.h"

namespace mpistrat {

class LongReduction final : public Exchange {
 public:
  LongReduction(const MpistratSpec& spec, const NodeView& view);
  LongReduction(const LongReduction&) = delete;  // the algorithm refers to its operands
  int64_t slot_bytes(const NodeView& view, int64_t step) const override;
  void produce(const NodeView& view, int64_t step) override;
  void consume(const NodeView& view, int64_t step) override;

  AlgorithmChoice::Algorithm algorithm() const;

 private:
  using Mapped = MappedReduction::Mapped;

  bool may_read_peers(const NodeView& view) const;
  void plan(const NodeView& view);
  bool streams_results(const NodeView& view) const;
  void choose(const NodeView& view);
  void look(const NodeView& view);
  void agree(const NodeView& view);
  void produce_or_ask(const NodeView& view, int64_t step);

  const MpistratSpec& spec_;
  Operands operands_;
  AddressExchange addresses_;
  Mapped mapped_ = {};
  int64_t num_asking_steps_ = 0;  // before the algorithm's first one
  bool can_read_ = false;

  AlgorithmChoice::Plan plan_ = {};
  bool plans_late_ = false;               // when it is known which arrays are registered
  AlgorithmChoice* choice_ = nullptr;     // of calls with as many of them, if they are timed
  uint64_t spent_ns_ = 0, began_ns_ = 0;  // before all ranks were there, and when they were

  std::variant<std::monostate, WholeReduction, ChunkedReduction, MappedReduction, PeerReadReduction>
      algorithm_;
  Exchange* chosen_ = nullptr;  // in `algorithm_`, once the ranks have asked
};

}  // namespace mpistrat

#endif  // MPISTRAT_SHM_REDUCTION_LONG_REDUCTION_H_
