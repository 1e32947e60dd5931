#ifndef MPISTRAT_BINDINGS_FAST_ALLREDUCE_H_
#define MPISTRAT_BINDINGS_FAST_ALLREDUCE_H_

// `communicator.allreduce` for the common case, without a detour through Python: a NumPy array in
// C order and native byte order, nothing else under way. What does not fit goes to the method in
// Python, which has the same signature and the same answers.

#include <Python.h>

#include "../calls/call_state.h"

namespace mpistrat {

// Create the type. Returns false with a Python error set.
bool init_fast_allreduce();

// Return a callable (array, op="sum", *, out=None, timeout=None). Its methods `native` and `end`
// are for code that makes such calls without Python.
//
// general   The Python method, for all that is not the common case.
// digest    (array, op) -> int: the fingerprint of the call; asked once for each kind of call.
// finish    (status, array, op, out) -> result: ends a call that did not end soon, or not well.
// lose      (sequence, error, array, out): told of each error of `finish`, before it is raised. An
//           interrupt may come before `finish` has done anything.
PyObject* make_fast_allreduce(PyObject* calls_object, CallState* calls, PyObject* general,
                              PyObject* digest, PyObject* finish, PyObject* lose);

// Tell which NumPy type number has `dtype`, of those that NumPy itself does not know.
void register_dtype(int type_num, int dtype);

// The MpistratDtype of an array's elements, or -1.
int dtype_of(PyObject* array);

}  // namespace mpistrat

#endif  // MPISTRAT_BINDINGS_FAST_ALLREDUCE_H_
