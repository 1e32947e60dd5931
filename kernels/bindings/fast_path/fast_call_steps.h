#ifndef MPISTRAT_BINDINGS_FAST_PATH_FAST_CALL_STEPS_H_
#define MPISTRAT_BINDINGS_FAST_PATH_FAST_CALL_STEPS_H_

// What a FastCalls (fast_calls.h) holds, and the steps that its calls of arrays (fast_calls.cc) and
// of lists (carry_out_list.h) have in common.

#include <Python.h>

#include <cstddef>
#include <cstdint>

#include "../../calls/fast_path.h"
#include "call_arguments.h"

namespace mpistrat {

constexpr int64_t kHoldGilBytes = 16 << 10;  // longer calls let other threads run at once
// A nonblocking call of up to kNonblockingBytes waits for its peers for a moment, since to end it
// by Python and the queue's thread takes longer.
constexpr int64_t kNonblockingBytes = 64 << 10;

struct FastCalls {
  PyObject_HEAD;
  PyObject *calls_object, *ticket, *finish, *lose, *over;
  PyObject* form;  // like what was last scattered to this rank, by `form_root`; or null
  int form_root;
  unsigned misses;  // nonblocking calls in a row that were not over in time
  FastPath path;
};

// Errors before a call has begun are the general way's, which tells the peers of them.
PyObject* leave_to_python();

// What the root scatters, as far as this rank knows; or null.
PyArrayObject* form_of(FastCalls* self, const Arguments& call);

enum Claim { kClaimed, kRefused };

// Claim the calls, with the ticket of this one at hand; Python is asked once for each kind.
Claim claim_with_ticket(FastCalls* self, const Arguments& call, PyArrayObject* form,
                        const MpistratTicket** ticket);

// Stay with the transfer that has begun; returns its MpistratStatus.
int stay(FastCalls* self, const Arguments& arguments, const Plain& call);

// End a call in Python, from its transfer under way on; tell `lose` of an error, again if one more
// interrupt strikes that.
PyObject* finish(FastCalls* self, const Arguments& call, int status, int64_t sequence,
                 PyObject* out, size_t transfer = 0);

// What is returned of a call that is over.
PyObject* result_of(FastCalls* self, const Arguments& arguments, PyObject* out);

}  // namespace mpistrat

#endif  // MPISTRAT_BINDINGS_FAST_PATH_FAST_CALL_STEPS_H_
