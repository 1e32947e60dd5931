#ifndef MPISTRAT_BINDINGS_CALLS_H_
#define MPISTRAT_BINDINGS_CALLS_H_

#include <nanobind/nanobind.h>

#include <map>

#include "calls_handle.h"

namespace mpistrat {

// What a node and a wire have in common for Python: calls with NumPy arrays.
struct __attribute__((visibility("hidden"))) Calls : CallsHandle {
  nanobind::object held, records_object;
  std::map<int64_t, nanobind::object> queued;  // by number, until they are over

  virtual ~Calls() = default;

  // Raise what has made further calls impossible, if anything has.
  virtual void check() {}
};

void bind_calls(nanobind::module_& module);

}  // namespace mpistrat

#endif  // MPISTRAT_BINDINGS_CALLS_H_
