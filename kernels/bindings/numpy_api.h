#ifndef MPISTRAT_BINDINGS_NUMPY_API_H_
#define MPISTRAT_BINDINGS_NUMPY_API_H_

// NumPy's C API, imported once (in fast_calls.cc) for all files of the module.

#define PY_ARRAY_UNIQUE_SYMBOL mpistrat_numpy_api
#define NPY_NO_DEPRECATED_API NPY_1_22_API_VERSION
#ifndef MPISTRAT_IMPORTS_NUMPY
#define NO_IMPORT_ARRAY
#endif
#include <Python.h>
#include <numpy/arrayobject.h>

#endif  // MPISTRAT_BINDINGS_NUMPY_API_H_
