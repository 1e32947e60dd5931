#include "dtypes.h"

#include "mpistrat/types.h"
#include "numpy_api.h"

namespace mpistrat {
namespace {

int user_type_num = -1, user_dtype = -1;

}  // namespace

void register_dtype(int type_num, int dtype) {
  user_type_num = type_num;
  user_dtype = dtype;
}

int dtype_of(PyObject* object) {
  auto* array = reinterpret_cast<PyArrayObject*>(object);
  switch (PyArray_TYPE(array)) {
    case NPY_BOOL:
      return MPISTRAT_BOOL;
    case NPY_HALF:
      return MPISTRAT_FLOAT16;
    case NPY_FLOAT:
      return MPISTRAT_FLOAT32;
    case NPY_DOUBLE:
      return MPISTRAT_FLOAT64;
    case NPY_CFLOAT:
      return MPISTRAT_COMPLEX64;
    case NPY_CDOUBLE:
      return MPISTRAT_COMPLEX128;
    default:
      break;
  }
  if (PyArray_TYPE(array) == user_type_num) return user_dtype;
  if (!PyArray_ISINTEGER(array)) return -1;
  const int first = PyArray_ISUNSIGNED(array) ? MPISTRAT_UINT8 : MPISTRAT_INT8;
  switch (PyArray_ITEMSIZE(array)) {
    case 1:
      return first;
    case 2:
      return first + 1;
    case 4:
      return first + 2;
    default:
      return first + 3;
  }
}

}  // namespace mpistrat
