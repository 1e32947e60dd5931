#include "reduction.h"

#include <utility>

#include "../common/clock.h"
#include "peer_read/peer_memory.h"
#include "regions.h"

namespace mpistrat {
namespace {

// Whether all results are one array, of which each rank writes its slice.
bool has_one_result(const NodeView& view) {
  for (int rank = 0; rank < view.size; ++rank)
    if (!view.peers[rank].recv || view.peers[rank].recv != view.peers[0].recv) return false;
  return true;
}

// Whether every rank's result takes the place of its source.
bool is_in_place(const NodeView& view) {
  for (int rank = 0; rank < view.size; ++rank)
    if (view.peers[rank].recv != view.peers[rank].send) return false;
  return true;
}

}  // namespace

Reduction::Reduction(const MpistratSpec& spec, const NodeView& view)
    : spec_(spec),
      send_(spec.send, spec.num_send),
      recv_(spec.recv, spec.num_recv),
      nbytes_(send_.nbytes()),
      chunk_bytes_(view.tuning.chunk_bytes),
      itemsize_(static_cast<int64_t>(mpistrat_itemsize(spec.dtype))),
      size_(view.size),
      addresses_(spec),
      reduction_(spec) {
  is_inline_ = spec.crosses && nbytes_ <= MPISTRAT_INLINE_BYTES;
  is_flat_ = nbytes_ * size_ <= view.tuning.flat_bytes && nbytes_ <= kMaxChunk;
  is_flat_ = is_inline_ || (is_flat_ && size_ != 2);
  lap_bytes = view.lap_bytes(nbytes_);
  if (is_flat_) return;
  choose_stream(view);
  const bool may_ask = spec.kind == MPISTRAT_ALLREDUCE && size_ > 1;
  plans_late_ = may_ask && nbytes_ >= kProbeBytes && !view.regions->empty();
  if (!plans_late_) plan(view);
  before_ = plans_late_ || (may_ask && plan_.asks);
  chunks_ = num_pieces(nbytes_, chunk_bytes_);
  is_whole_ = size_ == 2 && nbytes_ <= view.tuning.whole_bytes;
  go_by_slots();
}

// Plan the call, once it is known which arrays are registered, or none can be.
void Reduction::plan(const NodeView& view) {
  const bool can_reach = may_read_peers(view);
  if (view.choices && nbytes_ >= kTimedBytes) {
    choice_ = &view.choices[reads_in_place_ + 2 * writes_in_place_];
    plan_ = choice_->plan(nbytes_, can_reach);
  } else {
    plan_.asks = plan_.would_read = can_reach;
  }
}

Reduction::Slice Reduction::slice(int64_t chunk, int of) const {
  const int64_t nbytes = piece_bytes(nbytes_, chunk_bytes_, chunk);
  // Whole cache lines, so that no two ranks write to the same one.
  const int64_t lines = num_pieces(nbytes, kCacheLine);
  const int64_t each = num_pieces(lines, size_) * static_cast<int64_t>(kCacheLine);
  return {std::min(of * each, nbytes), std::min((of + 1) * each, nbytes)};
}

void Reduction::produce(const NodeView& view, int64_t step) {
  const bool is_begin = plan_.is_timed && step == 0;
  if (is_begin) spent_ns_ = now_ns();
  bring_or_publish(view, step);
  if (is_begin) spent_ns_ = now_ns() - spent_ns_;
}

int64_t Reduction::slot_bytes(const NodeView&, int64_t step) const {
  if (is_flat_) return is_inline_ ? 0 : nbytes_;
  if (step < before_) return AddressExchange::slot_bytes(step);
  if (reads_peers_ || (reads_in_place_ && writes_in_place_)) return 0;
  return piece_bytes(nbytes_, chunk_bytes_, step - before_);
}

void Reduction::bring_or_publish(const NodeView& view, int64_t step) {
  if (is_flat_) {
    Line& line = view.memory->controls()[view.rank].lines[view.sequence & 1];
    send_.copy_out(0, is_inline_ ? line.payload : view.slot(view.rank), nbytes_);
  } else if (step < before_) {
    if (step == 0) addresses_.publish(view, &send_, &recv_);
    if (step == 1) AddressExchange::answer(view, can_read_);
  } else if (!reads_peers_) {
    bring(view, step - before_);
  }
}

void Reduction::consume(const NodeView& view, int64_t step) {
  if (is_flat_) {
    if (wants(view.rank)) reduce_flat(view);
    return;
  }
  if (step == 0 && (plan_.is_timed || plans_late_)) began_ns_ = now_ns();
  if (step < before_) prepare(view, step);
  if (step == 0 && choice_) choice_->count(nbytes_);
  if (reads_peers_) read_peers(view, step);
  if (step >= before_ && !reads_peers_) reduce_chunk(view, step - before_);
  if (plan_.is_timed && step + 1 == steps && !is_partial && !(reads_in_place_ && writes_in_place_))
    choice_->note(nbytes_, algorithm(), spent_ns_ + now_ns() - began_ns_);
}

void Reduction::reduce_chunk(const NodeView& view, int64_t chunk) {
  if (is_whole_) {
    if (wants(view.rank)) reduce_whole(view, chunk);
    return;
  }
  if (chunk > 0 && !writes_in_place_ && wants(view.rank)) take(view, chunk - 1);
  if (chunk < chunks_) reduce_slice(view, chunk);
}

// Whether results are written past the caches, which saves that memory is read before it is
// written. Measured on one AMD EPYC with 32 MiB of cache, 2 ranks, registered, shares of a memcpy's
// speed: apart at 16 MiB 0.82 to 0.96 through the caches, 0.94 to 1.09 past them; one result for
// both, us: 4 MiB 118 and 172, 8 MiB 530 and 400, 16 MiB 1800 and 1250. In place the
// results' lines have just been read as sources: at 64 MiB 1.46 to 1.7 against 0.81 to 1.0.
void Reduction::choose_stream(const NodeView& view) {
  const bool is_direct = reads_in_place_ && writes_in_place_;
  if (is_direct && is_in_place(view)) {
    stream_ = 0;
  } else {
    stream_ = nbytes_ >= (is_apart() ? view.apart_stream_bytes : view.tuning.stream_bytes);
  }
}

// Whether this rank's result is not where its source is.
bool Reduction::is_apart() const {
  return spec_.num_send > 0 && spec_.num_recv > 0 && spec_.send[0].data != spec_.recv[0].data;
}

void Reduction::go_by_slots() { steps = before_ + chunks_ + !is_whole_; }

// Whether private arrays may be worth to be read where they are. Of those that are streamed each
// slice would come from memory twice: for the rank that reduces it, and for the one that copies it.
bool Reduction::may_read_peers(const NodeView& view) const {
  const bool is_unlikely = nbytes_ >= view.tuning.stream_bytes && !view.choices;
  return nbytes_ >= view.tuning.remote_bytes && !is_unlikely && view.peer_memory->is_open();
}

// Find what all ranks can do. All read the same slots, and so come to the same answer.
//
// What is reduced is read again, by the other ranks, and so stays in the caches, if it fits: at
// 64 MiB through them and past them are 0.81 and 0.79 of a memcpy's speed where the processors
// share a cache, and 0.56 and 0.66 where they do not (a probe, sides in turn).
void Reduction::prepare(const NodeView& view, int64_t step) {
  if (step == 0) {
    look(view);
  } else if (!reads_peers_) {
    reads_peers_ = AddressExchange::do_all_agree(view);
    if (plan_.is_decision) choice_->decide(nbytes_, reads_peers_);
    if (!reads_peers_) return;
    steps = has_one_result(view) ? 3 : 4;
    stream_ = is_apart() && nbytes_ >= view.tuning.stream_bytes;
  }
}

void Reduction::look(const NodeView& view) {
  const AddressExchange::Found found = addresses_.look(view);
  reads_in_place_ = found.maps_sends;
  writes_in_place_ = found.maps_recvs;
  if (plans_late_) plan(view);
  if (found.can_read && plan_.asks && !(reads_in_place_ && writes_in_place_)) {
    before_ = 2;
    can_read_ = plan_.would_read && AddressExchange::try_to_read(view, true);
  }
  // These hold if that comes to nothing, too.
  is_whole_ = is_whole_ && !reads_in_place_ && !writes_in_place_;
  if (reads_in_place_ && writes_in_place_) chunk_bytes_ = nbytes_;  // nothing to keep in caches
  choose_stream(view);
  chunks_ = num_pieces(nbytes_, chunk_bytes_);
  go_by_slots();
}

int64_t Reduction::slice_begin(int of) const {
  const int64_t lines = num_pieces(num_pieces(nbytes_, kCacheLine), size_);
  return std::min(of * lines * static_cast<int64_t>(kCacheLine), nbytes_);
}

void Reduction::read_peers(const NodeView& view, int64_t step) {
  if (step == 1) {
    is_partial = !reduction_.reduce(view, &send_, &recv_, slice_begin(view.rank),
                                    slice_begin(view.rank + 1), 0, stream_);
  } else if (step == 2 && steps > 3) {
    const auto slice = [&](int of) {
      const int64_t begin = slice_begin(of);
      return PeerReadCopy::Range{begin, slice_begin(of + 1) - begin, begin};
    };
    is_partial = !copy_.copy_results(view, &recv_, slice, stream_);
  }
}

void Reduction::reduce(const NodeView& view, void* const* to, int num_to, const void* const* from,
                       int64_t nbytes, int stream) const {
  mpistrat_reduce(to, num_to, from, view.size, static_cast<size_t>(nbytes / itemsize_), spec_.dtype,
                  spec_.op, spec_.divisor, stream);
}

void Reduction::reduce_flat(const NodeView& view) {
  for (int of = 0; of < size_; ++of)
    view.sources[of] = is_inline_ ? view.line(of, view.sequence).payload : view.slot(of);
  if (void* to = recv_.contiguous(0, nbytes_)) {
    reduce(view, &to, 1, view.sources, nbytes_, 0);
    return;
  }
  alignas(kCacheLine) uint8_t total[MPISTRAT_INLINE_BYTES];
  void* into = is_inline_ ? total : view.scratch;
  reduce(view, &into, 1, view.sources, nbytes_, 0);
  recv_.copy_in(0, into, nbytes_, false);
}

void Reduction::bring(const NodeView& view, int64_t chunk) {
  if (reads_in_place_ || chunk >= chunks_) return;
  const int64_t start = offset(chunk), nbytes = piece_bytes(nbytes_, chunk_bytes_, chunk);
  const Slice mine = is_whole_ ? Slice{nbytes, nbytes} : slice(chunk, view.rank);
  uint8_t* slot = view.slot(view.rank);  // the own slice is reduced from where it is
  send_.copy_out(start, slot, mine.begin, plan_.streams_slots);
  send_.copy_out(start + mine.end, slot + mine.end, nbytes - mine.end, plan_.streams_slots);
}

const uint8_t* Reduction::source(const NodeView& view, int64_t chunk, int of, Slice part) {
  if (reads_in_place_) return view.peers[of].send + offset(chunk) + part.begin;
  if (of != view.rank) return view.slot(of) + part.begin;
  // What is one's own is read from where it is, which is faster than from the slot. But where both
  // ranks reduce a whole chunk of one shared array in place, the other may have written it by now.
  const uint8_t* own = send_.contiguous(offset(chunk) + part.begin, part.nbytes());
  const bool may_change = is_whole_ && view.regions->find(own, part.nbytes()).region >= 0;
  return may_change ? view.slot(of) + part.begin : own;
}

// Call `function(part)` for each part of `all` that lies in one piece of this rank's own source.
template <class Function>
void Reduction::for_each_part(int64_t chunk, Slice all, Function function) {
  Slice part{all.begin, all.begin};
  send_.for_each(offset(chunk) + all.begin, all.nbytes(), [&](uint8_t*, int64_t nbytes) {
    part = {part.end, part.end + nbytes};
    function(part);
  });
}

void Reduction::reduce_slice(const NodeView& view, int64_t chunk) {
  const Slice mine = slice(chunk, view.rank);
  for_each_part(chunk, mine, [&](Slice part) {
    for (int of = 0; of < size_; ++of) view.sources[of] = source(view, chunk, of, part);
    if (writes_in_place_)
      reduce_to_all(view, chunk, part);
    else
      reduce_to_result(view, chunk, part, view.slot(view.rank) + part.begin);
  });
}

void Reduction::reduce_to_all(const NodeView& view, int64_t chunk, Slice part) {
  int count = 0;
  for (int of = 0; of < size_; ++of) {
    void* to = view.peers[of].recv + offset(chunk) + part.begin;
    if (count == 0 || to != view.targets[count - 1])  // one copy a node, or one each
      view.targets[count++] = to;
  }
  reduce(view, view.targets, count, view.sources, part.nbytes(), stream_);
}

void Reduction::reduce_to_result(const NodeView& view, int64_t chunk, Slice part, uint8_t* result) {
  const int64_t at = offset(chunk) + part.begin;
  uint8_t* own = wants(view.rank) ? recv_.contiguous(at, part.nbytes()) : nullptr;
  if (own) {
    // Of the two, what goes through the caches comes first.
    const bool is_own_past = stream_ != 0, is_slot_past = plan_.streams_slots;
    void* both[] = {own, result};
    if (is_own_past && !is_slot_past) std::swap(both[0], both[1]);
    const int stream = !is_own_past && !is_slot_past ? MPISTRAT_STREAM_NONE
                       : is_own_past && is_slot_past ? MPISTRAT_STREAM_ALL
                                                     : MPISTRAT_STREAM_REST;
    reduce(view, both, 2, view.sources, part.nbytes(), stream);
    return;
  }
  void* to = result;
  reduce(view, &to, 1, view.sources, part.nbytes(), MPISTRAT_STREAM_NONE);
  if (wants(view.rank)) recv_.copy_in(at, result, part.nbytes(), stream_);
}

void Reduction::reduce_whole(const NodeView& view, int64_t chunk) {
  const Slice all{0, piece_bytes(nbytes_, chunk_bytes_, chunk)};
  for_each_part(chunk, all, [&](Slice part) {
    for (int of = 0; of < size_; ++of) view.sources[of] = source(view, chunk, of, part);
    const int64_t at = offset(chunk) + part.begin;
    void* to = recv_.contiguous(at, part.nbytes());
    void* into = to ? to : view.scratch;
    reduce(view, &into, 1, view.sources, part.nbytes(), to ? stream_ : 0);
    if (!to) recv_.copy_in(at, into, part.nbytes(), stream_);
  });
}

void Reduction::take(const NodeView& view, int64_t chunk) {
  for (int i = 1; i < size_; ++i) {
    const int of = (view.rank + i) % size_;  // each rank begins with another one's memory
    const Slice theirs = slice(chunk, of);
    if (theirs.nbytes() > 0)
      recv_.copy_in(offset(chunk) + theirs.begin, view.last_slot(of) + theirs.begin,
                    theirs.nbytes(), stream_);
  }
}

ReduceScatter::ReduceScatter(const MpistratSpec& spec, const NodeView& view)
    : spec_(spec),
      send_(spec.send, spec.num_send),
      recv_(spec.recv, spec.num_recv),
      reduction_(spec) {
  part_bytes_ = view.part_bytes(most_bytes(view));
  steps = std::max<int64_t>(num_pieces(most_bytes(view), part_bytes_), 1);
  lap_bytes = view.lap_bytes(view.size * most_bytes(view));
}

int64_t ReduceScatter::most_bytes(const NodeView& view) const {
  return *std::max_element(spec_.send_bytes, spec_.send_bytes + view.size);
}

bool ReduceScatter::read_peers(const NodeView& view) {
  int64_t begin = 0;
  for (int before = 0; before < view.rank; ++before) begin += spec_.send_bytes[before];
  const int64_t end = begin + spec_.send_bytes[view.rank];
  return reduction_.reduce(view, &send_, &recv_, begin, end, begin, 0);
}

void ReduceScatter::produce(const NodeView& view, int64_t step) {
  int64_t block = 0;
  for (int of = 0; of < view.size; block += spec_.send_bytes[of++]) {
    const int64_t n = piece_bytes(spec_.send_bytes[of], part_bytes_, step);
    const int64_t at = block + step * part_bytes_;
    if (n > 0) send_.copy_out(at, view.slot(view.rank) + of * part_bytes_, n);
  }
}

void ReduceScatter::consume(const NodeView& view, int64_t step) {
  const int64_t n = piece_bytes(spec_.send_bytes[view.rank], part_bytes_, step);
  if (n == 0) return;
  for (int of = 0; of < view.size; ++of) view.sources[of] = view.slot(of) + view.rank * part_bytes_;
  void* to = recv_.contiguous(step * part_bytes_, n);
  void* into = to ? to : view.scratch;
  mpistrat_reduce(&into, 1, view.sources, view.size,
                  static_cast<size_t>(n) / mpistrat_itemsize(spec_.dtype), spec_.dtype, spec_.op,
                  spec_.divisor, 0);
  if (!to) recv_.copy_in(step * part_bytes_, into, n, false);
}

}  // namespace mpistrat
