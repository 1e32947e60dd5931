#ifndef MPISTRAT_BINDINGS_FAST_PATH_COLLECTIVE_METHOD_H_
#define MPISTRAT_BINDINGS_FAST_PATH_COLLECTIVE_METHOD_H_

// The Python class CollectiveMethod: a method of `Communicator` whose calls native code makes where
// it can, and else the Python function that it was made of, which is its `__wrapped__`.

#include <Python.h>

namespace mpistrat {

// Create the type and add it to the module. Returns false with a Python error set.
bool init_collective_method(PyObject* module);

}  // namespace mpistrat

#endif  // MPISTRAT_BINDINGS_FAST_PATH_COLLECTIVE_METHOD_H_
