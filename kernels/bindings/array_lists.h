#ifndef MPISTRAT_BINDINGS_ARRAY_LISTS_H_
#define MPISTRAT_BINDINGS_ARRAY_LISTS_H_

// Python functions on lists of arrays: are_alike, can_take_results and cut.

#include <nanobind/nanobind.h>

#include "numpy_api.h"

namespace mpistrat {

// What calls of lists do array by array: Python would take longer than short arrays take to travel.
void bind_array_lists(nanobind::module_& module);

// Return a view of `flat` from element `start` on, of the shape of `like`. Null with a Python error
// set if memory lacks.
PyObject* part_of(PyArrayObject* flat, npy_intp start, PyArrayObject* like);

}  // namespace mpistrat

#endif  // MPISTRAT_BINDINGS_ARRAY_LISTS_H_
