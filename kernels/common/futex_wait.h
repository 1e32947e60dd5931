#ifndef MPISTRAT_COMMON_FUTEX_WAIT_H_
#define MPISTRAT_COMMON_FUTEX_WAIT_H_

// Wait for another process of this machine: spin, then yield the core, then sleep on a futex. More
// ranks than cores must not collapse, and a rank that waits for long uses no core.

#include <atomic>
#include <cstdint>

#include "backoff.h"
#include "cache_line.h"
#include "clock.h"

namespace mpistrat {

// The futex of a node: a rank that has waited for long sleeps on it, one that publishes wakes all.
struct alignas(kCacheLine) NodeFutex {
  std::atomic<uint32_t> num_sleepers;
  alignas(kCacheLine) std::atomic<uint32_t> num_wakes;  // what the system call compares
};

class FutexWait {
 public:
  FutexWait(NodeFutex* futex, bool is_crowded)
      : futex_(futex), figures_(is_crowded ? kCrowdedRankBackoff : kRankBackoff) {}

  // Wait until `is_ready()` or for about `budget_ns`; return whether it is ready.
  template <class Ready>
  bool wait(Ready is_ready, uint64_t budget_ns);

  // Wake all that sleep. To be called after the (sequentially consistent) store that they wait for.
  void wake();

 private:
  static constexpr int kSpins = 64;  // between looks at the clock

  void sleep(uint32_t num_wakes, uint64_t at_most_ns);

  NodeFutex* futex_;
  const BackoffFigures figures_;
};

template <class Ready>
bool FutexWait::wait(Ready is_ready, uint64_t budget_ns) {
  if (is_ready()) return true;
  if (budget_ns == 0) return false;
  const uint64_t start = now_ns();
  for (uint64_t waited = 0; waited < budget_ns; waited = now_ns() - start) {
    switch (figures_.pause_after(waited)) {
      case Pause::kSpin:
        for (int i = 0; i < kSpins; ++i) {
          spin_core();
          if (is_ready()) return true;
        }
        break;
      case Pause::kYield:
        yield_core();
        if (is_ready()) return true;
        break;
      case Pause::kSleep:
        // Count oneself in, then look again; a publisher stores, then looks for sleepers. All four
        // operations are sequentially consistent, so one of the two sees the other.
        const uint32_t num_wakes = futex_->num_wakes.load();
        futex_->num_sleepers.fetch_add(1);
        const bool ready = is_ready();
        if (!ready) sleep(num_wakes, budget_ns - waited);
        futex_->num_sleepers.fetch_sub(1);
        if (ready || is_ready()) return true;
        break;
    }
  }
  return is_ready();
}

}  // namespace mpistrat

#endif  // MPISTRAT_COMMON_FUTEX_WAIT_H_
