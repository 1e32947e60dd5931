#include "futex_wait.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

namespace mpistrat {

void FutexWait::wake() {
  if (futex_->num_sleepers.load() == 0) return;
  // Before the system call: whoever is about to sleep and has read the old number does not.
  futex_->num_wakes.fetch_add(1);
  // Not FUTEX_PRIVATE: the sleepers are other processes.
  syscall(SYS_futex, &futex_->num_wakes, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void FutexWait::sleep(uint32_t num_wakes, uint64_t at_most_ns) {
  const timespec limit = timespec_of(std::min(at_most_ns, figures_.max_sleep_ns));
  syscall(SYS_futex, &futex_->num_wakes, FUTEX_WAIT, num_wakes, &limit, nullptr, 0);
}

}  // namespace mpistrat
