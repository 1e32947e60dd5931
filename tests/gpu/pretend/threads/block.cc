#include "threads/block.h"

#include <sched.h>

#include <algorithm>

#include "threads/complaints.h"
#include "threads/fibers/sanitizers.h"
#include "threads/settings.h"

namespace pretend {

thread_local Here* here;
thread_local Block* block;

namespace {

// So many turns in which all threads only pause are taken for waiting: an atomic pauses once.
constexpr unsigned kTurnsOfWaiting = 8;
constexpr unsigned kFibersKept = kRaces ? 2048 : 8192;  // of the process, between launches

}  // namespace

Block::~Block() = default;

// The body of every fiber: one CUDA thread from start to end.
void Block::thread_body() {
  acquire(&block->start_tag_);
  block->launch_->entry(block->launch_->arguments);
  release(&block->end_tag_);
  block->give_way(State::kDone);
}

void Block::give_way(State state) {
  running_->state = state;
  running_->fiber->leave();
}

// Under the race detector a fiber belongs to one thread of the block, since all that ran on it
// counts as ordered. Otherwise the one used last is taken: its stack is in the cache.
Fiber* Block::fiber_for(const Thread& thread) {
  if (kRaces) {
    while (fibers_.size() <= static_cast<size_t>(thread.index))
      fibers_.push_back(std::make_unique<Fiber>(&Block::thread_body));
    return fibers_[thread.index].get();
  }
  if (free_fibers_.empty()) {
    fibers_.push_back(std::make_unique<Fiber>(&Block::thread_body));
    return fibers_.back().get();
  }
  Fiber* fiber = free_fibers_.back();
  free_fibers_.pop_back();
  return fiber;
}

void Block::trim() {
  if (Fiber::count() <= kFibersKept) return;
  free_fibers_.clear();
  fibers_.clear();
}

void Block::resume(Thread& thread) {
  if (thread.state == State::kFresh) thread.fiber = fiber_for(thread);
  thread.state = State::kReady;
  running_ = &thread;
  here = &thread.here;
  thread.fiber->enter();
  running_ = nullptr;
  if (thread.state != State::kDone) return;
  if (!kRaces) free_fibers_.push_back(thread.fiber);
  --live_;
}

void Block::prepare(const Grid& grid, unsigned long long number) {
  const dim3 size(grid.block[0], grid.block[1], grid.block[2]);
  const dim3 blocks(grid.grid[0], grid.grid[1], grid.grid[2]);
  const uint3 at = {static_cast<unsigned>(number % blocks.x),
                    static_cast<unsigned>(number / blocks.x % blocks.y),
                    static_cast<unsigned>(number / blocks.x / blocks.y)};
  live_ = size_t{size.x} * size.y * size.z;
  threads_.resize(live_);
  uint3 next = {0, 0, 0};
  for (Thread& thread : threads_) {
    const int index = static_cast<int>(&thread - threads_.data());
    thread = {{next, at, size, blocks}, State::kFresh, index, {nullptr, 0}, 0, 0, 0, nullptr};
    if (++next.x == size.x) next.x = 0, ++next.y;
    if (next.y == size.y) next.y = 0, ++next.z;
  }
  wavefronts_.resize((live_ + kLanes - 1) / kLanes);
}

void Block::order_turns(std::mt19937& random) {
  if (turns_.size() != threads_.size() || order().kind == Order::Kind::kShuffled) {
    turns_.resize(threads_.size());
    for (size_t i = 0; i < turns_.size(); ++i) turns_[i] = static_cast<unsigned>(i);
    if (order().kind == Order::Kind::kReversed) std::reverse(turns_.begin(), turns_.end());
  }
  if (order().kind == Order::Kind::kShuffled) std::shuffle(turns_.begin(), turns_.end(), random);
}

// Run each thread that can go on until it gives way; tell whether any could.
bool Block::pass_turn() {
  bool any = false;
  for (unsigned turn : turns_) {
    Thread& thread = threads_[turn];
    if (thread.state > State::kPaused) continue;
    resume(thread);
    any = true;
  }
  return any;
}

void Block::run(const Launch& launch, unsigned long long number, Watcher& watcher) {
  block = this;
  watcher_ = &watcher;
  launch_ = &launch;
  prepare(launch.grid, number);
  shared_.resize((launch.grid.shared_bytes + 15) / 16);
  fill_with_rubbish(shared_.data(), shared_.size() * 16);
  launch.shared.fill();
  std::mt19937 random(order().seed + static_cast<unsigned>(number));
  release(&start_tag_);
  for (unsigned waited = 0; live_;) {
    order_turns(random);
    const bool any = pass_turn();
    if (!live_) break;
    if (open_barriers()) {
      waited = 0;
      continue;
    }
    if (!any) complain_of(*this, "no thread can go on");
    if (++waited < kTurnsOfWaiting) continue;
    watcher.block_waits();
    sched_yield();
  }
  acquire(&end_tag_);
  here = nullptr;
  block = nullptr;
}

}  // namespace pretend
