#ifndef MPISTRAT_TESTS_HELPERS_CALL_END_H_
#define MPISTRAT_TESTS_HELPERS_CALL_END_H_

// How a rank of a node or a wire ends a call that it has begun.

#include <cstdint>

#include "mpistrat/calls.h"

namespace mpistrat_test {

// Let the calls' own thread go on with the one under way; returns its number, or -1.
inline int64_t adopt(MpistratCalls* calls) {
  const MpistratTicket ticket = {};
  return mpistrat_adopt(calls, &ticket);
}

// Wait for the call of a number, or for the one under way if that is -1; returns its status.
inline int wait_for(MpistratCalls* calls, int64_t number, uint64_t budget_ns) {
  int status = MPISTRAT_WAITING;
  while (status == MPISTRAT_WAITING)
    status =
        number < 0 ? mpistrat_wait(calls, budget_ns) : mpistrat_collect(calls, number, budget_ns);
  if (number >= 0 && status != MPISTRAT_DONE) mpistrat_resume(calls);
  return status;
}

}  // namespace mpistrat_test

#endif  // MPISTRAT_TESTS_HELPERS_CALL_END_H_
