#include "address_exchange.h"

#include <algorithm>

#include "../regions.h"
#include "peer_memory.h"

namespace mpistrat {
namespace {

// What a rank says of its arrays; its pieces and counts follow.
struct ArrayAddresses {
  Address send, recv;
  int32_t num_send, num_recv;  // -1: too many to say
};

const MpistratPiece* pieces_of(const ArrayAddresses* theirs) {
  return reinterpret_cast<const MpistratPiece*>(theirs + 1);
}

int64_t most_pieces(int size) {
  const auto taken = static_cast<int64_t>(sizeof(ArrayAddresses) + sizeof(int64_t) * size);
  return (kAddressBytes - taken) / static_cast<int64_t>(sizeof(MpistratPiece));
}

Address find(const NodeView& view, Pieces* pieces) {
  const int64_t nbytes = pieces->nbytes();
  return view.regions->find(pieces->contiguous(0, nbytes), nbytes);
}

bool can_read(const NodeView& view, int rank, Pieces* pieces) {
  return view.peer_memory->can_read(rank, pieces);
}

}  // namespace

void AddressExchange::publish(const NodeView& view, Pieces* send, Pieces* recv) const {
  auto* mine = reinterpret_cast<ArrayAddresses*>(view.addresses(view.rank));
  mine->send = find(view, send);
  mine->recv = find(view, recv);
  const bool fits = spec_.num_send + spec_.num_recv <= most_pieces(view.size);
  mine->num_send = fits ? spec_.num_send : -1;
  mine->num_recv = spec_.num_recv;
  if (!fits) return;
  auto* pieces = reinterpret_cast<MpistratPiece*>(mine + 1);
  pieces = std::copy_n(spec_.send, spec_.num_send, pieces);
  pieces = std::copy_n(spec_.recv, spec_.num_recv, pieces);
  if (spec_.kind == MPISTRAT_SCATTER || spec_.kind == MPISTRAT_ALLTOALL)
    std::copy_n(spec_.send_bytes, view.size, reinterpret_cast<int64_t*>(pieces));
}

AddressExchange::Found AddressExchange::look(const NodeView& view) const {
  Found found;
  for (int rank = 0; rank < view.size; ++rank) {
    const auto* theirs = reinterpret_cast<const ArrayAddresses*>(view.addresses(rank));
    Peer& peer = view.peers[rank];
    peer.send = view.regions->resolve(theirs->send, rank);
    peer.recv = view.regions->resolve(theirs->recv, rank);
    found.maps_sends = found.maps_sends && peer.send;
    found.maps_recvs = found.maps_recvs && peer.recv;
    found.can_read = found.can_read && theirs->num_send >= 0;
    if (theirs->num_send < 0) continue;
    const MpistratPiece* pieces = pieces_of(theirs);
    peer.sends = Pieces(pieces, theirs->num_send);
    peer.recvs = Pieces(pieces + theirs->num_send, theirs->num_recv);
    peer.send_bytes =
        reinterpret_cast<const int64_t*>(pieces + theirs->num_send + theirs->num_recv);
  }
  found.can_read = found.can_read && (view.peer_memory->is_open() || found.maps_sends);
  return found;
}

// Both ends of each piece: what is between them is memory of the same kind.
bool AddressExchange::try_to_read(const NodeView& view, bool reads_results) {
  for (int rank = 0; rank < view.size; ++rank) {
    Peer& peer = view.peers[rank];
    if (rank == view.rank) continue;
    if (!peer.send && !can_read(view, rank, &peer.sends)) return false;
    if (reads_results && !peer.recv && !can_read(view, rank, &peer.recvs)) return false;
  }
  return true;
}

void AddressExchange::answer(const NodeView& view, bool can_read) {
  *view.slot(view.rank) = can_read;
}

bool AddressExchange::do_all_agree(const NodeView& view) {
  for (int rank = 0; rank < view.size; ++rank)
    if (!*view.slot(rank)) return false;
  return true;
}

bool AddressExchange::copy_source(const NodeView& view, int of, int64_t at, int64_t nbytes,
                                  void* to, int stream) {
  Peer& peer = view.peers[of];
  if (!peer.send) return view.peer_memory->read(of, &peer.sends, at, nbytes, to);
  mpistrat_copy(to, peer.send + at, static_cast<size_t>(nbytes), stream);
  return true;
}

bool AddressExchange::copy_result(const NodeView& view, int of, int64_t at, int64_t nbytes,
                                  void* to, int stream) {
  Peer& peer = view.peers[of];
  if (!peer.recv) return view.peer_memory->read(of, &peer.recvs, at, nbytes, to);
  mpistrat_copy(to, peer.recv + at, static_cast<size_t>(nbytes), stream);
  return true;
}

}  // namespace mpistrat
