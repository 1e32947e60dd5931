#include "mpistrat/wire.h"

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

// A wire, the node that it uses, and what raises the error of MPI.
struct Wire : Calls {
  nb::object node, fail;
  MpistratWire* wire = nullptr;

  Wire(const std::vector<intptr_t>& mpi, nb::object node_of, size_t address, int rank_,
       const std::vector<int32_t>& nodes, const std::vector<int64_t>& tuning, bool may_detach_,
       nb::object fail_)
      : node(std::move(node_of)), fail(std::move(fail_)) {
    if (tuning.size() != 4) throw nb::value_error("expected 4 numbers");
    rank = rank_;
    size = static_cast<int>(nodes.size());
    const MpistratMpi functions = mpi_of(mpi);
    const MpistratWireTuning limits = {tuning[0], tuning[1], tuning[2], tuning[3]};
    wire = mpistrat_wire_open(&functions, reinterpret_cast<MpistratNode*>(address), rank, size,
                              nodes.data(), &limits);
    if (!wire) throw std::bad_alloc();
    calls = mpistrat_wire_calls(wire);
    may_detach = may_detach_;
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
                    const std::vector<int32_t>&, const std::vector<int64_t>&, bool, nb::object>(),
           nb::arg(), nb::arg().none(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(),
           nb::arg())
      .def("halt", [](Wire& self) { mpistrat_halt(self.calls); })
      .def_prop_ro("is_over", [](Wire& self) { return mpistrat_wire_is_over(self.wire) != 0; });
}

}  // namespace mpistrat
