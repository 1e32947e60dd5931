// Runs a grid: gives its blocks to OS threads that are kept from launch to launch.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <memory>
#include <mutex>
#include <thread>

#include "threads/block.h"
#include "threads/fibers/sanitizers.h"
#include "threads/fibers/workers.h"
#include "threads/launch.h"
#include "threads/settings.h"

namespace pretend {
namespace {

constexpr unsigned kMostThreads = 1024;  // of a block
constexpr unsigned kIdentities = 2048;   // CUDA threads that ThreadSanitizer is first given
constexpr auto kPatience = std::chrono::milliseconds(20);  // without a block that ends

// One launch. Lives until the last worker that was called for it has looked at it.
class Run : public Work, public Watcher {
 public:
  Run(const Launch& launch, unsigned long long blocks, unsigned threads)
      : launch_(launch), blocks_(blocks), threads_(threads) {}
  ~Run() { end(); }

  void run_blocks(Block& block) override {
    for (unsigned long long turn; (turn = next_++) < blocks_;) {
      block.run(launch_, number(turn), *this);
      release(&ended_tag_);
      if (++done_ == blocks_) {
        const std::lock_guard lock(mutex_);
        changed_.notify_all();
      }
    }
  }

  void block_waits() override {
    if (next_ >= blocks_ || wanted_.exchange(true)) return;
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
  }

  void block_is_too_large(unsigned long long most_threads) override {
    if (refused_.exchange(true)) return;
    std::fprintf(stderr,
                 "pretended GPU: __launch_bounds__ of a kernel allows %llu threads a block,"
                 " and it was launched with %u\n",
                 most_threads, threads_);
  }

  bool is_refused() const { return refused_; }

  // Wait until all blocks have ended. Few workers do at first: most grids need no more, and waking
  // 64 for each would take longer than the grid. All that may be resident are called when a block
  // waits, or when none ends for a while: they may be waiting in a way that does not show.
  void finish(const std::shared_ptr<Run>& self) {
    const auto most =
        static_cast<unsigned>(std::min<unsigned long long>(resident_blocks(), blocks_));
    // Under ThreadSanitizer more, since blocks that share an OS thread count as ordered.
    const unsigned few =
        std::max({2u, std::thread::hardware_concurrency(), kRaces ? kIdentities / threads_ : 0});
    call_workers(self, std::min(most, few));
    std::unique_lock lock(mutex_);
    const auto ended = [&] { return done_ == blocks_; };
    if (few < most) {
      for (unsigned long long before = ~0ull; !wanted_ && !ended() && before != done_;) {
        before = done_;
        changed_.wait_for(lock, kPatience, [&] { return ended() || wanted_; });
      }
      if (!ended()) call_workers(self, most - few);
    }
    changed_.wait(lock, ended);
    acquire(&ended_tag_);
  }

 private:
  unsigned long long number(unsigned long long turn) const {
    return order().kind == Order::Kind::kReversed ? blocks_ - 1 - turn : turn;
  }

  const Launch launch_;
  const unsigned long long blocks_;
  const unsigned threads_;  // of a block
  std::atomic<unsigned long long> next_{0}, done_{0};
  std::atomic<bool> wanted_{false};  // a block waits: it may be for one that has no worker yet
  std::atomic<bool> refused_{false};
  char ended_tag_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
};

}  // namespace

int run_grid(KernelEntry entry, const Grid& grid, void** arguments) {
  unsigned long long blocks = 1, threads = 1;
  for (unsigned n : grid.grid) blocks *= n;
  for (unsigned n : grid.block) threads *= n;
  if (!blocks || !threads || threads > kMostThreads) return EINVAL;
  const auto run = std::make_shared<Run>(Launch{entry, grid, arguments, StaticShared(entry)},
                                         blocks, static_cast<unsigned>(threads));
  if (blocks == 1)
    run_here(*run);
  else
    run->finish(run);
  run->give_up();
  return run->is_refused() ? E2BIG : 0;
}

}  // namespace pretend
