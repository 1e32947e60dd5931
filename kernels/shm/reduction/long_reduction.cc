#include "long_reduction.h"

#include <algorithm>

#include "../../common/clock.h"
#include "../peer_read/peer_memory.h"
#include "../regions.h"

namespace mpistrat {
namespace {

// Whether every rank's result takes the place of its source.
bool is_in_place(const NodeView& view) {
  for (int rank = 0; rank < view.size; ++rank)
    if (view.peers[rank].recv != view.peers[rank].send) return false;
  return true;
}

}  // namespace

LongReduction::LongReduction(const MpistratSpec& spec, const NodeView& view)
    : spec_(spec), operands_(spec), addresses_(spec) {
  lap_bytes = view.lap_bytes(operands_.nbytes);
  const bool may_ask = spec.kind == MPISTRAT_ALLREDUCE && view.size > 1;
  plans_late_ = may_ask && operands_.nbytes >= kProbeBytes && !view.regions->empty();
  if (!plans_late_) plan(view);
  num_asking_steps_ = plans_late_ || (may_ask && plan_.asks);
  if (num_asking_steps_ == 0) choose(view);
}

AlgorithmChoice::Algorithm LongReduction::algorithm() const {
  return std::holds_alternative<PeerReadReduction>(algorithm_) ? AlgorithmChoice::kRead
         : plan_.streams_slots                                 ? AlgorithmChoice::kStreamed
                                                               : AlgorithmChoice::kSlots;
}

// Whether it may pay to read private arrays where they are. Of those that are streamed each slice
// would come from memory twice: for the rank that reduces it, and for the one that copies it.
bool LongReduction::may_read_peers(const NodeView& view) const {
  const bool is_unlikely = operands_.nbytes >= view.tuning.stream_bytes && !view.choices;
  return operands_.nbytes >= view.tuning.remote_bytes && !is_unlikely &&
         view.peer_memory->is_open();
}

// Plan the call, once it is known which arrays are registered, or none can be.
void LongReduction::plan(const NodeView& view) {
  const bool can_reach = may_read_peers(view);
  if (view.choices && operands_.nbytes >= kTimedBytes) {
    choice_ = &view.choices[mapped_.sources + 2 * mapped_.results];
    plan_ = choice_->plan(operands_.nbytes, can_reach);
  } else {
    plan_.asks = plan_.would_read = can_reach;
    // To a root no rank reads, and none's own time tells what slots cost.
    if (view.movement_choice && operands_.is_rooted())
      plan_.streams_slots =
          view.movement_choice->plan(spec_.kind, operands_.nbytes, MovementChoice::kSlots, false) ==
          MovementChoice::kStreamed;
  }
}

// Whether results are written past the caches, which saves that memory is read before it is
// written. Measured on one AMD EPYC with 32 MiB of cache, 2 ranks, registered, shares of a memcpy's
// speed: apart at 16 MiB 0.82 to 0.96 through the caches, 0.94 to 1.09 past them; one result for
// both, us: 4 MiB 118 and 172, 8 MiB 530 and 400, 16 MiB 1800 and 1250. In place the
// results' lines have just been read as sources: at 64 MiB 1.46 to 1.7 against 0.81 to 1.0.
bool LongReduction::streams_results(const NodeView& view) const {
  if (mapped_.all() && is_in_place(view)) return false;
  const int64_t least = operands_.is_apart() ? view.apart_stream_bytes : view.tuning.stream_bytes;
  return operands_.nbytes >= least;
}

// Choose the algorithm, unless the ranks agree to read each other's arrays.
void LongReduction::choose(const NodeView& view) {
  const int64_t nbytes = operands_.nbytes;
  const bool is_one_chunk = mapped_.all();  // nothing to keep in caches
  const bool is_rooted = view.size == 2 && operands_.is_rooted();
  const int64_t most = is_rooted ? kRootedChunkBytes : INT64_MAX;
  const int64_t chunk_bytes = std::min(view.tuning.chunk_bytes, most);
  const Chunks chunks(nbytes, is_one_chunk ? nbytes : chunk_bytes, view.size);
  const PastCaches past{streams_results(view), plan_.streams_slots};
  if (mapped_.sources || mapped_.results)
    chosen_ = &algorithm_.emplace<MappedReduction>(operands_, chunks, past, mapped_);
  else if (is_rooted || (view.size == 2 && nbytes <= view.tuning.whole_bytes))
    chosen_ = &algorithm_.emplace<WholeReduction>(operands_, chunks, past);
  else
    chosen_ = &algorithm_.emplace<ChunkedReduction>(operands_, chunks, past);
  steps = num_asking_steps_ + chosen_->steps;
}

// After step 0: find what all ranks can do. All read the same addresses, and so come to the same
// answer.
void LongReduction::look(const NodeView& view) {
  const AddressExchange::Found found = addresses_.look(view);
  mapped_ = {found.maps_sends, found.maps_recvs};
  if (plans_late_) plan(view);
  if (found.can_read && plan_.asks && !mapped_.all()) {
    num_asking_steps_ = 2;
    can_read_ = plan_.would_read && AddressExchange::try_to_read(view, true);
  }
  choose(view);  // which holds if that comes to nothing, too
}

// After step 1: read the others' arrays if all ranks can and would. All read the same answers. The
// first step of reading needs none of the others, and so is taken right now.
void LongReduction::agree(const NodeView& view) {
  const bool reads_peers = AddressExchange::do_all_agree(view);
  if (plan_.is_decision) choice_->decide(operands_.nbytes, reads_peers);
  if (!reads_peers) return;
  chosen_ = &algorithm_.emplace<PeerReadReduction>(operands_, spec_, view);
  num_asking_steps_ = 1;
  steps = num_asking_steps_ + chosen_->steps;
}

int64_t LongReduction::slot_bytes(const NodeView& view, int64_t step) const {
  if (step < num_asking_steps_) return AddressExchange::slot_bytes(step);
  return chosen_->slot_bytes(view, step - num_asking_steps_);
}

void LongReduction::produce(const NodeView& view, int64_t step) {
  const bool is_begin = plan_.is_timed && step == 0;
  if (is_begin) spent_ns_ = now_ns();
  produce_or_ask(view, step);
  if (is_begin) spent_ns_ = now_ns() - spent_ns_;
}

void LongReduction::produce_or_ask(const NodeView& view, int64_t step) {
  if (step >= num_asking_steps_) {
    chosen_->produce(view, step - num_asking_steps_);
  } else if (step == 0) {
    addresses_.publish(view, &operands_.send, &operands_.recv);
  } else {
    AddressExchange::answer(view, can_read_);
  }
}

// A call's time is that of this rank's work: from the end of the first wait on, and before it. That
// of mapped arrays alone tells nothing of slots.
void LongReduction::consume(const NodeView& view, int64_t step) {
  if (step == 0 && (plan_.is_timed || plans_late_)) began_ns_ = now_ns();
  if (step < num_asking_steps_) step == 0 ? look(view) : agree(view);
  if (step == 0 && choice_) choice_->count(operands_.nbytes);
  if (step == 0 && view.movement_choice) view.movement_choice->count();
  if (step >= num_asking_steps_) {
    chosen_->consume(view, step - num_asking_steps_);
    is_partial = chosen_->is_partial;
  }
  if (plan_.is_timed && step + 1 == steps && !is_partial && !mapped_.all())
    choice_->note(operands_.nbytes, algorithm(), spent_ns_ + now_ns() - began_ns_);
}

}  // namespace mpistrat
