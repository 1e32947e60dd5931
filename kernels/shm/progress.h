#ifndef MPISTRAT_SHM_PROGRESS_H_
#define MPISTRAT_SHM_PROGRESS_H_

// A thread that carries on with a call while its rank computes. It needs nothing of Python, and so
// never waits for the interpreter's lock. It exists from the first call that is handed to it.

#include <sys/types.h>

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>

#include "mpistrat/shm.h"
#include "task.h"

namespace mpistrat {

class Progress {
 public:
  explicit Progress(Task* task) : task_(task) {}
  ~Progress() { halt(); }

  // Take the call under way; from now on only wait() may be asked about it.
  void take_over();

  // Let the thread end; whoever calls this has the call again, unless it is over.
  void halt();

  // Whether there is a call that was taken over, and whose end wait() has not told yet.
  bool has_call() const { return has_call_; }

  // Wait for about `budget_ns` until the call is over; returns how, or MPISTRAT_WAITING.
  int wait(uint64_t budget_ns);

  // Whether the thread has no call that goes on.
  bool is_idle() const;

 private:
  void run();

  // What both threads use.
  struct Shared {
    std::thread thread;
    std::mutex mutex;  // protects what follows
    std::condition_variable changed;
    int status = MPISTRAT_DONE;
    bool stops = false;
  };

  Task* task_;
  bool has_call_ = false;  // the owner's thread alone uses it
  pid_t owner_ = 0;
  std::unique_ptr<Shared> shared_;
};

}  // namespace mpistrat

#endif  // MPISTRAT_SHM_PROGRESS_H_
