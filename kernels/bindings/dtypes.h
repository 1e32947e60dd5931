#ifndef MPISTRAT_BINDINGS_DTYPES_H_
#define MPISTRAT_BINDINGS_DTYPES_H_

// NumPy's dtypes as the kernels number them.

#include <Python.h>

namespace mpistrat {

// Tell which NumPy type number has `dtype`, of those that NumPy itself does not know.
void register_dtype(int type_num, int dtype);

// The MpistratDtype of an array's elements, or -1.
int dtype_of(PyObject* array);

}  // namespace mpistrat

#endif  // MPISTRAT_BINDINGS_DTYPES_H_
