#include "progress.h"

#include <chrono>

namespace mpistrat {
namespace {

constexpr uint64_t kTurnNs = 20'000'000;  // so long it may take until the thread sees that it stops

}  // namespace

Progress::~Progress() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stops_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Progress::take_over() {
  has_call_ = true;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    status_ = MPISTRAT_WAITING;
  }
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  changed_.notify_all();
}

MpistratStatus Progress::wait(uint64_t budget_ns) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_for(lock, std::chrono::nanoseconds(budget_ns),
                    [this] { return status_ != MPISTRAT_WAITING; });
  has_call_ = status_ == MPISTRAT_WAITING;
  return status_;
}

void Progress::run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stops_) {
    if (status_ != MPISTRAT_WAITING) {
      changed_.wait(lock);
      continue;
    }
    lock.unlock();
    const MpistratStatus status = node_->wait(kTurnNs);
    lock.lock();
    status_ = status;
    if (status != MPISTRAT_WAITING) changed_.notify_all();
  }
}

}  // namespace mpistrat
