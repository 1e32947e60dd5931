#ifndef MPISTRAT_BINDINGS_ARRAY_LISTS_H_
#define MPISTRAT_BINDINGS_ARRAY_LISTS_H_

// Python functions on lists of arrays: are_alike and cut.

#include <nanobind/nanobind.h>

namespace mpistrat {

// What fused calls do array by array, which takes Python longer than short arrays take to travel.
void bind_array_lists(nanobind::module_& module);

}  // namespace mpistrat

#endif  // MPISTRAT_BINDINGS_ARRAY_LISTS_H_
