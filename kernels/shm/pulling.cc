#include "pulling.h"

#include <sched.h>

#include <algorithm>

#include "remote.h"

namespace mpistrat {
namespace {

constexpr int64_t kPortionBytes = 1 << 20;  // between looks at the clock

// What a rank says of its arrays, in its slot; the pieces themselves follow.
struct Offer {
  Address send, recv;
  int32_t num_send, num_recv;  // -1: too many to say
};
constexpr int64_t kMostPieces = (kMaxChunk - sizeof(Offer)) / sizeof(MpistratPiece);

const MpistratPiece* pieces_of(const Offer* offer) {
  return reinterpret_cast<const MpistratPiece*>(offer + 1);
}

const Offer* offer_of(const Place& place, int rank) {
  return reinterpret_cast<const Offer*>(place.slot(rank));
}

}  // namespace

void Pull::offer(const Place& place, Pieces* send, Pieces* recv) const {
  auto* mine = reinterpret_cast<Offer*>(place.slot(place.rank));
  mine->send = place.regions->find(send->contiguous(0, nbytes_), nbytes_);
  mine->recv = place.regions->find(recv->contiguous(0, nbytes_), nbytes_);
  const bool fits = spec_.num_send + spec_.num_recv <= kMostPieces;
  mine->num_send = fits ? spec_.num_send : -1;
  mine->num_recv = spec_.num_recv;
  if (!fits) return;
  auto* pieces = reinterpret_cast<MpistratPiece*>(mine + 1);
  std::copy_n(spec_.send, spec_.num_send, pieces);
  std::copy_n(spec_.recv, spec_.num_recv, pieces + spec_.num_send);
}

Pull::Found Pull::look(const Place& place) const {
  Found found{true, true, true};
  for (int rank = 0; rank < place.size; ++rank) {
    const Offer* offer = offer_of(place, rank);
    Peer& peer = place.peers[rank];
    peer.send = place.regions->resolve(offer->send, rank);
    peer.recv = place.regions->resolve(offer->recv, rank);
    found.maps_sends = found.maps_sends && peer.send;
    found.maps_recvs = found.maps_recvs && peer.recv;
    found.can_read = found.can_read && offer->num_send >= 0;
    if (offer->num_send < 0) continue;
    peer.sends = Pieces(pieces_of(offer), offer->num_send);
    peer.recvs = Pieces(pieces_of(offer) + offer->num_send, offer->num_recv);
  }
  const bool maps_all = found.maps_sends && found.maps_recvs;
  found.can_read = found.can_read && !maps_all && place.remote->is_open() &&
                   nbytes_ >= place.tuning.remote_bytes;
  return found;
}

// The first and the last byte of each array: what is between them is memory of the same kind.
bool Pull::try_to_read(const Place& place) const {
  uint8_t byte;
  const auto can_read = [&](int rank, Pieces* pieces) {
    return place.remote->read(rank, pieces, 0, 1, &byte) &&
           place.remote->read(rank, pieces, nbytes_ - 1, 1, &byte);
  };
  for (int rank = 0; rank < place.size; ++rank) {
    Peer& peer = place.peers[rank];
    if (rank == place.rank) continue;
    if (!peer.send && !can_read(rank, &peer.sends)) return false;
    if (!peer.recv && !can_read(rank, &peer.recvs)) return false;
  }
  return true;
}

void Pull::answer(const Place& place, bool can_read) { *place.slot(place.rank) = can_read; }

bool Pull::do_all_agree(const Place& place) {
  for (int rank = 0; rank < place.size; ++rank)
    if (!*place.slot(rank)) return false;
  return true;
}

bool Pull::is_one_result(const Place& place) {
  for (int rank = 0; rank < place.size; ++rank)
    if (!place.peers[rank].recv || place.peers[rank].recv != place.peers[0].recv) return false;
  return true;
}

// What is read through the kernel goes to this rank's own result buffers, a part for each peer.
int64_t Pull::portion_bytes(const Place& place) const {
  bool maps_all = true;
  for (int rank = 0; rank < place.size; ++rank) maps_all = maps_all && place.peers[rank].send;
  if (maps_all) return kPortionBytes;
  const int64_t room = static_cast<int64_t>(kResults) * kMaxChunk / (place.size - 1);
  const int64_t line = static_cast<int64_t>(kCacheLine);
  return std::min(room, kMaxChunk) / line * line;
}

bool Pull::find_sources(const Place& place, int64_t at, int64_t nbytes) const {
  uint8_t* scratch = place.memory->buffers(place.size)[place.rank].results[0];
  for (int rank = 0; rank < place.size; ++rank) {
    if (rank == place.rank) continue;
    Peer& peer = place.peers[rank];
    place.sources[rank] = peer.send ? peer.send + at : scratch;
    if (peer.send) continue;
    if (!place.remote->read(rank, &peer.sends, at, nbytes, scratch)) return false;
    scratch += portion_bytes(place);
  }
  return true;
}

bool Pull::reduce(const Place& place, Pieces* send, Pieces* recv, int stream) {
  const int64_t start = begin(place.rank), end = begin(place.rank + 1);
  int64_t at = start + done_;
  int64_t left = std::min(portion_bytes(place), end - at);
  if (left > 0 && !find_sources(place, at, left)) {
    sched_yield();  // that rank's process has ended, which others notice; or memory is short
    return false;
  }
  while (left > 0) {
    const Stretch from = send->stretch(at), to = recv->stretch(at);
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
  done_ = at - start;
  if (at < end) return false;
  done_ = 0;
  return true;
}

bool Pull::take(const Place& place, Pieces* recv, int stream) {
  const int of = (place.rank + 1 + taken_) % place.size;  // each begins with another one's
  const int64_t at = begin(of) + done_, n = std::min(kPortionBytes, begin(of + 1) - at);
  if (n > 0 && !copy(place, of, at, n, recv, stream)) {
    sched_yield();
    return false;
  }
  done_ += n;
  if (at + n < begin(of + 1)) return false;
  done_ = 0;
  return ++taken_ == place.size - 1;
}

bool Pull::copy(const Place& place, int of, int64_t at, int64_t nbytes, Pieces* recv, int stream) {
  Peer& peer = place.peers[of];
  bool is_copied = true;
  recv->for_each(at, nbytes, [&](uint8_t* to, int64_t n) {
    if (peer.recv)
      mpistrat_copy(to, peer.recv + at, static_cast<size_t>(n), stream);
    else
      is_copied = place.remote->read(of, &peer.recvs, at, n, to) && is_copied;
    at += n;
  });
  return is_copied;
}

}  // namespace mpistrat
