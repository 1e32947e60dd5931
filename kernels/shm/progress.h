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

#include "node.h"

namespace mpistrat {

class Progress {
 public:
  explicit Progress(Node* node) : node_(node) {}
  ~Progress();

  // Take the call under way; from now on only wait() may be asked about it.
  void take_over();

  // Whether there is a call that was taken over, and whose end wait() has not told yet.
  bool has_call() const { return has_call_; }

  // Wait for about `budget_ns` until the call is over.
  MpistratStatus wait(uint64_t budget_ns);

 private:
  void run();

  // What both threads use.
  struct Shared {
    std::thread thread;
    std::mutex mutex;  // protects what follows
    std::condition_variable changed;
    MpistratStatus status = MPISTRAT_DONE;
    bool stops = false;
  };

  Node* node_;
  bool has_call_ = false;  // the owner's thread alone uses it
  pid_t owner_ = 0;
  std::unique_ptr<Shared> shared_;
};

}  // namespace mpistrat

#endif  // MPISTRAT_SHM_PROGRESS_H_
