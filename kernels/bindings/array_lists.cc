#include "array_lists.h"

#include "fast_path/list_calls.h"
#include "numpy_api.h"

namespace nb = nanobind;

namespace mpistrat {
namespace {

PyArrayObject* as_array(nb::handle object) {
  return reinterpret_cast<PyArrayObject*>(object.ptr());
}

// In C order and native byte order, aligned, and of no subclass.
bool is_plain(nb::handle object) {
  return PyArray_CheckExact(object.ptr()) && PyArray_ISCARRAY_RO(as_array(object));
}

// Whether there are arrays, all plain ones, with the same number of a dtype.
bool are_alike(const nb::list& arrays) {
  if (arrays.size() == 0 || !is_plain(arrays[0])) return false;
  const int type_num = PyArray_TYPE(as_array(arrays[0]));
  for (nb::handle item : arrays)
    if (!is_plain(item) || PyArray_TYPE(as_array(item)) != type_num) return false;
  return true;
}

// Whether `places` can take the results of `arrays` as they are; both are lists.
bool can_take(const nb::list& places, const nb::list& arrays) {
  return are_alike(arrays) && can_take_results(nb::tuple(places).ptr(), nb::tuple(arrays).ptr());
}

// A list of views of the parts of `flat`, one after the other, of the shapes of the arrays `like`.
PyObject* parts_of(PyArrayObject* flat, PyObject* like) {
  const Py_ssize_t count = PyList_GET_SIZE(like);
  PyObject* parts = PyList_New(count);
  npy_intp start = 0;
  for (Py_ssize_t i = 0; parts && i < count; ++i) {
    PyArrayObject* one = as_array(PyList_GET_ITEM(like, i));
    PyObject* view = part_of(flat, start, one);
    if (view)
      PyList_SET_ITEM(parts, i, view);
    else
      Py_CLEAR(parts);
    start += PyArray_SIZE(one);
  }
  return parts;
}

// Views of the parts of `flat`, one after the other, of the shapes of the arrays `like`.
nb::list cut(nb::handle flat_object, const nb::list& like) {
  if (!is_plain(flat_object)) throw nb::type_error("expected a flat NumPy array");
  PyArrayObject* flat = as_array(flat_object);
  npy_intp size = 0;
  for (nb::handle item : like) {
    if (!PyArray_Check(item.ptr())) throw nb::type_error("expected NumPy arrays");
    size += PyArray_SIZE(as_array(item));
  }
  if (size > PyArray_SIZE(flat)) throw nb::value_error("expected as many elements");
  PyObject* parts = parts_of(flat, like.ptr());
  if (!parts) throw nb::python_error();
  return nb::steal<nb::list>(parts);
}

}  // namespace

PyObject* part_of(PyArrayObject* flat, npy_intp start, PyArrayObject* like) {
  PyArray_Descr* dtype = PyArray_DESCR(flat);
  char* data = PyArray_BYTES(flat) + start * PyArray_ITEMSIZE(flat);
  Py_INCREF(dtype);  // the new array takes it
  PyObject* view =
      PyArray_NewFromDescr(&PyArray_Type, dtype, PyArray_NDIM(like), PyArray_DIMS(like), nullptr,
                           data, PyArray_FLAGS(flat), nullptr);
  if (!view) return nullptr;
  Py_INCREF(flat);  // the view takes it
  if (PyArray_SetBaseObject(as_array(view), reinterpret_cast<PyObject*>(flat)) == 0) return view;
  Py_DECREF(view);
  return nullptr;
}

void bind_array_lists(nb::module_& module) {
  module.def("are_alike", &are_alike);
  module.def("can_take_results", &can_take);
  module.def("cut", &cut);
}

}  // namespace mpistrat
