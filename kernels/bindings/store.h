#ifndef MPISTRAT_BINDINGS_STORE_H_
#define MPISTRAT_BINDINGS_STORE_H_

// The Python class Store, and functions on rows of tables.

#include <nanobind/nanobind.h>

namespace mpistrat {

// Rows of tables (mpistrat/rows.h) and stores (mpistrat/store.h).
void bind_store(nanobind::module_& module);

}  // namespace mpistrat

#endif  // MPISTRAT_BINDINGS_STORE_H_
