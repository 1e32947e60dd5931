#include "pulling.h"

#include <sched.h>

#include <algorithm>

#include "remote.h"

namespace mpistrat {
namespace {

constexpr int64_t kPortionBytes = 1 << 20;  // between looks at the clock

// What is read through the kernel to be reduced goes to this rank's scratch memory, a part for each
// peer.
int64_t part_bytes(const Place& place) {
  bool maps_all = true;
  for (int rank = 0; rank < place.size; ++rank) maps_all = maps_all && place.peers[rank].send;
  if (maps_all) return kPortionBytes;
  const int64_t line = static_cast<int64_t>(kCacheLine);
  return kMaxChunk / (place.size - 1) / line * line;
}

// A process that cannot be read any more has ended, which others notice; or memory is short.
bool try_again() {
  sched_yield();
  return false;
}

}  // namespace

bool PulledReduction::find_sources(const Place& place, int64_t at, int64_t nbytes) const {
  uint8_t* scratch = place.scratch;
  for (int rank = 0; rank < place.size; ++rank) {
    if (rank == place.rank) continue;
    Peer& peer = place.peers[rank];
    place.sources[rank] = peer.send ? peer.send + at : scratch;
    if (peer.send) continue;
    if (!place.remote->read(rank, &peer.sends, at, nbytes, scratch)) return false;
    scratch += part_bytes(place);
  }
  return true;
}

bool PulledReduction::reduce(const Place& place, Pieces* send, Pieces* recv, int64_t begin,
                             int64_t end, int64_t shift, int stream) {
  int64_t at = begin + done_;
  int64_t left = std::min(part_bytes(place), end - at);
  if (left > 0 && !find_sources(place, at, left)) return try_again();
  while (left > 0) {
    const Stretch from = send->stretch(at), to = recv->stretch(at - shift);
    const int64_t n = std::min({left, from.nbytes, to.nbytes});
    place.sources[place.rank] = from.data;
    void* into = to.data;
    mpistrat_reduce(&into, 1, place.sources, place.size,
                    static_cast<size_t>(n) / mpistrat_itemsize(spec_.dtype), spec_.dtype, spec_.op,
                    spec_.divisor, stream);
    for (int rank = 0; rank < place.size; ++rank)
      place.sources[rank] = static_cast<const uint8_t*>(place.sources[rank]) + n;
    at += n;
    left -= n;
  }
  done_ = at - begin;
  return at >= end;
}

bool PulledCopy::copy(const Place& place, int of, Range range, Pieces* own, Pieces* recv,
                      bool is_result, int stream) {
  const int64_t portion = std::min(kPortionBytes, range.nbytes - done_);
  int64_t from = range.from + done_;
  bool is_copied = true;
  recv->for_each(range.to + done_, portion, [&](uint8_t* to, int64_t n) {
    if (own)
      own->copy_out(from, to, n);
    else if (is_result)
      is_copied = Offers::copy_result(place, of, from, n, to, stream) && is_copied;
    else
      is_copied = Offers::copy_source(place, of, from, n, to) && is_copied;
    from += n;
  });
  if (!is_copied) return try_again();
  done_ += portion;
  if (done_ < range.nbytes) return false;
  done_ = 0;
  return true;
}

}  // namespace mpistrat
