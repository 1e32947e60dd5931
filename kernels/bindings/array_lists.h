#ifndef MPISTRAT_BINDINGS_ARRAY_LISTS_H_
#define MPISTRAT_BINDINGS_ARRAY_LISTS_H_

// Python functions on lists of arrays: are_alike, can_take_results and cut.

#include <nanobind/nanobind.h>

#include "numpy_api.h"

namespace mpistrat {

// What fused calls do array by array, which takes Python longer than short arrays take to travel.
void bind_array_lists(nanobind::module_& module);

// Return a list of views of the parts of `flat`, one after the other, of the shapes of the arrays
// of `like`, a list or tuple that needs no more elements. Null with a Python error set if memory
// lacks.
PyObject* parts_of(PyArrayObject* flat, PyObject* like);

}  // namespace mpistrat

#endif  // MPISTRAT_BINDINGS_ARRAY_LISTS_H_
