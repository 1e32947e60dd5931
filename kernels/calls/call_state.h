#ifndef MPISTRAT_CALLS_CALL_STATE_H_
#define MPISTRAT_CALLS_CALL_STATE_H_

// The state of a node's or a wire's calls that Python and the fast path share.

#include <atomic>
#include <cstdint>
#include <vector>

#include "mpistrat/calls.h"

namespace mpistrat {

// A call under way, as the kernels and the records want it.
struct FastCall {
  MpistratSpec spec = {};  // its lists are these:
  MpistratPiece send = {}, recv = {};
  std::vector<MpistratPiece> sends, recvs;  // of a list of arrays
  std::vector<int64_t> blocks;              // bytes by rank
  MpistratTicket ticket = {};
};

// A node or a wire as Python holds it, and what its fast calls have to know.
struct CallState {
  MpistratCalls* calls = nullptr;
  int rank = 0, size = 0;
  bool copies_own = false;  // whether a root that broadcasts copies to its own result
  // How long a nonblocking call waits at first, to end sooner.
  uint64_t nonblocking_ns = 100'000;
  bool may_detach = true;             // whether a thread of the kernels may carry calls out
  std::atomic<bool> is_ready{false};  // Python allows fast calls: open, sound, nothing queued
  std::atomic<bool> is_busy{false};   // a call is under way; whoever sets it makes that call
  std::atomic<bool> is_fast{false};   // it is, or the last one was, a fast call
  std::atomic<int64_t> label{0};      // a number for what the calls are made for
  std::atomic<int64_t> fast_calls{0};
  bool has_digests = true;             // whether calls are compared
  MpistratRecords* records = nullptr;  // where fast calls are recorded, if they are
  FastCall call = {};                  // the fast one under way

  // A failed call is raised by Calls::check (bindings/calls.h), so that all end in one place.
  int wait(uint64_t budget_ns) {
    const int status = mpistrat_wait(calls, budget_ns);
    return status == MPISTRAT_MPI_ERROR ? static_cast<int>(MPISTRAT_WAITING) : status;
  }
};

}  // namespace mpistrat

#endif  // MPISTRAT_CALLS_CALL_STATE_H_
