#ifndef MPISTRAT_BINDINGS_FAST_PATH_CARRY_OUT_LIST_H_
#define MPISTRAT_BINDINGS_FAST_PATH_CARRY_OUT_LIST_H_

// Fast calls of lists of arrays: a transfer for each dtype (list_plan.h).

#include <Python.h>

#include "fast_call_steps.h"

namespace mpistrat {

// Make a call of a list; returns null without an error set where the general way is to be taken.
PyObject* call_list(FastCalls* self, const Arguments& arguments);

}  // namespace mpistrat

#endif  // MPISTRAT_BINDINGS_FAST_PATH_CARRY_OUT_LIST_H_
