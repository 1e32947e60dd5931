#ifndef MPISTRAT_SHM_QUEUE_H_
#define MPISTRAT_SHM_QUEUE_H_

// All-reduces that follow each other while their rank computes: a thread begins each as soon as the
// one before is over. It needs nothing of Python, and so never waits for the interpreter's lock.
// It exists from the first call on that is handed to it. Who waits for a call drives it himself, so
// that nobody has to wake anybody.
//
// If the ranks' calls differ, the queue is held: their lines are still to be looked at, and what
// follows begins when its owner says so.

#include <sys/types.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "mpistrat/gate.h"
#include "mpistrat/shm.h"
#include "task.h"

namespace mpistrat {

// What carries calls out, one at a time: a node or a wire.
class Caller : public Task {
 public:
  virtual uint8_t* line() = 0;
  virtual void begin(const MpistratSpec& spec) = 0;
};

// A call of one source and one result, and how it is shown and recorded.
struct Queued {
  MpistratSpec spec;  // its pieces are filled in from what follows
  MpistratPiece send, recv;
  int64_t digest;
  MpistratRecord record;
};

class Queue {
 public:
  explicit Queue(Caller* caller) : caller_(caller) {}
  ~Queue() { halt(); }

  // Let the thread end; what has not been carried out is, by whoever waits for it.
  void halt();

  // Add a call, and return its number. It is recorded in `records`, unless that is null.
  int64_t submit(const Queued& call, MpistratRecords* records);

  // Wait for about `budget_ns` until that call is over; returns an MpistratStatus.
  int wait(int64_t number, uint64_t budget_ns);

  // Whether calls are under way, or will be without another word.
  bool is_busy();

  // Go on after a call that did not end well.
  void resume();

  // Forget the calls that have not begun, and leave the one that has: nobody drives it any more.
  void drop();

 private:
  struct Shared {
    std::thread thread;
    std::mutex mutex;  // protects what follows
    std::condition_variable changed;
    std::deque<Queued> calls;  // the first one is under way
    MpistratRecords* records = nullptr;
    int64_t num_over = 0;
    int status = MPISTRAT_DONE;  // of the last one that is over
    int num_waiting = 0;
    bool has_begun = false, is_driven = false, is_held = false, stops = false;

    bool is_busy() const { return !calls.empty() && !is_held; }
  };
  using Lock = std::unique_lock<std::mutex>;

  void run();
  void drive(Lock* lock, uint64_t budget_ns);
  void begin(Queued* call);
  void end(int status);

  Caller* caller_;
  int64_t num_submitted_ = 0;
  pid_t owner_ = 0;
  std::unique_ptr<Shared> shared_;
};

}  // namespace mpistrat

#endif  // MPISTRAT_SHM_QUEUE_H_
