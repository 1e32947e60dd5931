#ifndef MPISTRAT_COMMON_FUTEX_WAIT_H_
#define MPISTRAT_COMMON_FUTEX_WAIT_H_

// Wait for another process of this machine: spin, then yield the core, then sleep on a futex. More
// ranks than cores must not collapse, and a rank that waits for long uses no core.

#include <atomic>
#include <cstdint>

#include "cache_line.h"

namespace mpistrat {

uint64_t now_ns();

// The bell of a node: who has waited for long sleeps on it, and who publishes rings it.
struct alignas(kCacheLine) Bell {
  std::atomic<uint32_t> sleepers;
  alignas(kCacheLine) std::atomic<uint32_t> rings;
};

class FutexWait {
 public:
  FutexWait(Bell* bell, bool is_crowded) : bell_(bell), is_crowded_(is_crowded) {}

  // Wait until `is_ready()` or for about `budget_ns`; return whether it is ready.
  template <class Ready>
  bool wait(Ready is_ready, uint64_t budget_ns);

  // Wake who sleeps. To be called after the (sequentially consistent) store that they wait for.
  void ring();

 private:
  static void pause();
  static void yield();
  void sleep(uint32_t rings, uint64_t at_most_ns);

  Bell* bell_;
  bool is_crowded_;  // more ranks than processors
};

namespace futex_wait {
constexpr int kSpins = 64;                // between looks at the clock
constexpr uint64_t kSpinNs = 20'000;      // as long as most differences between ranks
constexpr uint64_t kYieldNs = 1'000'000;  // a sleep and its wake-up cost about 50 us
// With more ranks than processors the last rank may not be running. A waiter that yields again and
// again comes back at once, and keeps the core from it: so it sleeps early.
constexpr uint64_t kCrowdedYieldNs = 50'000;
constexpr uint64_t kSleepNs = 20'000'000;  // at most, should a ring of the bell be lost
}  // namespace futex_wait

template <class Ready>
bool FutexWait::wait(Ready is_ready, uint64_t budget_ns) {
  if (is_ready()) return true;
  if (budget_ns == 0) return false;
  const uint64_t start = now_ns();
  for (uint64_t waited = 0; waited < budget_ns; waited = now_ns() - start) {
    if (waited < futex_wait::kSpinNs && !is_crowded_) {
      for (int i = 0; i < futex_wait::kSpins; ++i) {
        pause();
        if (is_ready()) return true;
      }
    } else if (waited < (is_crowded_ ? futex_wait::kCrowdedYieldNs : futex_wait::kYieldNs)) {
      yield();
      if (is_ready()) return true;
    } else {
      // Count oneself in, then look again; a publisher stores, then looks for sleepers. All four
      // operations are sequentially consistent, so one of the two sees the other.
      const uint32_t rings = bell_->rings.load();
      bell_->sleepers.fetch_add(1);
      const bool ready = is_ready();
      if (!ready) sleep(rings, budget_ns - waited);
      bell_->sleepers.fetch_sub(1);
      if (ready || is_ready()) return true;
    }
  }
  return is_ready();
}

}  // namespace mpistrat

#endif  // MPISTRAT_COMMON_FUTEX_WAIT_H_
