#ifndef MPISTRAT_BINDINGS_CALLS_HANDLE_H_
#define MPISTRAT_BINDINGS_CALLS_HANDLE_H_

#include <Python.h>

#include <cstdint>
#include <cstring>

#include "mpistrat/gate.h"
#include "mpistrat/shm.h"

namespace mpistrat {

// An all-reduce of the common case, as the kernels and the records want it; `op` -1 if it is none.
struct Allreduce {
  int op = -1, dtype = -1;  // op 7 is the mean: a sum, divided
  MpistratSpec spec = {};   // its pieces are these:
  MpistratPiece send = {}, recv = {};
  MpistratRecord record = {};
};

// A node or a wire as Python holds it, and what its fast calls have to know.
struct CallsHandle {
  int rank = 0, size = 0;
  bool is_ready = false;  // whether Python allows fast calls: open, sound, nothing queued
  bool is_busy = false;   // a call is under way
  bool is_fast = false;   // it is, or the last one was, a fast call
  int64_t label = 0;      // a number for what the calls are made for
  int64_t fast_calls = 0;
  bool has_digests = true;             // whether calls are compared
  MpistratRecords* records = nullptr;  // where fast calls are recorded, if they are
  Allreduce call = {};                 // the fast one under way

  virtual ~CallsHandle() = default;
  // See shm.h and wire.h.
  virtual uint8_t* line() = 0;
  virtual const uint8_t* table() = 0;
  virtual void begin(const MpistratSpec& spec) = 0;
  virtual int wait(uint64_t budget_ns) = 0;
  virtual void detach() = 0;
  virtual int64_t submit(const MpistratSpec& spec, int64_t digest,
                         const MpistratRecord& record) = 0;
  virtual int collect(int64_t number, uint64_t budget_ns) = 0;
  virtual bool is_queue_busy() = 0;
  virtual void resume() = 0;
  virtual void drop() = 0;

  // Count one more call, fill in the head of its line, and return its number.
  int64_t fill_line(int64_t digest, int64_t extra) {
    int64_t head[4];
    std::memcpy(head, line(), sizeof head);
    ++head[0];
    head[1] = digest;
    head[3] = extra;
    std::memcpy(line(), head, 2 * sizeof *head);  // head[2], the failures, is Python's
    std::memcpy(line() + 3 * sizeof *head, head + 3, sizeof *head);
    return head[0];
  }
};

}  // namespace mpistrat

#endif  // MPISTRAT_BINDINGS_CALLS_HANDLE_H_
