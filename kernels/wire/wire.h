#ifndef MPISTRAT_WIRE_WIRE_H_
#define MPISTRAT_WIRE_WIRE_H_

// The collectives over several nodes: choose how a call goes, and advance it.

#include <atomic>
#include <cstdint>
#include <variant>
#include <vector>

#include "../common/backoff.h"
#include "direct_messages.h"
#include "header_exchange.h"
#include "links.h"
#include "mpistrat/wire.h"
#include "pipeline/collective_flows.h"
#include "pipeline/pipeline.h"
#include "short_blocks.h"

namespace mpistrat::wire {

// One rank's end of the collectives over several nodes; see mpistrat/wire.h.
class Wire {
 public:
  Wire(const MpistratMpi& mpi, MpistratNode* node, int rank, int size, const int32_t* node_of,
       const MpistratWireTuning& tuning);

  int size() const { return topology_.size; }
  uint8_t* line() { return header_exchange_.line(); }
  const uint8_t* table() const { return header_exchange_.table(); }

  void tune(const MpistratWireTuning& tuning);
  void begin(const MpistratSpec& spec);
  int advance(uint64_t budget_ns);

  bool is_over() const { return status_ != MPISTRAT_WAITING; }
  int error() const { return links_.messages.error(); }
  bool has_messages() const { return links_.messages.num_pending() > 0; }

 private:
  enum class Phase { kShort, kCross, kData, kDirect, kOver };

  int64_t nbytes() const;
  bool is_short() const;
  bool is_direct() const;
  bool has_short_blocks() const;
  void begin_short();
  void begin_data();
  void begin_reduction();
  void begin_copies();
  bool go_on();
  void deliver(const uint8_t* total);

  const Topology topology_;
  MpistratWireTuning tuning_;
  int depth_;  // segments in flight at a time
  const int first_tag_;
  Links links_;
  HeaderExchange header_exchange_;
  Segments segments_;
  Pipeline pipeline_;
  Direct direct_;
  Backoff backoff_{kMessageBackoff};

  // The call under way.
  MpistratSpec spec_ = {};
  Phase phase_ = Phase::kOver;
  std::atomic<int> status_{MPISTRAT_DONE};  // any thread may ask whether it is over
  std::variant<std::monostate, Reduction, OwnReduction, Copies> flow_;
  ShortBlocks short_blocks_;
  std::vector<int64_t> counts_;
  std::vector<uint8_t> total_;  // of what is reduced for all ranks but wanted by some
  MpistratPiece total_piece_ = {};
  bool is_for_all_ = false;
};

}  // namespace mpistrat::wire

#endif  // MPISTRAT_WIRE_WIRE_H_
