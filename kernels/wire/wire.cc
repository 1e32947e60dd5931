#include "wire.h"

#include <algorithm>
#include <mutex>
#include <new>

#include "../calls/calls.h"
#include "../common/clock.h"

namespace mpistrat::wire {
namespace {

constexpr int64_t kMostDepth = 16;  // segments in flight: hides a message's round trip
constexpr int64_t kLeastDepth = 4;
constexpr int64_t kFlyingBytes = 32 << 20;  // of each rank, in flight

constexpr uint64_t kAtOnceNs = 200'000;  // at most, for what is possible at once

constexpr int64_t kMostRingBytes = 4 << 20;  // a segment's memory is some such blocks a node

// What can be carried of what was asked for.
MpistratWireTuning possible(MpistratWireTuning tuning) {
  tuning.short_bytes = std::clamp<int64_t>(tuning.short_bytes, 0, HeaderExchange::kMostBytes / 2);
  tuning.ring_bytes = std::clamp<int64_t>(tuning.ring_bytes, 1, kMostRingBytes);
  tuning.ring_most_bytes = std::clamp(tuning.ring_most_bytes, tuning.ring_bytes, kMostRingBytes);
  tuning.max_count = std::max<int64_t>(tuning.max_count, 1);
  return tuning;
}

int depth_of(const Topology& topology, const MpistratWireTuning& tuning) {
  const int64_t segment_bytes = tuning.ring_most_bytes * topology.num_nodes();
  return static_cast<int>(std::clamp(kFlyingBytes / segment_bytes, kLeastDepth, kMostDepth));
}

}  // namespace

Wire::Wire(const MpistratMpi& mpi, MpistratNode* node, int rank, int size, const int32_t* node_of,
           const MpistratWireTuning& tuning)
    : topology_(rank, size, node_of),
      tuning_(possible(tuning)),
      depth_(depth_of(topology_, tuning_)),
      first_tag_(mpi.first_tag),
      links_(mpi, node, topology_),
      header_exchange_(links_, mpi.first_tag),
      segments_(topology_, tuning_),
      direct_(links_, mpi.first_tag + 1) {}

void Wire::tune(const MpistratWireTuning& tuning) {
  tuning_ = possible(tuning);
  depth_ = depth_of(topology_, tuning_);
}

void Wire::begin(const MpistratSpec& spec) {
  spec_ = spec;
  status_ = MPISTRAT_WAITING;
  is_for_all_ = false;
  backoff_.begin();
  if (is_short()) {
    begin_short();
  } else if (spec_.crosses || spec_.kind == MPISTRAT_CROSS) {
    phase_ = Phase::kCross;
    header_exchange_.begin(spec_);
  } else {
    begin_data();
  }
}

int Wire::advance(uint64_t budget_ns) {
  if (is_over()) return status_;
  const uint64_t start = now_ns();
  for (;;) {
    const int64_t events = links_.num_events();
    links_.messages.poll();
    const bool is_over = go_on();
    if (error() != 0) return status_ = MPISTRAT_MPI_ERROR;
    if (is_over) return status_;
    const uint64_t waited = now_ns() - start;
    if (links_.num_events() != events) {
      backoff_.moved();
      if (waited < std::max(budget_ns, kAtOnceNs)) continue;
    }
    if (waited >= budget_ns) return MPISTRAT_WAITING;
    if (links_.is_node_busy() && !has_messages()) {
      links_.advance_node(budget_ns - waited);
    } else {
      backoff_.pause(budget_ns - waited);
    }
  }
}

// Go as far as is possible without waiting; returns whether the call is over.
bool Wire::go_on() {
  if (phase_ == Phase::kShort || phase_ == Phase::kCross) {
    if (!header_exchange_.advance()) return false;
    if (header_exchange_.is_mismatch()) {
      status_ = MPISTRAT_MISMATCH;
      phase_ = Phase::kOver;
    } else if (phase_ == Phase::kShort) {
      deliver(header_exchange_.result());
    } else if (spec_.kind == MPISTRAT_CROSS) {
      phase_ = Phase::kOver;
    } else {
      begin_data();
    }
  }
  if (phase_ == Phase::kData) {
    if (!pipeline_.advance(links_)) return false;
    phase_ = Phase::kOver;
    if (is_for_all_) deliver(total_.data());
  }
  if (phase_ == Phase::kDirect && !direct_.advance()) return false;
  if (status_ == MPISTRAT_WAITING) status_ = MPISTRAT_DONE;
  phase_ = Phase::kOver;
  return true;
}

int64_t Wire::nbytes() const {
  const bool is_received = spec_.kind == MPISTRAT_BCAST || spec_.kind == MPISTRAT_ALLGATHER;
  return is_received ? Pieces(spec_.recv, spec_.num_recv).nbytes()
                     : Pieces(spec_.send, spec_.num_send).nbytes();
}

bool Wire::has_short_blocks() const {
  return ShortBlocks::suits(spec_, topology_.size, tuning_.short_bytes);
}

bool Wire::is_short() const {
  if (has_short_blocks()) return true;
  const bool may_ride = MPISTRAT_ALLREDUCE <= spec_.kind && spec_.kind <= MPISTRAT_BCAST;
  return may_ride && nbytes() <= tuning_.short_bytes;
}

bool Wire::is_direct() const {
  if (spec_.kind == MPISTRAT_ALLGATHER) return !segments_.is_ring(nbytes(), 1);
  return MPISTRAT_GATHER <= spec_.kind && spec_.kind <= MPISTRAT_ALLTOALL;
}

void Wire::begin_short() {
  phase_ = Phase::kShort;
  if (spec_.kind == MPISTRAT_BCAST) {
    header_exchange_.begin_bcast(spec_);
  } else if (has_short_blocks()) {
    const MpistratSpec& blocks = short_blocks_.begin(spec_, topology_.rank, topology_.size);
    header_exchange_.begin_reduce(blocks, Arithmetic::of(blocks));
  } else {
    header_exchange_.begin_reduce(spec_, Arithmetic::of(spec_));
  }
}

void Wire::begin_data() {
  phase_ = is_direct() ? Phase::kDirect : Phase::kData;
  if (phase_ == Phase::kDirect) {
    direct_.begin(spec_, tuning_.max_count);
  } else if (spec_.kind == MPISTRAT_BCAST || spec_.kind == MPISTRAT_ALLGATHER) {
    begin_copies();
  } else {
    begin_reduction();
  }
}

void Wire::begin_reduction() {
  const Arithmetic how = Arithmetic::of(spec_);
  const int64_t each = how.result_itemsize(), count = nbytes() / each;
  const Pieces send(spec_.send, spec_.num_send), recv(spec_.recv, spec_.num_recv);
  SegmentFlow* flow;
  if (spec_.kind == MPISTRAT_ALLREDUCE) {
    segments_.begin_shared(count, each);
    flow = &flow_.emplace<Reduction>(links_, how, send, recv);
  } else if (!segments_.is_ring(count, each)) {
    is_for_all_ = true;
    if (total_.size() < static_cast<size_t>(nbytes())) total_.resize(static_cast<size_t>(nbytes()));
    total_piece_ = {total_.data(), nbytes()};
    segments_.begin_shared(count, each);
    flow = &flow_.emplace<Reduction>(links_, how, send, Pieces(&total_piece_, 1));
  } else {
    flow = &flow_.emplace<OwnReduction>(links_, how, send, recv);
    if (spec_.kind == MPISTRAT_REDUCE) {
      segments_.begin_rooted(count, each, spec_.root);
    } else {
      counts_.assign(spec_.send_bytes, spec_.send_bytes + topology_.size);
      for (int64_t& n : counts_) n /= each;
      segments_.begin_owned(counts_.data(), each);
    }
  }
  pipeline_.begin(flow, &segments_, depth_, first_tag_ + 1, MPISTRAT_NUM_TAGS - 1);
}

// What is only copied is cut by bytes.
void Wire::begin_copies() {
  const Pieces send(spec_.send, spec_.num_send), recv(spec_.recv, spec_.num_recv);
  int from = 0;
  if (spec_.kind == MPISTRAT_BCAST) {
    from = topology_.node_of[static_cast<size_t>(spec_.root)];
    segments_.begin_rooted(nbytes(), 1, spec_.root);
  } else {
    segments_.begin_owned(spec_.recv_bytes, 1);
  }
  SegmentFlow* flow = &flow_.emplace<Copies>(links_, 1, send, recv, from);
  pipeline_.begin(flow, &segments_, depth_, first_tag_ + 1, MPISTRAT_NUM_TAGS - 1);
}

// Take what this rank gets of an array that was reduced, or copied, for all.
void Wire::deliver(const uint8_t* total) {
  if (has_short_blocks()) return short_blocks_.deliver(total);
  Pieces recv(spec_.recv, spec_.num_recv);
  int64_t start = 0;
  const bool is_rooted = spec_.kind == MPISTRAT_REDUCE || spec_.kind == MPISTRAT_BCAST;
  const bool is_root = topology_.rank == spec_.root;
  if (is_rooted && is_root != (spec_.kind == MPISTRAT_REDUCE)) return;
  if (spec_.kind == MPISTRAT_REDUCE_SCATTER)
    for (int rank = 0; rank < topology_.rank; ++rank) start += spec_.send_bytes[rank];
  recv.copy_in(0, total + start, recv.nbytes(), false);
}

}  // namespace mpistrat::wire

// --------------------------------------------------------------------------------- the C functions

struct MpistratWire : mpistrat::wire::Wire, MpistratCalls {
  using Wire::Wire;
  ~MpistratWire() override { queue.halt(); }
  uint8_t* line() override { return Wire::line(); }
  const uint8_t* table() const override { return Wire::table(); }
  void begin(const MpistratSpec& spec) override { Wire::begin(spec); }
  int advance(uint64_t budget_ns) override { return Wire::advance(budget_ns); }
  int size() const override { return Wire::size(); }
};

namespace {

// Wires that were closed with messages under way: MPI may still write to their memory.
void keep(MpistratWire* wire) {
  static std::mutex mutex;
  static auto* const kept = new std::vector<MpistratWire*>;
  const std::lock_guard<std::mutex> lock(mutex);
  kept->push_back(wire);
}

}  // namespace

MpistratWire* mpistrat_wire_open(const MpistratMpi* mpi, MpistratNode* node, int rank, int size,
                                 const int32_t* node_of, const MpistratWireTuning* tuning) {
  return new (std::nothrow) MpistratWire(*mpi, node, rank, size, node_of, *tuning);
}

void mpistrat_wire_tune(MpistratWire* wire, const MpistratWireTuning* tuning) {
  wire->tune(*tuning);
}

void mpistrat_wire_close(MpistratWire* wire) {
  wire->queue.halt();
  if (wire->has_messages()) {
    keep(wire);
  } else {
    delete wire;
  }
}

MpistratCalls* mpistrat_wire_calls(MpistratWire* wire) { return wire; }

int mpistrat_wire_is_over(MpistratWire* wire) {
  return !wire->queue.is_busy() && wire->is_over();  // a queued call may be yet to begin
}

int mpistrat_wire_error(MpistratWire* wire) { return wire->error(); }
