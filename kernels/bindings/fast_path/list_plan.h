#ifndef MPISTRAT_BINDINGS_FAST_PATH_LIST_PLAN_H_
#define MPISTRAT_BINDINGS_FAST_PATH_LIST_PLAN_H_

// The transfers of a list of arrays: one for the arrays of each dtype.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "call_arguments.h"

namespace mpistrat {

// The arrays of one dtype.
struct DtypeGroup {
  PyArrayObject* first;
  int dtype;  // MpistratDtype
  int64_t nbytes, num_arrays;
};

// What the transfers of a list are, in their order: that of the groups' first arrays, as in
// operations/allreduce_many.py.
struct ListPlan {
  std::vector<DtypeGroup> groups;
  std::vector<uint8_t> group_by_array;  // of each array; empty if there is one group
  int64_t nbytes = 0;                   // of all groups

  bool has(size_t group, Py_ssize_t array) const {
    return group_by_array.empty() || group_by_array[static_cast<size_t>(array)] == group;
  }
  Plain transfer(const Arguments& arguments, size_t group) const;
};

// Fill in what is known before there is memory for the results. Returns false where the general way
// is to be taken.
bool plan_list(const Arguments& arguments, ListPlan* plan);

}  // namespace mpistrat

#endif  // MPISTRAT_BINDINGS_FAST_PATH_LIST_PLAN_H_
