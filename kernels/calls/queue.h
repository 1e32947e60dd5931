#ifndef MPISTRAT_CALLS_QUEUE_H_
#define MPISTRAT_CALLS_QUEUE_H_

// The queue of calls that go on while their rank computes: a thread carries on with the first one,
// and begins each other as soon as the one before is over. It needs nothing of Python, and so never
// waits for the interpreter's lock. It runs from the first call on that is handed to it. Who waits
// for a call drives it himself, so that nobody has to wake anybody.
//
// If the ranks' calls differ, or a call is the first step of several, the queue is held: there is
// more to do before what follows begins, which it does when its owner says so.
//
// One thread at a time may submit, adopt and halt; the rest is for any thread at any time.

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "mpistrat/calls.h"

namespace mpistrat {

// What carries calls out, one at a time: a node or a wire.
class Caller {
 public:
  virtual ~Caller() = default;
  virtual uint8_t* line() = 0;
  virtual const uint8_t* table() const = 0;
  virtual void begin(const MpistratSpec& spec) = 0;
  // Go on for about `budget_ns` (0: as far as is possible at once); returns an MpistratStatus.
  virtual int advance(uint64_t budget_ns) = 0;
  // Whether the call under way has data to move, and waits for no other rank.
  virtual bool is_moving() const { return false; }
  // Number of ranks.
  virtual int size() const = 0;
};

// See mpistrat_begin_counted.
void begin_counted(Caller* caller, MpistratSpec* spec, MpistratTicket* ticket);

// A call, with copies of the lists that its spec names.
struct Queued {
  MpistratSpec spec = {};  // its lists are these:
  std::vector<MpistratPiece> send, recv;
  std::vector<int64_t> send_bytes, recv_bytes;
  MpistratTicket ticket = {};
};

class Queue {
 public:
  explicit Queue(Caller* caller) : caller_(caller) {}
  ~Queue() { halt(); }

  // Let the thread end until it is needed again; whoever waits for a call drives it meanwhile. To
  // be called before the caller is destroyed.
  void halt();

  // Add a call, and return its number.
  int64_t submit(const MpistratSpec& spec, const MpistratTicket& ticket);

  // Take over the call that the caller has begun, and return its number; kNotAdopted if others are
  // queued or the queue is held: then whoever began the call carries on with it. Of the ticket only
  // its records and whether it holds others count.
  static constexpr int64_t kNotAdopted = -1;
  int64_t adopt(const MpistratTicket& ticket = {});

  // Wait for about `budget_ns` until that call is over; returns an MpistratStatus.
  int wait(int64_t number, uint64_t budget_ns);

  // Whether calls are under way, or will be without another word.
  bool is_busy();

  // Go on after a call that held the queue.
  void resume();

  // Forget the calls that have not begun, and leave the one that has: nobody drives it any more.
  void drop();

 private:
  struct Shared {
    std::thread thread;
    std::mutex mutex;  // protects what follows
    std::condition_variable changed;
    std::deque<Queued> calls;  // the first one is under way
    int64_t num_submitted = 0, num_over = 0;
    int status = MPISTRAT_DONE;  // of the last one that is over
    int num_waiting = 0;
    bool has_begun = false, is_driven = false, is_held = false, stops = false;

    bool is_busy() const { return !calls.empty() && !is_held; }
  };
  using Lock = std::unique_lock<std::mutex>;

  int64_t add(Queued call, bool has_begun);
  void run();
  void drive(Lock* lock, uint64_t budget_ns);
  void begin(Queued* call);
  void end(int status);

  Caller* caller_;
  std::atomic<pid_t> owner_{0};  // the process that has the thread
  std::unique_ptr<Shared> shared_ = std::make_unique<Shared>();
};

}  // namespace mpistrat

#endif  // MPISTRAT_CALLS_QUEUE_H_
