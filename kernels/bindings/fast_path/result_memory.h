#ifndef MPISTRAT_BINDINGS_FAST_PATH_RESULT_MEMORY_H_
#define MPISTRAT_BINDINGS_FAST_PATH_RESULT_MEMORY_H_

// Memory of long results, used again once no array shows part of it: new memory costs more than a
// reduction, since each of its pages has to be found and cleared first. It is the process's own,
// not shared: a forked child must not see, or change, the results of its parent.
//
// BufferPool (mpistrat/collectives/arrays/buffer_pool.py) does the same in Python, which takes
// longer than the calls here may; it keeps blocks of any length, as lists of gradients need.

#include <Python.h>

#include "../numpy_api.h"

namespace mpistrat {

// Create the type of the blocks. Returns false with a Python error set.
bool init_result_memory();

// Return a new array in C order, not initialised; null with a Python error set if memory lacks.
// Python's lock is held. Steals no reference.
PyObject* new_result(PyArray_Descr* dtype, int ndim, const npy_intp* dims);

}  // namespace mpistrat

#endif  // MPISTRAT_BINDINGS_FAST_PATH_RESULT_MEMORY_H_
