#include "threads/fibers/workers.h"

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "threads/fibers/faults.h"

namespace pretend {
namespace {

struct Worker {
  std::shared_ptr<Work> work;
  std::condition_variable called;
};

// The worker that was used last is called first: its stacks are there and in the cache.
class Workers {
 public:
  void call(const std::shared_ptr<Work>& work, unsigned count) {
    const std::lock_guard lock(mutex_);
    for (unsigned i = 0; i < count; ++i) {
      if (idle_.empty()) {
        std::thread(&Workers::serve, this, work).detach();
        continue;
      }
      idle_.back()->work = work;
      idle_.back()->called.notify_one();
      idle_.pop_back();
    }
  }

 private:
  [[noreturn]] void serve(std::shared_ptr<Work> work) {
    Worker self;
    for (;;) {
      run_here(*work);
      work->give_up();
      work.reset();
      std::unique_lock lock(mutex_);
      idle_.push_back(&self);
      self.called.wait(lock, [&] { return self.work != nullptr; });
      work = std::move(self.work);
    }
  }

  std::mutex mutex_;
  std::vector<Worker*> idle_;
};

}  // namespace

void call_workers(const std::shared_ptr<Work>& work, unsigned count) {
  static auto* const workers =
      new Workers;  // never destroyed: workers use it until the process ends
  workers->call(work, count);
}

void run_here(Work& work) {
  static thread_local Block block_of_thread;  // with its fibers
  prepare_for_faults();
  work.run_blocks(block_of_thread);
  block_of_thread.trim();
}

}  // namespace pretend
