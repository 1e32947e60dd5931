// Waiting on a futex: a wake ends it, and where cores are scarce it uses none.

#include "../common/futex_wait.h"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include "helpers/check.h"

namespace {

using namespace mpistrat;

uint64_t used_ns() {
  timespec used;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<uint64_t>(used.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(used.tv_nsec);
}

void a_crowded_wait_uses_no_core() {
  NodeFutex futex{};
  FutexWait waiting(&futex, true);
  uint64_t least = UINT64_MAX;
  for (int i = 0; i < 5; ++i) {
    const uint64_t before = used_ns();
    CHECK(!waiting.wait([] { return false; }, 5'000'000));
    least = std::min(least, used_ns() - before);
  }
  CHECK(least < 500'000);
}

void a_wake_ends_it(bool is_crowded) {
  NodeFutex futex{};
  FutexWait waiter(&futex, is_crowded), waker(&futex, is_crowded);
  std::atomic<bool> is_there{false};
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    is_there.store(true);
    waker.wake();
  });
  CHECK(waiter.wait([&] { return is_there.load(); }, 20'000'000'000u));
  other.join();
}

}  // namespace

int main() {
  a_crowded_wait_uses_no_core();
  for (bool is_crowded : {false, true}) a_wake_ends_it(is_crowded);
}
