#include "poll_backoff.h"

#include <sched.h>
#include <time.h>

#include <algorithm>

#include "futex_wait.h"

namespace mpistrat {
namespace {

constexpr uint64_t kYoungNs = 1'000'000;  // so long a call offers its processor, and no more
constexpr uint64_t kLeastNs = 10'000, kMostNs = 500'000;
constexpr uint64_t kShare = 2;  // a nap is at most the half of what was waited for already

}  // namespace

void PollBackoff::begin() { began_ns_ = moved_ns_ = now_ns(); }

void PollBackoff::moved() { moved_ns_ = now_ns(); }

void PollBackoff::pause(uint64_t at_most_ns) {
  const uint64_t now = now_ns();
  const uint64_t ns = std::min({(now - moved_ns_) / kShare, kMostNs, at_most_ns});
  if (now - began_ns_ < kYoungNs || ns < kLeastNs) {
    sched_yield();
  } else {
    const timespec nap{0, static_cast<long>(ns)};
    nanosleep(&nap, nullptr);
  }
}

}  // namespace mpistrat
