#include "mpistrat/wire.h"

#include <nanobind/stl/array.h>
#include <nanobind/stl/vector.h>

#include <new>

#include "calls.h"
#include "wire.h"

namespace nb = nanobind;

namespace mpistrat {
namespace {

// Addresses of MPI's functions, its handles, the bytes of a request and a status, and the first
// tag, in the order of MpistratMpi.
MpistratMpi mpi_of(const std::vector<intptr_t>& words) {
  if (words.size() != 8) throw nb::value_error("expected 8 numbers");
  MpistratMpi mpi = {};
  mpi.isend = reinterpret_cast<decltype(mpi.isend)>(words[0]);
  mpi.irecv = reinterpret_cast<decltype(mpi.irecv)>(words[1]);
  mpi.testsome = reinterpret_cast<decltype(mpi.testsome)>(words[2]);
  mpi.byte = words[3];
  mpi.comm = words[4];
  mpi.request_bytes = static_cast<int32_t>(words[5]);
  mpi.status_bytes = static_cast<int32_t>(words[6]);
  mpi.first_tag = static_cast<int32_t>(words[7]);
  return mpi;
}

// In the order of MpistratWireTuning.
MpistratWireTuning tuning_of(const std::array<int64_t, 4>& figures) {
  return {figures[0], figures[1], figures[2], figures[3]};
}

// A wire, the node that it uses, and what raises the error of MPI.
struct Wire : Calls {
  nb::object node, fail;
  MpistratWire* wire = nullptr;

  Wire(const std::vector<intptr_t>& mpi, nb::object node_of, size_t address, int rank_,
       const std::vector<int32_t>& nodes, const std::array<int64_t, 4>& figures, bool may_detach_,
       nb::object fail_)
      : node(std::move(node_of)), fail(std::move(fail_)) {
    rank = rank_;
    size = static_cast<int>(nodes.size());
    const MpistratMpi functions = mpi_of(mpi);
    const MpistratWireTuning tuning = tuning_of(figures);
    wire = mpistrat_wire_open(&functions, reinterpret_cast<MpistratNode*>(address), rank, size,
                              nodes.data(), &tuning);
    if (!wire) throw std::bad_alloc();
    calls = mpistrat_wire_calls(wire);
    may_detach = may_detach_;
    nonblocking_ns = 500'000;  // messages take longer
  }
  ~Wire() override { mpistrat_wire_close(wire); }
  Wire(const Wire&) = delete;

  void check() override {
    const bool is_over = mpistrat_wire_is_over(wire) != 0;
    if (is_over && mpistrat_wire_error(wire) != 0) fail(mpistrat_wire_error(wire));
  }
};

}  // namespace

void bind_wire(nb::module_& module) {
  module.def("can_call_mpi", [](const std::vector<intptr_t>& words, int rank) {
    const MpistratMpi mpi = mpi_of(words);
    return mpistrat_mpi_probe(&mpi, rank) != 0;
  });
  nb::class_<Wire, Calls>(module, "Wire")
      .def(nb::init<const std::vector<intptr_t>&, nb::object, size_t, int,
                    const std::vector<int32_t>&, const std::array<int64_t, 4>&, bool, nb::object>(),
           nb::arg(), nb::arg().none(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(),
           nb::arg())
      .def("tune",
           [](Wire& self, const std::array<int64_t, 4>& figures) {
             const MpistratWireTuning tuning = tuning_of(figures);
             mpistrat_wire_tune(self.wire, &tuning);
           })
      .def("halt", [](Wire& self) { mpistrat_halt(self.calls); })
      .def_prop_ro("is_over", [](Wire& self) { return mpistrat_wire_is_over(self.wire) != 0; });
}

}  // namespace mpistrat
