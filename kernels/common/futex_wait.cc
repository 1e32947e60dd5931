#include "futex_wait.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

namespace mpistrat {

uint64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

void FutexWait::pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

void FutexWait::yield() { sched_yield(); }

void FutexWait::ring() {
  if (bell_->sleepers.load() == 0) return;
  bell_->rings.fetch_add(1);
  // Not FUTEX_PRIVATE: the sleepers are other processes.
  syscall(SYS_futex, &bell_->rings, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void FutexWait::sleep(uint32_t rings, uint64_t at_most_ns) {
  const uint64_t ns = std::min(at_most_ns, futex_wait::kSleepNs);
  const timespec limit{static_cast<time_t>(ns / 1'000'000'000u),
                       static_cast<long>(ns % 1'000'000'000u)};
  syscall(SYS_futex, &bell_->rings, FUTEX_WAIT, rings, &limit, nullptr, 0);
}

}  // namespace mpistrat
