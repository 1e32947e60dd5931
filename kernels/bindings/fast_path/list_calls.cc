#include "list_calls.h"

#include <algorithm>
#include <utility>

#include "../array_lists.h"
#include "result_memory.h"

namespace mpistrat {
namespace {

// Bytes of new results: from here on the general way costs nothing beside the copies, and keeps
// more memory for the next call (buffer_pool.py).
constexpr int64_t kMostNewBytes = 64 << 20;

MpistratPiece piece_of(PyArrayObject* array) {
  return {PyArray_DATA(array), static_cast<int64_t>(PyArray_NBYTES(array))};
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

// New memory for the results of a group.
PyArrayObject* new_flat(const DtypeGroup& group) {
  PyArray_Descr* dtype = PyArray_DESCR(group.first);
  const npy_intp size = group.nbytes / PyDataType_ELSIZE(dtype);
  return reinterpret_cast<PyArrayObject*>(new_result(dtype, 1, &size));
}

bool add_new_results(PyObject* list, const ListPlan& plan, size_t group, PyObject* results) {
  Owned flat;
  PyArrayObject* memory = new_flat(plan.groups[group]);
  flat.object = reinterpret_cast<PyObject*>(memory);
  npy_intp start = 0;
  for (Py_ssize_t i = 0; memory && i < PyTuple_GET_SIZE(list); ++i) {
    if (!plan.has(group, i)) continue;
    PyObject* view = part_of(memory, start, array_at(list, i));
    if (!view) return false;
    PyList_SET_ITEM(results, i, view);
    start += PyArray_SIZE(array_at(list, i));
  }
  return memory != nullptr;
}

PyObject* new_results(PyObject* list, const ListPlan& plan) {
  PyObject* results = PyList_New(PyTuple_GET_SIZE(list));
  for (size_t group = 0; results && group < plan.groups.size(); ++group)
    if (!add_new_results(list, plan, group, results)) Py_CLEAR(results);
  return results;
}

}  // namespace

bool take_list(PyObject* value, Owned* list) {
  if (!PyList_CheckExact(value) && !PyTuple_CheckExact(value)) return false;
  Py_XSETREF(list->object, PySequence_Tuple(value));
  if (!list->object || PyTuple_GET_SIZE(list->object) == 0) return false;
  const Py_ssize_t count = PyTuple_GET_SIZE(list->object);
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* one = PyTuple_GET_ITEM(list->object, i);
    if (!PyArray_CheckExact(one) || !is_plain(array_at(list->object, i))) return false;
  }
  return true;
}

int type_num_of(PyObject* list) {
  const int first = PyArray_TYPE(array_at(list, 0));
  for (Py_ssize_t i = 1; i < PyTuple_GET_SIZE(list); ++i)
    if (PyArray_TYPE(array_at(list, i)) != first) return -1;
  return first;
}

Shapes shapes_of(PyObject* list) {
  Shapes shapes;
  if (!list) return shapes;
  const Py_ssize_t count = PyTuple_GET_SIZE(list);
  const bool has_dtypes = type_num_of(list) < 0;
  shapes.reserve(static_cast<size_t>(4 * count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyArrayObject* array = array_at(list, i);
    if (has_dtypes) shapes.push_back(PyArray_TYPE(array));
    shapes.push_back(PyArray_NDIM(array));
    shapes.insert(shapes.end(), PyArray_DIMS(array), PyArray_DIMS(array) + PyArray_NDIM(array));
  }
  return shapes;
}

PyObject* results_of_list(const Arguments& arguments, const ListPlan& plan) {
  PyObject* list = arguments.list.object;
  if (arguments.out != Py_None) return given_results(arguments.out, list);
  return plan.nbytes <= kMostNewBytes ? new_results(list, plan) : nullptr;
}

bool can_take_results(PyObject* places, PyObject* arrays) {
  const Py_ssize_t count = PyTuple_GET_SIZE(arrays);
  if (PyTuple_GET_SIZE(places) != count) return false;
  for (Py_ssize_t i = 0; i < count; ++i)
    if (!takes(PyTuple_GET_ITEM(places, i), array_at(arrays, i))) return false;
  return are_apart(places);
}

void place_group(PyObject* list, PyObject* results, const ListPlan& plan, size_t group,
                 FastCall* call) {
  call->sends.clear();
  call->recvs.clear();
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(list); ++i) {
    if (!plan.has(group, i)) continue;
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
