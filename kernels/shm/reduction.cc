#include "reduction.h"

#include <utility>

#include "remote.h"
#include "waiting.h"

namespace mpistrat {
namespace {

constexpr int64_t kProbeBytes = 128 << 10;  // shorter arrays gain nothing from being in place

// Whether all results are one array, of which each rank writes its slice.
bool has_one_result(const Place& place) {
  for (int rank = 0; rank < place.size; ++rank)
    if (!place.peers[rank].recv || place.peers[rank].recv != place.peers[0].recv) return false;
  return true;
}

// Whether every rank's result takes the place of its source.
bool is_in_place(const Place& place) {
  for (int rank = 0; rank < place.size; ++rank)
    if (place.peers[rank].recv != place.peers[rank].send) return false;
  return true;
}

}  // namespace

Reduction::Reduction(const MpistratSpec& spec, const Place& place)
    : spec_(spec),
      send_(spec.send, spec.num_send),
      recv_(spec.recv, spec.num_recv),
      nbytes_(send_.nbytes()),
      chunk_bytes_(place.tuning.chunk_bytes),
      itemsize_(static_cast<int64_t>(mpistrat_itemsize(spec.dtype))),
      size_(place.size),
      offers_(spec),
      reduction_(spec) {
  is_inline_ = spec.crosses && nbytes_ <= MPISTRAT_INLINE_BYTES;
  is_flat_ = nbytes_ * size_ <= place.tuning.flat_bytes && nbytes_ <= kMaxChunk;
  is_flat_ = is_inline_ || (is_flat_ && size_ != 2);
  lap_bytes = place.lap_bytes(nbytes_);
  if (is_flat_) return;
  choose_stream(place);
  const bool may_ask = spec.kind == MPISTRAT_ALLREDUCE && size_ > 1;
  plans_late_ = may_ask && nbytes_ >= kProbeBytes && !place.regions->empty();
  if (!plans_late_) plan(place);
  before_ = plans_late_ || (may_ask && plan_.asks);
  chunks_ = num_pieces(nbytes_, chunk_bytes_);
  is_whole_ = size_ == 2 && nbytes_ <= place.tuning.whole_bytes;
  go_by_slots();
}

// Plan the call, once it is known which arrays are registered, or none can be.
void Reduction::plan(const Place& place) {
  const bool can_reach = may_pull(place);
  if (place.ways && nbytes_ >= kTimedBytes) {
    ways_ = &place.ways[reads_in_place_ + 2 * writes_in_place_];
    plan_ = ways_->plan(nbytes_, can_reach);
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

void Reduction::produce(const Place& place, int64_t step) {
  const bool is_begin = plan_.is_timed && step == 0;
  if (is_begin) spent_ns_ = now_ns();
  bring_or_offer(place, step);
  if (is_begin) spent_ns_ = now_ns() - spent_ns_;
}

int64_t Reduction::slot_bytes(const Place&, int64_t step) const {
  if (is_flat_) return is_inline_ ? 0 : nbytes_;
  if (step < before_) return Offers::slot_bytes(step);
  if (pulls_ || (reads_in_place_ && writes_in_place_)) return 0;
  return piece_bytes(nbytes_, chunk_bytes_, step - before_);
}

void Reduction::bring_or_offer(const Place& place, int64_t step) {
  if (is_flat_) {
    Line& line = place.memory->controls()[place.rank].lines[place.sequence & 1];
    send_.copy_out(0, is_inline_ ? line.payload : place.slot(place.rank), nbytes_);
  } else if (step < before_) {
    if (step == 0) offers_.offer(place, &send_, &recv_);
    if (step == 1) Offers::answer(place, can_read_);
  } else if (!pulls_) {
    bring(place, step - before_);
  }
}

void Reduction::consume(const Place& place, int64_t step) {
  if (is_flat_) {
    if (wants(place.rank)) reduce_flat(place);
    return;
  }
  if (step == 0 && (plan_.is_timed || plans_late_)) began_ns_ = now_ns();
  if (step < before_) prepare(place, step);
  if (step == 0 && ways_) ways_->count(nbytes_);
  if (pulls_) pull(place, step);
  if (step >= before_ && !pulls_) reduce_chunk(place, step - before_);
  if (plan_.is_timed && step + 1 == steps && !is_partial && !(reads_in_place_ && writes_in_place_))
    ways_->note(nbytes_, way(), spent_ns_ + now_ns() - began_ns_);
}

void Reduction::reduce_chunk(const Place& place, int64_t chunk) {
  if (is_whole_) {
    if (wants(place.rank)) reduce_whole(place, chunk);
    return;
  }
  if (chunk > 0 && !writes_in_place_ && wants(place.rank)) take(place, chunk - 1);
  if (chunk < chunks_) reduce_slice(place, chunk);
}

// Whether results are written past the caches, which saves that memory is read before it is
// written. Measured on one AMD EPYC with 32 MiB of cache, 2 ranks, registered, shares of a memcpy's
// speed: apart at 16 MiB 0.82 to 0.96 through the caches, 0.94 to 1.09 past them; one result for
// both, us: 4 MiB 118 and 172, 8 MiB 530 and 400, 16 MiB 1800 and 1250. In place the
// results' lines have just been read as sources: at 64 MiB 1.46 to 1.7 against 0.81 to 1.0.
void Reduction::choose_stream(const Place& place) {
  const bool is_direct = reads_in_place_ && writes_in_place_;
  if (is_direct && is_in_place(place)) {
    stream_ = 0;
  } else {
    stream_ = nbytes_ >= (is_apart() ? place.apart_stream_bytes : place.tuning.stream_bytes);
  }
}

// Whether this rank's result is not where its source is.
bool Reduction::is_apart() const {
  return spec_.num_send > 0 && spec_.num_recv > 0 && spec_.send[0].data != spec_.recv[0].data;
}

void Reduction::go_by_slots() { steps = before_ + chunks_ + !is_whole_; }

// Whether private arrays may be worth to be read where they are. Of those that are streamed each
// slice would come from memory twice: for the rank that reduces it, and for the one that copies it.
bool Reduction::may_pull(const Place& place) const {
  const bool is_unlikely = nbytes_ >= place.tuning.stream_bytes && !place.ways;
  return nbytes_ >= place.tuning.remote_bytes && !is_unlikely && place.remote->is_open();
}

// Find a way that all ranks can go. All read the same slots, and so come to the same answer.
//
// What is reduced is read again, by the other ranks, and so stays in the caches, if it fits: at
// 64 MiB through them and past them are 0.81 and 0.79 of a memcpy's speed where the processors
// share a cache, and 0.56 and 0.66 where they do not (a probe, sides in turn).
void Reduction::prepare(const Place& place, int64_t step) {
  if (step == 0) {
    look(place);
  } else if (!pulls_) {
    pulls_ = Offers::do_all_agree(place);
    if (plan_.is_decision) ways_->decide(nbytes_, pulls_);
    if (!pulls_) return;
    steps = has_one_result(place) ? 3 : 4;
    stream_ = is_apart() && nbytes_ >= place.tuning.stream_bytes;
  }
}

void Reduction::look(const Place& place) {
  const Offers::Found found = offers_.look(place);
  reads_in_place_ = found.maps_sends;
  writes_in_place_ = found.maps_recvs;
  if (plans_late_) plan(place);
  if (found.can_read && plan_.asks && !(reads_in_place_ && writes_in_place_)) {
    before_ = 2;
    can_read_ = plan_.would_read && Offers::try_to_read(place, true);
  }
  // These hold if that comes to nothing, too.
  is_whole_ = is_whole_ && !reads_in_place_ && !writes_in_place_;
  if (reads_in_place_ && writes_in_place_) chunk_bytes_ = nbytes_;  // nothing to keep in caches
  choose_stream(place);
  chunks_ = num_pieces(nbytes_, chunk_bytes_);
  go_by_slots();
}

int64_t Reduction::slice_begin(int of) const {
  const int64_t lines = num_pieces(num_pieces(nbytes_, kCacheLine), size_);
  return std::min(of * lines * static_cast<int64_t>(kCacheLine), nbytes_);
}

void Reduction::pull(const Place& place, int64_t step) {
  if (step == 1) {
    is_partial = !reduction_.reduce(place, &send_, &recv_, slice_begin(place.rank),
                                    slice_begin(place.rank + 1), 0, stream_);
  } else if (step == 2 && steps > 3) {
    const auto slice = [&](int of) {
      const int64_t begin = slice_begin(of);
      return PulledCopy::Range{begin, slice_begin(of + 1) - begin, begin};
    };
    is_partial = !copy_.copy_results(place, &recv_, slice, stream_);
  }
}

void Reduction::reduce(const Place& place, void* const* to, int num_to, const void* const* from,
                       int64_t nbytes, int stream) const {
  mpistrat_reduce(to, num_to, from, place.size, static_cast<size_t>(nbytes / itemsize_),
                  spec_.dtype, spec_.op, spec_.divisor, stream);
}

void Reduction::reduce_flat(const Place& place) {
  for (int of = 0; of < size_; ++of)
    place.sources[of] = is_inline_ ? place.line(of, place.sequence).payload : place.slot(of);
  if (void* to = recv_.contiguous(0, nbytes_)) {
    reduce(place, &to, 1, place.sources, nbytes_, 0);
    return;
  }
  alignas(kCacheLine) uint8_t total[MPISTRAT_INLINE_BYTES];
  void* into = is_inline_ ? total : place.scratch;
  reduce(place, &into, 1, place.sources, nbytes_, 0);
  recv_.copy_in(0, into, nbytes_, false);
}

void Reduction::bring(const Place& place, int64_t chunk) {
  if (reads_in_place_ || chunk >= chunks_) return;
  const int64_t start = offset(chunk), nbytes = piece_bytes(nbytes_, chunk_bytes_, chunk);
  const Slice mine = is_whole_ ? Slice{nbytes, nbytes} : slice(chunk, place.rank);
  uint8_t* slot = place.slot(place.rank);  // the own slice is reduced from where it is
  send_.copy_out(start, slot, mine.begin, plan_.goes_past);
  send_.copy_out(start + mine.end, slot + mine.end, nbytes - mine.end, plan_.goes_past);
}

const uint8_t* Reduction::source(const Place& place, int64_t chunk, int of, Slice part) {
  if (reads_in_place_) return place.peers[of].send + offset(chunk) + part.begin;
  if (of != place.rank) return place.slot(of) + part.begin;
  // What is one's own is read from where it is, which is faster than from the slot. But where both
  // ranks reduce a whole chunk of one shared array in place, the other may have written it by now.
  const uint8_t* own = send_.contiguous(offset(chunk) + part.begin, part.nbytes());
  const bool may_change = is_whole_ && place.regions->find(own, part.nbytes()).region >= 0;
  return may_change ? place.slot(of) + part.begin : own;
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

void Reduction::reduce_slice(const Place& place, int64_t chunk) {
  const Slice mine = slice(chunk, place.rank);
  for_each_part(chunk, mine, [&](Slice part) {
    for (int of = 0; of < size_; ++of) place.sources[of] = source(place, chunk, of, part);
    if (writes_in_place_)
      reduce_to_all(place, chunk, part);
    else
      reduce_to_result(place, chunk, part, place.slot(place.rank) + part.begin);
  });
}

void Reduction::reduce_to_all(const Place& place, int64_t chunk, Slice part) {
  int count = 0;
  for (int of = 0; of < size_; ++of) {
    void* to = place.peers[of].recv + offset(chunk) + part.begin;
    if (count == 0 || to != place.targets[count - 1])  // one copy a node, or one each
      place.targets[count++] = to;
  }
  reduce(place, place.targets, count, place.sources, part.nbytes(), stream_);
}

void Reduction::reduce_to_result(const Place& place, int64_t chunk, Slice part, uint8_t* result) {
  const int64_t at = offset(chunk) + part.begin;
  uint8_t* own = wants(place.rank) ? recv_.contiguous(at, part.nbytes()) : nullptr;
  if (own) {
    // Of the two, what goes through the caches comes first.
    const bool is_own_past = stream_ != 0, is_slot_past = plan_.goes_past;
    void* both[] = {own, result};
    if (is_own_past && !is_slot_past) std::swap(both[0], both[1]);
    const int stream = !is_own_past && !is_slot_past ? MPISTRAT_STREAM_NONE
                       : is_own_past && is_slot_past ? MPISTRAT_STREAM_ALL
                                                     : MPISTRAT_STREAM_REST;
    reduce(place, both, 2, place.sources, part.nbytes(), stream);
    return;
  }
  void* to = result;
  reduce(place, &to, 1, place.sources, part.nbytes(), MPISTRAT_STREAM_NONE);
  if (wants(place.rank)) recv_.copy_in(at, result, part.nbytes(), stream_);
}

void Reduction::reduce_whole(const Place& place, int64_t chunk) {
  const Slice all{0, piece_bytes(nbytes_, chunk_bytes_, chunk)};
  for_each_part(chunk, all, [&](Slice part) {
    for (int of = 0; of < size_; ++of) place.sources[of] = source(place, chunk, of, part);
    const int64_t at = offset(chunk) + part.begin;
    void* to = recv_.contiguous(at, part.nbytes());
    void* into = to ? to : place.scratch;
    reduce(place, &into, 1, place.sources, part.nbytes(), to ? stream_ : 0);
    if (!to) recv_.copy_in(at, into, part.nbytes(), stream_);
  });
}

void Reduction::take(const Place& place, int64_t chunk) {
  for (int i = 1; i < size_; ++i) {
    const int of = (place.rank + i) % size_;  // each rank begins with another one's memory
    const Slice theirs = slice(chunk, of);
    if (theirs.nbytes() > 0)
      recv_.copy_in(offset(chunk) + theirs.begin, place.last_slot(of) + theirs.begin,
                    theirs.nbytes(), stream_);
  }
}

ReduceScatter::ReduceScatter(const MpistratSpec& spec, const Place& place)
    : spec_(spec),
      send_(spec.send, spec.num_send),
      recv_(spec.recv, spec.num_recv),
      reduction_(spec) {
  part_bytes_ = part_bytes(place, most_bytes(place));
  steps = std::max<int64_t>(num_pieces(most_bytes(place), part_bytes_), 1);
  lap_bytes = place.lap_bytes(place.size * most_bytes(place));
}

int64_t ReduceScatter::most_bytes(const Place& place) const {
  return *std::max_element(spec_.send_bytes, spec_.send_bytes + place.size);
}

bool ReduceScatter::pull(const Place& place) {
  int64_t begin = 0;
  for (int before = 0; before < place.rank; ++before) begin += spec_.send_bytes[before];
  const int64_t end = begin + spec_.send_bytes[place.rank];
  return reduction_.reduce(place, &send_, &recv_, begin, end, begin, 0);
}

void ReduceScatter::produce(const Place& place, int64_t step) {
  int64_t block = 0;
  for (int of = 0; of < place.size; block += spec_.send_bytes[of++]) {
    const int64_t n = piece_bytes(spec_.send_bytes[of], part_bytes_, step);
    const int64_t at = block + step * part_bytes_;
    if (n > 0) send_.copy_out(at, place.slot(place.rank) + of * part_bytes_, n);
  }
}

void ReduceScatter::consume(const Place& place, int64_t step) {
  const int64_t n = piece_bytes(spec_.send_bytes[place.rank], part_bytes_, step);
  if (n == 0) return;
  for (int of = 0; of < place.size; ++of)
    place.sources[of] = place.slot(of) + place.rank * part_bytes_;
  void* to = recv_.contiguous(step * part_bytes_, n);
  void* into = to ? to : place.scratch;
  mpistrat_reduce(&into, 1, place.sources, place.size,
                  static_cast<size_t>(n) / mpistrat_itemsize(spec_.dtype), spec_.dtype, spec_.op,
                  spec_.divisor, 0);
  if (!to) recv_.copy_in(step * part_bytes_, into, n, false);
}

}  // namespace mpistrat
