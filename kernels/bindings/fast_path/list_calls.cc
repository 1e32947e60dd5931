#include "list_calls.h"

#include <algorithm>
#include <utility>

#include "../array_lists.h"
#include "../dtypes.h"
#include "result_memory.h"

namespace mpistrat {
namespace {

// Bytes of new results: from here on the general way costs nothing beside the copies, and keeps
// more memory for the next call (buffer_pool.py).
constexpr int64_t kMostNewBytes = 64 << 20;

PyArrayObject* array_at(PyObject* list, Py_ssize_t i) {
  return reinterpret_cast<PyArrayObject*>(PyTuple_GET_ITEM(list, i));
}

MpistratPiece piece_of(PyArrayObject* array) {
  return {PyArray_DATA(array), static_cast<int64_t>(PyArray_NBYTES(array))};
}

int64_t bytes_of(PyObject* list) {
  int64_t total = 0;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(list); ++i)
    total += PyArray_NBYTES(array_at(list, i));
  return total;
}

// Whether the result of `source` can be written to `out` at once.
bool takes(PyObject* out, PyArrayObject* source) {
  if (!PyArray_CheckExact(out)) return false;
  auto* array = reinterpret_cast<PyArrayObject*>(out);
  return is_plain(array) && PyArray_ISWRITEABLE(array) && PyArray_NBYTES(array) > 0 &&
         PyArray_TYPE(array) == PyArray_TYPE(source) && PyArray_SAMESHAPE(array, source) &&
         (PyArray_BYTES(array) == PyArray_BYTES(source) || !overlap(array, source));
}

// Whether no two arrays have memory in common.
bool are_apart(PyObject* arrays) {
  const Py_ssize_t count = PyTuple_GET_SIZE(arrays);
  std::vector<std::pair<const char*, const char*>> ranges;
  ranges.reserve(static_cast<size_t>(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    const char* begin = PyArray_BYTES(array_at(arrays, i));
    ranges.emplace_back(begin, begin + PyArray_NBYTES(array_at(arrays, i)));
  }
  if (!std::is_sorted(ranges.begin(), ranges.end())) std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i)
    if (ranges[i].first < ranges[i - 1].second) return false;
  return true;
}

PyObject* given_results(PyObject* out, PyObject* list) {
  if (!PyList_CheckExact(out) && !PyTuple_CheckExact(out)) return nullptr;
  Owned given;
  given.object = PySequence_Tuple(out);
  return given.object && can_take_results(given.object, list) ? PySequence_List(given.object)
                                                              : nullptr;
}

PyObject* new_results(PyObject* list, int64_t nbytes) {
  PyArray_Descr* dtype = PyArray_DESCR(array_at(list, 0));
  const npy_intp size = nbytes / PyDataType_ELSIZE(dtype);
  Owned flat;
  flat.object = new_result(dtype, 1, &size);
  return flat.object ? parts_of(reinterpret_cast<PyArrayObject*>(flat.object), list) : nullptr;
}

}  // namespace

bool take_list(PyObject* value, Owned* list) {
  if (!PyList_CheckExact(value) && !PyTuple_CheckExact(value)) return false;
  Py_XSETREF(list->object, PySequence_Tuple(value));
  if (!list->object || PyTuple_GET_SIZE(list->object) == 0) return false;
  const Py_ssize_t count = PyTuple_GET_SIZE(list->object);
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* one = PyTuple_GET_ITEM(list->object, i);
    if (!PyArray_CheckExact(one) || !is_plain(array_at(list->object, i)) ||
        PyArray_TYPE(array_at(list->object, i)) != type_num_of(list->object))
      return false;
  }
  return true;
}

int type_num_of(PyObject* list) { return PyArray_TYPE(array_at(list, 0)); }

Shapes shapes_of(PyObject* list) {
  Shapes shapes;
  if (!list) return shapes;
  const Py_ssize_t count = PyTuple_GET_SIZE(list);
  shapes.reserve(static_cast<size_t>(4 * count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyArrayObject* array = array_at(list, i);
    shapes.push_back(PyArray_NDIM(array));
    shapes.insert(shapes.end(), PyArray_DIMS(array), PyArray_DIMS(array) + PyArray_NDIM(array));
  }
  return shapes;
}

bool plan_list(const Arguments& arguments, Plain* call) {
  PyObject* list = arguments.list.object;
  const int dtype = dtype_of(PyTuple_GET_ITEM(list, 0));
  if (!can_reduce(arguments.op, dtype)) return false;
  const int64_t nbytes = bytes_of(list);
  const int32_t kind = arguments.method->kind;
  *call = {kind, arguments.op,          dtype, 0, nullptr, nullptr, nbytes, nbytes, 0,
           0,    PyTuple_GET_SIZE(list)};
  return nbytes > 0;
}

PyObject* results_of_list(const Arguments& arguments, int64_t nbytes) {
  PyObject* list = arguments.list.object;
  if (arguments.out != Py_None) return given_results(arguments.out, list);
  return nbytes <= kMostNewBytes ? new_results(list, nbytes) : nullptr;
}

bool can_take_results(PyObject* places, PyObject* arrays) {
  const Py_ssize_t count = PyTuple_GET_SIZE(arrays);
  if (PyTuple_GET_SIZE(places) != count) return false;
  for (Py_ssize_t i = 0; i < count; ++i)
    if (!takes(PyTuple_GET_ITEM(places, i), array_at(arrays, i))) return false;
  return are_apart(places);
}

void place_list(PyObject* list, PyObject* results, FastCall* call) {
  call->sends.clear();
  call->recvs.clear();
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(list); ++i) {
    auto* result = reinterpret_cast<PyArrayObject*>(PyList_GET_ITEM(results, i));
    append_piece(piece_of(array_at(list, i)), &call->sends);
    append_piece(piece_of(result), &call->recvs);
  }
}

void append_piece(const MpistratPiece& next, std::vector<MpistratPiece>* pieces) {
  if (next.nbytes == 0) return;
  const MpistratPiece* last = pieces->empty() ? nullptr : &pieces->back();
  if (last && static_cast<uint8_t*>(last->data) + last->nbytes == next.data)
    pieces->back().nbytes += next.nbytes;
  else
    pieces->push_back(next);
}

}  // namespace mpistrat
