#ifndef MPISTRAT_BINDINGS_FAST_PATH_FAST_CALLS_H_
#define MPISTRAT_BINDINGS_FAST_PATH_FAST_CALLS_H_

// The Python class FastCalls, one of each communicator: collectives in the common case, without a
// detour through Python (call_arguments.h), while nothing else is under way. What does not fit goes
// the general way in Python, which has the same signatures and the same answers.

#include <Python.h>

#include "../../calls/call_state.h"
#include "call_arguments.h"

namespace mpistrat {

// Create the type. Returns false with a Python error set.
bool init_fast_calls();

// Return a FastCalls for the calls of a node or a wire. Of its methods `native` and `end` are for
// code that makes calls without Python; `know_scatter` (root, array) says what kind of array a root
// scatters, which its other ranks can only remember.
//
// ticket  (method, array, op, root) -> (digest, extra, nbytes, op, reduction, dtype): how a call is
//         shown and recorded, the last three as numbers of texts; asked once for each kind of call.
//         `array` is None for barriers, and for who only receives of a scatter.
// finish  (status, (method, array, op, root, timeout, transfer), out, is_given) -> result: ends a
//         call that did not end soon, or not well; those of its transfers before number `transfer`
//         are over. `out` is where the result goes, given by the user or made here.
// over    (result) -> work: what nonblocking calls return of a call that is over.
// lose    (sequence, error, array, out): told of each error of `finish`, before it is raised. An
//         interrupt may come before `finish` has done anything.
PyObject* make_fast_calls(PyObject* calls_object, CallState* calls, PyObject* ticket,
                          PyObject* finish, PyObject* lose, PyObject* over);

// Make a call, if `state` is a FastCalls and the call is one of the common case; returns null
// without an error set if not.
PyObject* call_fast(PyObject* state, const Method* method, PyObject* const* args, Py_ssize_t nargs,
                    PyObject* kwnames);

}  // namespace mpistrat

#endif  // MPISTRAT_BINDINGS_FAST_PATH_FAST_CALLS_H_
