// Whether another process still runs, told apart from a later one with the same id.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace pretend {

// When a process began, in clock ticks since boot; 0 when it has ended (a zombie has).
uint64_t start_of_process(pid_t pid);

struct Process {
  pid_t pid = 0;
  uint64_t start = 0;

  static Process self();
  bool has_ended() const { return start_of_process(pid) != start; }
};

}  // namespace pretend
