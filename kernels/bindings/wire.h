#ifndef MPISTRAT_BINDINGS_WIRE_H_
#define MPISTRAT_BINDINGS_WIRE_H_

// The Python class Wire, the calls over several nodes.

#include <nanobind/nanobind.h>

namespace mpistrat {

// Add the class Wire, the calls over several nodes; see mpistrat/wire.h.
void bind_wire(nanobind::module_& module);

}  // namespace mpistrat

#endif  // MPISTRAT_BINDINGS_WIRE_H_
