#include "nccl/work/deadlock.h"

#include "nccl/backoff.h"
#include "nccl/communicator.h"
#include "nccl/interface/errors.h"

namespace pretend {
namespace {

constexpr int64_t kLookAtPeersEveryMs = 20;
constexpr int64_t kLastsMs = 300;

bool has_finalized(const Communicator& c, int peer) {
  return c.segment.seat(peer).presence.load(std::memory_order_acquire) == Presence::kFinalized;
}

}  // namespace

DeadlockSearch::~DeadlockSearch() {
  if (is_published_) publish({});
}

bool DeadlockSearch::finds(const Waits& mine, bool is_host_call) {
  const int64_t now = now_ms();
  if (next_look_ms_ == 0) next_look_ms_ = now + kLookAtPeersEveryMs;  // most waits end before
  if (now < next_look_ms_) return false;
  next_look_ms_ = now + kLookAtPeersEveryMs;
  is_host_call_ = is_host_call;
  if (mine != mine_) {
    mine_ = mine;
    peer_ = -1;
    if (!is_host_call) publish(mine);
  }
  const int peer = stuck_peer();
  const uint64_t change = peer < 0 ? 0 : c_.segment.seat(peer).waiting.changes.load();
  if (peer < 0 || peer != peer_ || change != change_) since_ms_ = now;
  peer_ = peer;
  change_ = change;
  return peer >= 0 && now - since_ms_ >= kLastsMs;
}

void DeadlockSearch::publish(const Waits& mine) {
  Waiting& waiting = c_.seat().waiting;
  waiting.meets = mine.meets;
  waiting.sends = mine.sends;
  waiting.receives = mine.receives;
  ++waiting.changes;
  is_published_ = true;
}

Waits DeadlockSearch::waits_of(int rank) const {
  const Waiting& waiting = c_.segment.seat(rank).waiting;
  return {waiting.meets, waiting.sends, waiting.receives};
}

int DeadlockSearch::stuck_peer() const {
  for (int peer = 0; peer < c_.ranks; ++peer)
    if (peer != c_.rank && is_stuck(peer)) return peer;
  return -1;
}

bool DeadlockSearch::is_stuck(int peer) const {
  const uint64_t me = bit(c_.rank), it = bit(peer);
  if (!((mine_.meets | mine_.sends | mine_.receives) & it)) return false;
  if (has_finalized(c_, peer)) return true;
  if (is_host_call_) return false;  // its streams may wait for whom they like
  const Waits its = waits_of(peer);
  if (mine_.meets & it) return (its.sends | its.receives) & me;
  if (its.meets & me) return true;
  const bool fits =
      (mine_.sends & it && its.receives & me) || (mine_.receives & it && its.sends & me);
  return (its.sends | its.receives) & me && !fits;
}

std::string DeadlockSearch::describe(int rank, int other) const {
  if (has_finalized(c_, rank)) return text("rank %d has finalized the communicator", rank);
  const Waits waits = rank == c_.rank ? mine_ : waits_of(rank);
  const char* call = waits.meets                ? (is_host_call_ ? "ncclCommSplit" : "a collective")
                     : waits.sends & bit(other) ? "ncclSend"
                                                : "ncclRecv";
  return text("rank %d waits for rank %d in %s", rank, other, call);
}

std::string DeadlockSearch::message() const {
  return "deadlock: " + describe(c_.rank, peer_) + ", " + describe(peer_, c_.rank) +
         "; a real GPU would hang here (what ranks exchange belongs into one group)";
}

}  // namespace pretend
