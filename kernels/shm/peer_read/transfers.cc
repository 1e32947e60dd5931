#include "transfers.h"

#include <algorithm>

#include "../../common/backoff.h"
#include "peer_memory.h"

namespace mpistrat {
namespace {

// Between looks at the clock: of reductions, and of copies, which the kernel makes in parts of 4
// MiB.
constexpr int64_t kPortionBytes = 1 << 20, kCopyBytes = 4 << 20;

// What is read through the kernel to be reduced goes to this rank's scratch memory, a part for each
// peer.
int64_t part_bytes(const NodeView& view) {
  bool maps_all = true;
  for (int rank = 0; rank < view.size; ++rank) maps_all = maps_all && view.peers[rank].send;
  if (maps_all) return kPortionBytes;
  const int64_t line = static_cast<int64_t>(kCacheLine);
  return kMaxChunk / (view.size - 1) / line * line;
}

// A process that cannot be read any more has ended, which others notice; or memory is short.
bool try_again() {
  yield_core();
  return false;
}

}  // namespace

bool RangeReduction::find_sources(const NodeView& view, int64_t at, int64_t nbytes) const {
  uint8_t* scratch = view.scratch;
  for (int rank = 0; rank < view.size; ++rank) {
    if (rank == view.rank) continue;
    Peer& peer = view.peers[rank];
    view.sources[rank] = peer.send ? peer.send + at : scratch;
    if (peer.send) continue;
    if (!view.peer_memory->read(rank, &peer.sends, at, nbytes, scratch)) return false;
    scratch += part_bytes(view);
  }
  return true;
}

bool RangeReduction::reduce(const NodeView& view, Pieces* send, Pieces* recv, int64_t begin,
                            int64_t end, int64_t shift, int stream) {
  int64_t at = begin + done_;
  int64_t left = std::min(part_bytes(view), end - at);
  if (left > 0 && !find_sources(view, at, left)) return try_again();
  while (left > 0) {
    const Stretch from = send->stretch(at), to = recv->stretch(at - shift);
    const int64_t n = std::min({left, from.nbytes, to.nbytes});
    view.sources[view.rank] = from.data;
    void* into = to.data;
    mpistrat_reduce(&into, 1, view.sources, view.size,
                    static_cast<size_t>(n) / mpistrat_itemsize(spec_.dtype), spec_.dtype, spec_.op,
                    spec_.divisor, stream);
    for (int rank = 0; rank < view.size; ++rank)
      view.sources[rank] = static_cast<const uint8_t*>(view.sources[rank]) + n;
    at += n;
    left -= n;
  }
  done_ = at - begin;
  return at >= end;
}

bool RangeCopy::copy(const NodeView& view, int of, Range range, Pieces* own, Pieces* recv,
                     bool is_result, int stream) {
  const int64_t portion = std::min(kCopyBytes, range.nbytes - done_);
  int64_t from = range.from + done_;
  bool is_copied = true;
  recv->for_each(range.to + done_, portion, [&](uint8_t* to, int64_t n) {
    if (own)
      own->copy_out(from, to, n, stream);
    else if (is_result)
      is_copied = AddressExchange::copy_result(view, of, from, n, to, stream) && is_copied;
    else
      is_copied = AddressExchange::copy_source(view, of, from, n, to, stream) && is_copied;
    from += n;
  });
  if (!is_copied) return try_again();
  done_ += portion;
  if (done_ < range.nbytes) return false;
  done_ = 0;
  return true;
}

}  // namespace mpistrat
