#include "progress.h"

#include <unistd.h>

#include <chrono>

namespace mpistrat {
namespace {

constexpr uint64_t kTurnNs = 20'000'000;  // so long it may take until the thread sees that it stops

}  // namespace

void Progress::halt() {
  if (!shared_ || !shared_->thread.joinable()) return;
  if (getpid() != owner_) {
    shared_.release();  // a forked child has no such thread, and its lock may be held for ever
    return;
  }
  {
    const std::lock_guard<std::mutex> lock(shared_->mutex);
    shared_->stops = true;
  }
  shared_->changed.notify_all();
  shared_->thread.join();
  if (shared_->status == MPISTRAT_WAITING) has_call_ = false;
  if (!has_call_) shared_.reset();  // else it still holds what wait() has to tell
}

void Progress::take_over() {
  has_call_ = true;
  if (!shared_ || !shared_->thread.joinable()) {
    shared_ = std::make_unique<Shared>();
    owner_ = getpid();
    shared_->thread = std::thread([this] { run(); });
  }
  {
    const std::lock_guard<std::mutex> lock(shared_->mutex);
    shared_->status = MPISTRAT_WAITING;
  }
  shared_->changed.notify_all();
}

int Progress::wait(uint64_t budget_ns) {
  std::unique_lock<std::mutex> lock(shared_->mutex);
  shared_->changed.wait_for(lock, std::chrono::nanoseconds(budget_ns),
                            [this] { return shared_->status != MPISTRAT_WAITING; });
  has_call_ = shared_->status == MPISTRAT_WAITING;
  return shared_->status;
}

bool Progress::is_idle() const {
  if (!shared_) return true;
  const std::lock_guard<std::mutex> lock(shared_->mutex);
  return shared_->status != MPISTRAT_WAITING;
}

void Progress::run() {
  Shared& shared = *shared_;
  std::unique_lock<std::mutex> lock(shared.mutex);
  while (!shared.stops) {
    if (shared.status != MPISTRAT_WAITING) {
      shared.changed.wait(lock);
      continue;
    }
    lock.unlock();
    const int status = task_->advance(kTurnNs);
    lock.lock();
    shared.status = status;
    if (status != MPISTRAT_WAITING) shared.changed.notify_all();
  }
}

}  // namespace mpistrat
