#ifndef MPISTRAT_BINDINGS_FAST_PATH_LIST_CALLS_H_
#define MPISTRAT_BINDINGS_FAST_PATH_LIST_CALLS_H_

// Lists of arrays, which fast calls reduce dtype by dtype: the arrays of one dtype as if they were
// one array, in one transfer. Lists are held as tuples of their own: users may change theirs while
// a call is under way.

#include <vector>

#include "call_arguments.h"
#include "list_plan.h"

namespace mpistrat {

// Take a list or tuple of one or more plain arrays, as a tuple; returns false, perhaps with a
// Python error set, if `value` is anything else.
bool take_list(PyObject* value, Owned* list);

// An array of a tuple of them.
inline PyArrayObject* array_at(PyObject* list, Py_ssize_t i) {
  return reinterpret_cast<PyArrayObject*>(PyTuple_GET_ITEM(list, i));
}

// NumPy's number of the arrays' dtype, or -1 if they have several.
int type_num_of(PyObject* list);

// How many dimensions each array has, and which, and its dtype if there are several; nothing where
// there is no list.
Shapes shapes_of(PyObject* list);

// Return a list of the arrays that the results go to: those of `out`, or views of new memory, those
// of a group one after the other. Null without a Python error set where the general way is to be
// taken.
PyObject* results_of_list(const Arguments& arguments, const ListPlan& plan);

// Whether the result of each array can be written at once to its place in `places`, of which no two
// have memory in common. Both are tuples.
bool can_take_results(PyObject* places, PyObject* arrays);

// Tell the kernels where the arrays and results of a group lie.
void place_group(PyObject* list, PyObject* results, const ListPlan& plan, size_t group,
                 FastCall* call);

// Append a piece; with the last one it becomes one if it begins where that ends, since registered
// memory is looked up by piece. Empty pieces are left out.
void append_piece(const MpistratPiece& next, std::vector<MpistratPiece>* pieces);

}  // namespace mpistrat

#endif  // MPISTRAT_BINDINGS_FAST_PATH_LIST_CALLS_H_
