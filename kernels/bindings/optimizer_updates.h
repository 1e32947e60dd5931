#ifndef MPISTRAT_BINDINGS_OPTIMIZER_UPDATES_H_
#define MPISTRAT_BINDINGS_OPTIMIZER_UPDATES_H_

// The Python function `update`: update many arrays by an optimizer's rule
// (mpistrat/optimizer_updates.h).

#include <nanobind/nanobind.h>

namespace mpistrat {

void bind_updates(nanobind::module_& module);

}  // namespace mpistrat

#endif  // MPISTRAT_BINDINGS_OPTIMIZER_UPDATES_H_
