// The Python module mpistrat._kernels: the C functions of the kernels, with NumPy arrays.
//
// No defaults and no logic: both are Python's (mpistrat/collectives/backends/shm.py,
// hierarchical.py, ps/).

#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "../common/start_watch.h"
#include "array_lists.h"
#include "calls.h"
#include "dtypes.h"
#include "fast_path/call_arguments.h"
#include "fast_path/collective_method.h"
#include "fast_path/fast_calls.h"
#include "fast_path/result_memory.h"
#include "flight_recorder.h"
#include "mpistrat/shm.h"
#include "optimizer_updates.h"
#include "store.h"
#include "wire.h"

namespace nb = nanobind;
using mpistrat::Calls;
using mpistrat::StartWatch;

namespace {

// A node, and the memory that it lives in.
struct Node : Calls {
  nb::object memory;
  MpistratNode* node;

  Node(nb::object memory_of, size_t address, int rank_, int size_, int num_cpus)
      : memory(std::move(memory_of)) {
    rank = rank_;
    size = size_;
    node = mpistrat_node_open(reinterpret_cast<void*>(address), rank, size, num_cpus);
    if (!node) throw std::bad_alloc();
    calls = mpistrat_node_calls(node);
    copies_own = true;
  }
  ~Node() override { mpistrat_node_close(node); }
  Node(const Node&) = delete;
};

// An array of the given dtype for a result.
nb::object new_result(nb::handle dtype, const std::vector<npy_intp>& shape) {
  auto* descr = reinterpret_cast<PyArray_Descr*>(dtype.ptr());
  if (!PyArray_DescrCheck(dtype.ptr())) throw nb::type_error("expected a dtype");
  if (shape.size() > NPY_MAXDIMS) throw nb::value_error("too many dimensions");
  PyObject* made = mpistrat::new_result(descr, static_cast<int>(shape.size()), shape.data());
  if (!made) throw nb::python_error();
  return nb::steal(made);
}

// What other processes read to see whether they can: (address, value).
std::pair<uint64_t, uint64_t> token(Node& self) {
  std::pair<uint64_t, uint64_t> found;
  mpistrat_token(self.node, &found.first, &found.second);
  return found;
}

void reach(Node& self, const std::vector<int32_t>& pids) {
  if (pids.size() != static_cast<size_t>(self.size)) throw nb::value_error("expected a pid a rank");
  mpistrat_reach(self.node, pids.data());
}

int add_region(Node& self, const std::vector<size_t>& bases, size_t nbytes) {
  std::vector<void*> pointers;
  for (size_t base : bases) pointers.push_back(reinterpret_cast<void*>(base));
  return mpistrat_region_add(self.node, pointers.data(), nbytes);
}

// `figures` in the order of MpistratTuning.
void tune(Node& self, int kind, bool halves, const std::array<int64_t, 5>& figures) {
  if (kind < 0 || kind >= MPISTRAT_NUM_KINDS) throw nb::value_error("no such kind of call");
  const MpistratTuning tuning{figures[0], figures[1], figures[2], figures[3], figures[4]};
  mpistrat_tune(self.node, kind, halves, &tuning);
}

}  // namespace

NB_MODULE(_kernels, m) {
  nb::set_leak_warnings(false);  // communicators may live until the interpreter ends
  if (!mpistrat::init_fast_calls() || !mpistrat::init_call_arguments() ||
      !mpistrat::init_result_memory() || !mpistrat::init_collective_method(m.ptr()))
    throw nb::python_error();
  m.def("node_bytes", &mpistrat_node_bytes);
  m.def("has_token", [](int32_t pid, uint64_t address, uint64_t value) {
    return mpistrat_has_token(pid, address, value) != 0;
  });
  m.def("register_dtype", &mpistrat::register_dtype);
  m.def("dtype_of", [](nb::handle array) { return mpistrat::dtype_of(array.ptr()); });
  m.def("new_result", &new_result);
  mpistrat::bind_records(m);
  mpistrat::bind_calls(m);
  mpistrat::bind_array_lists(m);
  mpistrat::bind_updates(m);
  nb::class_<Node, Calls>(m, "Node")
      .def(nb::init<nb::object, size_t, int, int, int>())
      .def_prop_ro("address", [](Node& self) { return reinterpret_cast<size_t>(self.node); })
      .def("token", &token)
      .def("reach", &reach)
      .def("add_region", &add_region)
      .def("remove_region", [](Node& self, int id) { mpistrat_region_remove(self.node, id); })
      .def("tune", &tune);
  nb::class_<StartWatch>(m, "StartWatch")
      .def("__init__",
           [](StartWatch* self, std::string me, std::string variable, std::string file,
              int num_here, int num_ranks, int launcher, double timeout_s, double ended_after_s) {
             new (self) StartWatch({std::move(me), std::move(variable), std::move(file), num_here,
                                    num_ranks, launcher, timeout_s, ended_after_s});
           })
      .def("end", &StartWatch::end);
  mpistrat::bind_wire(m);
  mpistrat::bind_store(m);
}
