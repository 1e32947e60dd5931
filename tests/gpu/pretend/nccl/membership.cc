#include "nccl/membership.h"

#include <cstdlib>
#include <cstring>

#include "nccl/backoff.h"
#include "nccl/interface/errors.h"
#include "nccl/runtime.h"

namespace pretend {
namespace {

using Outcome = Communicator::Outcome;

constexpr int64_t kTellAfterMs = 5000;

// The result of a host call whose wait has ended so.
ncclResult_t result_of(Communicator& c, Outcome outcome) {
  if (outcome == Outcome::kDone) return ncclSuccess;
  if (outcome == Outcome::kAborted)
    return complain(ncclInternalError, "the communicator was aborted in another thread");
  return c.error_now();
}

ncclResult_t take_seat(Communicator& c) {
  Seat& seat = c.seat();
  Presence nobody = Presence::kAbsent;
  if (!seat.presence.compare_exchange_strong(nobody, Presence::kTaken)) {
    const std::string message = text("two callers gave rank %d", c.rank);
    c.tell_all(ncclInvalidUsage, message);
    return complain(ncclInvalidUsage, message);
  }
  seat.process = Process::self();
  const std::string gpu = physical_device(c.device);
  seat.gpu[gpu.copy(seat.gpu, sizeof seat.gpu - 1)] = 0;
  seat.presence.store(Presence::kJoined, std::memory_order_release);
  return ncclSuccess;
}

bool all_have_joined(const Communicator& c) {
  for (int peer = 0; peer < c.ranks; ++peer)
    if (c.segment.seat(peer).presence.load(std::memory_order_acquire) < Presence::kJoined)
      return false;
  return true;
}

ncclResult_t wait_for_all(Communicator& c) {
  int turns = 0;
  bool maker_has_ended = false;
  const Outcome outcome = c.wait(
      [&] {
        if (all_have_joined(c)) return true;
        maker_has_ended = ++turns % 100 == 0 && c.segment.maker().has_ended();
        return maker_has_ended;
      },
      true);
  if (outcome == Outcome::kDone && maker_has_ended && !all_have_joined(c))
    return complain(ncclSystemError, text("process %d, which made the unique id, has ended before "
                                          "all ranks came",
                                          c.segment.maker().pid));
  return result_of(c, outcome);
}

ncclResult_t check_gpus(Communicator& c) {
  const char* shared = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  if (shared && std::atoi(shared)) return ncclSuccess;
  for (int a = 0; a < c.ranks; ++a)
    for (int b = a + 1; b < c.ranks; ++b)
      if (!std::strcmp(c.segment.seat(a).gpu, c.segment.seat(b).gpu))
        return complain(ncclInvalidUsage,
                        text("Duplicate GPU detected: rank %d and rank %d both on device %s (set "
                             "NCCL_MULTI_RANK_GPU_ENABLE=1 to allow it)",
                             a, b, c.segment.seat(a).gpu));
  return ncclSuccess;
}

// The new rank of this rank and the size, from what all gave; whose line holds the id.
int place_in_split(const Communicator& parent, int which, Communicator& child) {
  const auto line = [&](int peer) -> const SplitLine& {
    return parent.segment.seat(peer).splits[which];
  };
  const auto is_before = [&](int a, int b) {
    return line(a).key != line(b).key ? line(a).key < line(b).key : a < b;
  };
  int first = parent.rank;
  child.rank = child.ranks = 0;
  for (int peer = 0; peer < parent.ranks; ++peer) {
    if (line(peer).color != line(parent.rank).color) continue;
    ++child.ranks;
    child.rank += is_before(peer, parent.rank);
    if (is_before(peer, first)) first = peer;
  }
  return first;
}

bool has_left(const Communicator& c, int peer) {
  const Seat& seat = c.segment.seat(peer);
  return seat.presence != Presence::kJoined || (!hangs_as_hardware() && seat.process.has_ended());
}

// NCCL's documentation: all ranks of a node have to finalize or destroy, "to avoid a hang".
void wait_until_all_leave(Communicator& c) {
  const int64_t told_at_ms = now_ms() + kTellAfterMs;
  bool has_told = false;
  int next = 0;
  for (Backoff backoff; !c.aborted && !c.is_broken(); backoff.pause()) {
    while (next < c.ranks && (next == c.rank || has_left(c, next))) ++next;
    if (next == c.ranks) return;
    if (has_told || now_ms() < told_at_ms) continue;
    has_told = true;
    complain(ncclSuccess,
             text("rank %d waits for rank %d, which has neither finalized nor destroyed the "
                  "communicator: all ranks of a node have to",
                  c.rank, next));
  }
}

}  // namespace

ncclResult_t join(Communicator& c, const ncclUniqueId& id) {
  ncclResult_t result = c.segment.open(id, c.ranks);
  if (result == ncclSuccess) result = take_seat(c);
  if (result != ncclSuccess) return result;
  result = wait_for_all(c);
  if (result != ncclSuccess) {
    c.seat().presence = Presence::kAborted;
    return result;
  }
  Segment::release_id(id);
  result = check_gpus(c);
  if (result == ncclSuccess)
    c.ready = true;
  else
    c.seat().presence = Presence::kFinalized;  // all ranks find the same, none blames another
  return result;
}

ncclResult_t split(Communicator& parent, int color, int key, const CommunicatorPtr& child) {
  const int which = static_cast<int>(parent.splits++ % 2);
  SplitLine& mine = parent.seat().splits[which];
  mine = {color, key, {}};
  ncclResult_t result = result_of(parent, parent.meet(&Seat::host_meetings));
  if (result != ncclSuccess) return result;
  int first = parent.rank;
  if (child) {
    first = place_in_split(parent, which, *child);
    // Where this fails the id stays empty, and the others find that it is none.
    if (first == parent.rank) Segment::make_id(&mine.id);
  }
  result = result_of(parent, parent.meet(&Seat::host_meetings));
  if (result != ncclSuccess || !child) return result;
  const ncclUniqueId id = parent.segment.seat(first).splits[which].id;
  return join(*child, id);
}

ncclResult_t finalize(Communicator& c) {
  for (Backoff backoff; c.ended < c.launched && !c.aborted;) backoff.pause();
  const bool was_well = c.error() == ncclSuccess;
  Presence joined = Presence::kJoined;
  c.seat().presence.compare_exchange_strong(joined, Presence::kFinalized);
  if (was_well) wait_until_all_leave(c);
  c.finalized = true;
  return ncclSuccess;
}

void abort(Communicator& c) {
  c.aborted = true;
  for (Backoff backoff; c.running || c.in_progress();) backoff.pause();
  if (!c.ready) return;  // its seat, if it had one, was given up where the wait for others ended
  Presence joined = Presence::kJoined;
  c.seat().presence.compare_exchange_strong(joined, Presence::kAborted);
}

}  // namespace pretend
