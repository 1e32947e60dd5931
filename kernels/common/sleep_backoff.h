#ifndef MPISTRAT_COMMON_SLEEP_BACKOFF_H_
#define MPISTRAT_COMMON_SLEEP_BACKOFF_H_

// Pause between looks at memory that another process changes: yield the core, then sleep. There is
// no futex, since a store's owner never waits and so never wakes anybody.

#include <sched.h>
#include <time.h>

#include <cstdint>

namespace mpistrat {

class SleepBackoff {
 public:
  explicit SleepBackoff(uint64_t budget_ns) : budget_ns_(budget_ns) {}

  // Wait a moment; returns false, at once, if the budget is spent.
  bool wait() {
    if (budget_ns_ == 0) return false;
    const uint64_t now = now_ns();
    if (start_ns_ == 0) start_ns_ = now;
    const uint64_t waited = now - start_ns_;
    if (waited >= budget_ns_) return false;
    if (waited < kYieldNs) {
      sched_yield();
    } else {
      const timespec nap = {0, kSleepNs};
      nanosleep(&nap, nullptr);
    }
    return true;
  }

 private:
  static constexpr uint64_t kYieldNs = 100'000;
  static constexpr long kSleepNs = 50'000;

  static uint64_t now_ns() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
  }

  uint64_t budget_ns_;
  uint64_t start_ns_ = 0;
};

}  // namespace mpistrat

#endif  // MPISTRAT_COMMON_SLEEP_BACKOFF_H_
