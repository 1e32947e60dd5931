#include "offers.h"

#include <algorithm>

#include "remote.h"

namespace mpistrat {
namespace {

// What a rank says of its arrays; its pieces and counts follow.
struct Offer {
  Address send, recv;
  int32_t num_send, num_recv;  // -1: too many to say
};

const MpistratPiece* pieces_of(const Offer* offer) {
  return reinterpret_cast<const MpistratPiece*>(offer + 1);
}

int64_t most_pieces(int size) {
  const auto taken = static_cast<int64_t>(sizeof(Offer) + sizeof(int64_t) * size);
  return (kOfferBytes - taken) / static_cast<int64_t>(sizeof(MpistratPiece));
}

Address find(const Place& place, Pieces* pieces) {
  const int64_t nbytes = pieces->nbytes();
  return place.regions->find(pieces->contiguous(0, nbytes), nbytes);
}

bool can_read(const Place& place, int rank, Pieces* pieces) {
  return place.remote->can_read(rank, pieces);
}

}  // namespace

void Offers::offer(const Place& place, Pieces* send, Pieces* recv) const {
  auto* mine = reinterpret_cast<Offer*>(place.offer(place.rank));
  mine->send = find(place, send);
  mine->recv = find(place, recv);
  const bool fits = spec_.num_send + spec_.num_recv <= most_pieces(place.size);
  mine->num_send = fits ? spec_.num_send : -1;
  mine->num_recv = spec_.num_recv;
  if (!fits) return;
  auto* pieces = reinterpret_cast<MpistratPiece*>(mine + 1);
  pieces = std::copy_n(spec_.send, spec_.num_send, pieces);
  pieces = std::copy_n(spec_.recv, spec_.num_recv, pieces);
  if (spec_.kind == MPISTRAT_SCATTER || spec_.kind == MPISTRAT_ALLTOALL)
    std::copy_n(spec_.send_bytes, place.size, reinterpret_cast<int64_t*>(pieces));
}

Offers::Found Offers::look(const Place& place) const {
  Found found;
  for (int rank = 0; rank < place.size; ++rank) {
    const auto* offer = reinterpret_cast<const Offer*>(place.offer(rank));
    Peer& peer = place.peers[rank];
    peer.send = place.regions->resolve(offer->send, rank);
    peer.recv = place.regions->resolve(offer->recv, rank);
    found.maps_sends = found.maps_sends && peer.send;
    found.maps_recvs = found.maps_recvs && peer.recv;
    found.can_read = found.can_read && offer->num_send >= 0;
    if (offer->num_send < 0) continue;
    const MpistratPiece* pieces = pieces_of(offer);
    peer.sends = Pieces(pieces, offer->num_send);
    peer.recvs = Pieces(pieces + offer->num_send, offer->num_recv);
    peer.send_bytes = reinterpret_cast<const int64_t*>(pieces + offer->num_send + offer->num_recv);
  }
  found.can_read = found.can_read && (place.remote->is_open() || found.maps_sends);
  return found;
}

// Both ends of each piece: what is between them is memory of the same kind.
bool Offers::try_to_read(const Place& place, bool reads_results) {
  for (int rank = 0; rank < place.size; ++rank) {
    Peer& peer = place.peers[rank];
    if (rank == place.rank) continue;
    if (!peer.send && !can_read(place, rank, &peer.sends)) return false;
    if (reads_results && !peer.recv && !can_read(place, rank, &peer.recvs)) return false;
  }
  return true;
}

void Offers::answer(const Place& place, bool can_read) { *place.slot(place.rank) = can_read; }

bool Offers::do_all_agree(const Place& place) {
  for (int rank = 0; rank < place.size; ++rank)
    if (!*place.slot(rank)) return false;
  return true;
}

bool Offers::copy_source(const Place& place, int of, int64_t at, int64_t nbytes, void* to) {
  Peer& peer = place.peers[of];
  if (!peer.send) return place.remote->read(of, &peer.sends, at, nbytes, to);
  mpistrat_copy(to, peer.send + at, static_cast<size_t>(nbytes), 0);
  return true;
}

bool Offers::copy_result(const Place& place, int of, int64_t at, int64_t nbytes, void* to,
                         int stream) {
  Peer& peer = place.peers[of];
  if (!peer.recv) return place.remote->read(of, &peer.recvs, at, nbytes, to);
  mpistrat_copy(to, peer.recv + at, static_cast<size_t>(nbytes), stream);
  return true;
}

}  // namespace mpistrat
