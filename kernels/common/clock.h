#ifndef MPISTRAT_COMMON_CLOCK_H_
#define MPISTRAT_COMMON_CLOCK_H_

// The monotonic clock, by which waits and calls are timed.

#include <time.h>

#include <cstdint>

namespace mpistrat {

inline uint64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

// `ns` nanoseconds, as system calls want them.
inline timespec timespec_of(uint64_t ns) {
  return {static_cast<time_t>(ns / 1'000'000'000u), static_cast<long>(ns % 1'000'000'000u)};
}

}  // namespace mpistrat

#endif  // MPISTRAT_COMMON_CLOCK_H_
