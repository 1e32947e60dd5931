// Barriers of a block and of a wavefront: when they open, and what the threads do at them.
#include <algorithm>

#include "threads/block.h"
#include "threads/complaints.h"
#include "threads/fibers/sanitizers.h"
#include "threads/lanes.h"

namespace pretend {
namespace {

bool same(const Site& a, const Site& b) { return a.line == b.line && same_text(a.file, b.file); }

}  // namespace

bool same_text(const char* a, const char* b) {
  if (a == b) return true;
  while (*a && *a == *b) ++a, ++b;
  return *a == *b;
}

// Open the barriers that all have reached; tell whether a thread may go on because of it.
bool Block::open_barriers() {
  if (open_block_barrier() || open_lane_barriers(false)) return true;
  const bool stuck = std::none_of(threads_.begin(), threads_.end(), [](const Thread& thread) {
    return thread.state <= State::kPaused;
  });
  return stuck && open_lane_barriers(true);
}

bool Block::open_block_barrier() {
  const Thread* first = nullptr;
  size_t waiting = 0;
  bool all_same = true;
  for (const Thread& thread : threads_) {
    if (thread.state != State::kAtBlockBarrier) continue;
    if (!first) first = &thread;
    if (!same(thread.site, first->site)) all_same = false;
    ++waiting;
  }
  if (!first || waiting != live_) return false;
  if (!all_same) complain_of(*this, "its threads met at different __syncthreads");
  for (Thread& thread : threads_)
    if (thread.state == State::kAtBlockBarrier) thread.state = State::kReady;
  ++barriers_;
  votes()[0] = votes()[1] = 0;  // of the next barrier
  return true;
}

bool Block::open_lane_barriers(bool last_resort) {
  bool any = false;
  if (last_resort) {
    for (size_t begin = 0; begin < threads_.size(); begin += kLanes)
      if (const Thread* first = earliest(begin)) any |= open_lane_barrier(*first, true);
    return any;
  }
  for (const Thread& thread : threads_)
    if (thread.state == State::kAtLaneBarrier && open_lane_barrier(thread, false)) any = true;
  return any;
}

// Of a wavefront's lanes that wait for "the lanes that come", one of those that go on first: at the
// earliest place in the source. Lanes in a branch meet the others behind it, as on a GPU: who
// skipped the branch waits there already.
const Thread* Block::earliest(size_t begin) const {
  const Thread* found = nullptr;
  for (size_t i = begin; i < std::min(begin + kLanes, threads_.size()); ++i) {
    const Thread& one = threads_[i];
    if (one.state != State::kAtLaneBarrier || one.mask) continue;
    if (!found || one.site.line < found->site.line) found = &one;
  }
  return found;
}

// Open the barrier at which `first` waits, if all that it waits for are there.
bool Block::open_lane_barrier(const Thread& first, bool last_resort) {
  const size_t begin = first.index / kLanes * kLanes;
  const size_t end = std::min(begin + kLanes, threads_.size());
  const Mask mask = first.mask;
  const Site site = first.site;
  Mask met = 0;
  for (size_t i = begin; i < end; ++i) {
    const Thread& thread = threads_[i];
    if (thread.state == State::kDone || (mask && !(mask >> (i - begin) & 1))) continue;
    const bool here = thread.state == State::kAtLaneBarrier && thread.mask == mask &&
                      (mask || same(thread.site, site));
    if (here) met |= Mask{1} << (i - begin);
    if (!here && !(last_resort && !mask)) return false;
  }
  for (size_t i = begin; i < end; ++i) {
    if (!(met >> (i - begin) & 1)) continue;
    threads_[i].state = State::kReady;
    threads_[i].met = met;
    ++threads_[i].met_count;
  }
  if (!mask) ++wavefronts_[begin / kLanes].unmasked_count;
  return true;
}

void sync_block(Site site) {
  char* tag = block->tag();
  block->running().site = site;
  release(tag);
  block->give_way(State::kAtBlockBarrier);
  acquire(tag);
}

int sync_block_and_vote(Vote vote, bool mine, Site site) {
  int* votes = block->votes();
  ++votes[mine];
  sync_block(site);
  const int no = votes[0], yes = votes[1];
  if (vote == Vote::kCount) return yes;
  return vote == Vote::kAnd ? no == 0 : yes != 0;
}

void pause() {
  if (block) block->give_way(State::kPaused);
}

void* dynamic_shared_memory() { return block->shared(); }

bool keeps_bounds(unsigned long long most_threads) {
  if (block->threads().size() <= most_threads) return true;
  block->watcher().block_is_too_large(most_threads);
  return false;
}

}  // namespace pretend
