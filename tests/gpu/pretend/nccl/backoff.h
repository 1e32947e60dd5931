// How a wait gives the processor away: it yields at first, then sleeps ever longer, to 1 ms.
#pragma once

#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>

namespace pretend {

inline int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

class Backoff {
 public:
  bool sleeps() const { return turns_ >= kYields; }
  void pause() {
    if (!sleeps()) {
      ++turns_;
      sched_yield();
    } else {
      usleep(sleep_us_);
      if (sleep_us_ < 1000) sleep_us_ += sleep_us_ / 2;
    }
  }

 private:
  static constexpr int kYields = 50;
  int turns_ = 0;
  unsigned sleep_us_ = 20;
};

}  // namespace pretend
