#ifndef MPISTRAT_BINDINGS_CALLS_H_
#define MPISTRAT_BINDINGS_CALLS_H_

// The Python class Calls, the base of Node and Wire.

#include <nanobind/nanobind.h>

#include <map>

#include "../calls/call_state.h"
#include "../common/backoff.h"

namespace mpistrat {

// What a node and a wire have in common for Python: calls with NumPy arrays.
struct __attribute__((visibility("hidden"))) Calls : CallState {
  nanobind::object held, records_object;
  std::map<int64_t, nanobind::object> queued;  // by number, until they are over

  virtual ~Calls() = default;

  // Keep the arrays of a call that starts, which has the node or wire to itself until it is over.
  void hold(const nanobind::object& described) {
    held = described;
    // A fast call may have claimed this for the moment until it sees that it may not begin.
    while (is_busy.exchange(true)) yield_core();
    is_fast = false;
  }

  // Raise what has made further calls impossible, if anything has.
  virtual void check() {}
};

void bind_calls(nanobind::module_& module);

}  // namespace mpistrat

#endif  // MPISTRAT_BINDINGS_CALLS_H_
