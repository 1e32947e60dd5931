#ifndef MPISTRAT_BINDINGS_FAST_PATH_LIST_CALLS_H_
#define MPISTRAT_BINDINGS_FAST_PATH_LIST_CALLS_H_

// Lists of arrays of one dtype, which fast calls reduce as if they were one array. Lists are held
// as tuples of their own: users may change theirs while a call is under way.

#include <vector>

#include "call_arguments.h"

namespace mpistrat {

// Take a list or tuple of one or more plain arrays of one dtype, as a tuple; returns false, perhaps
// with a Python error set, if `value` is anything else.
bool take_list(PyObject* value, Owned* list);

int type_num_of(PyObject* list);

// How many dimensions each array has, and which; nothing where there is no list.
Shapes shapes_of(PyObject* list);

// Fill in what is known before there is memory for the results. Returns false where the general way
// is to be taken.
bool plan_list(const Arguments& arguments, Plain* call);

// Return a list of the arrays that the results go to: those of `out`, or views of new memory, one
// after the other, of `nbytes` as a whole. Null without a Python error set where the general way is
// to be taken.
PyObject* results_of_list(const Arguments& arguments, int64_t nbytes);

// Whether the result of each array can be written at once to its place in `places`, of which no two
// have memory in common. Both are tuples.
bool can_take_results(PyObject* places, PyObject* arrays);

// Tell the kernels where arrays and results lie.
void place_list(PyObject* list, PyObject* results, FastCall* call);

// Append a piece; with the last one it becomes one if it begins where that ends, since registered
// memory is looked up by piece. Empty pieces are left out.
void append_piece(const MpistratPiece& next, std::vector<MpistratPiece>* pieces);

}  // namespace mpistrat

#endif  // MPISTRAT_BINDINGS_FAST_PATH_LIST_CALLS_H_
