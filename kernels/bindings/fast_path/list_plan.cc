#include "list_plan.h"

#include "../dtypes.h"
#include "list_calls.h"

namespace mpistrat {
namespace {

// The group of an array's dtype, which is a new one if it is the first of its dtype.
size_t find_or_add_group(PyArrayObject* array, std::vector<DtypeGroup>* groups) {
  size_t group = 0;
  while (group < groups->size() && PyArray_TYPE((*groups)[group].first) != PyArray_TYPE(array))
    ++group;
  if (group == groups->size())
    groups->push_back({array, dtype_of(reinterpret_cast<PyObject*>(array)), 0, 0});
  return group;
}

// Whether a fast call can reduce the groups. NumPy has several numbers of one dtype (of int64 those
// of long and long long), whose arrays Python reduces as one group.
bool can_reduce_all(int op, const std::vector<DtypeGroup>& groups) {
  unsigned seen = 0;
  for (const DtypeGroup& one : groups) {
    if (one.nbytes == 0 || !can_reduce(op, one.dtype) || (seen >> one.dtype & 1)) return false;
    seen |= 1u << one.dtype;
  }
  return true;
}

}  // namespace

Plain ListPlan::transfer(const Arguments& arguments, size_t group) const {
  const DtypeGroup& one = groups[group];
  return {arguments.method->kind,
          arguments.op,
          one.dtype,
          0,
          nullptr,
          nullptr,
          one.nbytes,
          one.nbytes,
          0,
          0,
          one.num_arrays};
}

bool plan_list(const Arguments& arguments, ListPlan* plan) {
  PyObject* list = arguments.list.object;
  const Py_ssize_t count = PyTuple_GET_SIZE(list);
  const bool is_mixed = type_num_of(list) < 0;
  if (is_mixed) plan->group_by_array.resize(static_cast<size_t>(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyArrayObject* array = array_at(list, i);
    const size_t group = find_or_add_group(array, &plan->groups);
    if (is_mixed) plan->group_by_array[static_cast<size_t>(i)] = static_cast<uint8_t>(group);
    plan->groups[group].nbytes += PyArray_NBYTES(array);
    ++plan->groups[group].num_arrays;
    plan->nbytes += PyArray_NBYTES(array);
  }
  return can_reduce_all(arguments.op, plan->groups);
}

}  // namespace mpistrat
