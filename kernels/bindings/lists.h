#ifndef MPISTRAT_BINDINGS_LISTS_H_
#define MPISTRAT_BINDINGS_LISTS_H_

#include <nanobind/nanobind.h>

namespace mpistrat {

// What fused calls do array by array, which takes Python longer than short arrays take to travel.
void bind_lists(nanobind::module_& module);

}  // namespace mpistrat

#endif  // MPISTRAT_BINDINGS_LISTS_H_
