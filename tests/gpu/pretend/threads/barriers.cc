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
  for (const Thread& thread : threads_)
    if (thread.state == State::kAtLaneBarrier && open_lane_barrier(thread, last_resort)) any = true;
  return any;
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

}  // namespace pretend
