#include "backoff.h"

#include <sched.h>
#include <time.h>

#include <algorithm>

#include "clock.h"

namespace mpistrat {
namespace {

constexpr uint64_t kShare = 2;  // a sleep is at most the half of what was waited for already

}  // namespace

void spin_core() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

void yield_core() { sched_yield(); }

void Backoff::begin() { began_ns_ = moved_ns_ = now_ns(); }

void Backoff::moved() { moved_ns_ = now_ns(); }

void Backoff::pause(uint64_t at_most_ns) { pause(now_ns(), at_most_ns); }

bool Backoff::wait() {
  if (budget_ns_ == 0) return false;
  const uint64_t now = now_ns();
  if (began_ns_ == 0) began_ns_ = moved_ns_ = now;
  const uint64_t waited = now - began_ns_;
  if (waited >= budget_ns_) return false;
  pause(now, budget_ns_ - waited);
  return true;
}

void Backoff::pause(uint64_t now, uint64_t at_most_ns) const {
  const uint64_t ns = std::min({(now - moved_ns_) / kShare, figures_.max_sleep_ns, at_most_ns});
  if (figures_.pause_after(now - began_ns_) != Pause::kSleep || ns < figures_.min_sleep_ns) {
    yield_core();
    return;
  }
  const timespec sleep = timespec_of(ns);
  nanosleep(&sleep, nullptr);
}

}  // namespace mpistrat
