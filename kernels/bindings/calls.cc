#include "calls.h"

#include <nanobind/stl/vector.h>

#include "fast_allreduce.h"
#include "numpy_api.h"
#include "records.h"

namespace nb = nanobind;

namespace mpistrat {
namespace {

MpistratPiece piece(nb::handle item) {
  if (!PyArray_Check(item.ptr())) throw nb::type_error("expected NumPy arrays");
  auto* array = reinterpret_cast<PyArrayObject*>(item.ptr());
  return {PyArray_DATA(array), static_cast<int64_t>(PyArray_NBYTES(array))};
}

std::vector<MpistratPiece> pieces(const nb::sequence& arrays) {
  std::vector<MpistratPiece> found;
  for (nb::handle item : arrays) found.push_back(piece(item));
  return found;
}

// Start a call whose arrays are held until the next one starts.
void start(Calls& self, int kind, bool crosses, int op, int dtype, int root, int64_t divisor,
           const nb::sequence& send, const nb::sequence& recv, std::vector<int64_t> send_bytes,
           std::vector<int64_t> recv_bytes, int64_t most_bytes, int payload_bytes) {
  self.held = nb::make_tuple(send, recv);
  self.sends = pieces(send);
  self.recvs = pieces(recv);
  self.send_bytes = std::move(send_bytes);
  self.recv_bytes = std::move(recv_bytes);
  MpistratSpec spec = {};
  spec.kind = kind;
  spec.crosses = crosses;
  spec.op = op;
  spec.dtype = dtype;
  spec.root = root;
  spec.divisor = divisor;
  spec.payload_bytes = payload_bytes;
  spec.send = self.sends.data();
  spec.num_send = static_cast<int32_t>(self.sends.size());
  spec.recv = self.recvs.data();
  spec.num_recv = static_cast<int32_t>(self.recvs.size());
  spec.send_bytes = self.send_bytes.data();
  spec.recv_bytes = self.recv_bytes.data();
  spec.most_bytes = most_bytes;
  self.is_busy = true;
  self.is_fast = false;
  mpistrat_begin(self.calls, &spec);
}

int wait(Calls& self, uint64_t budget_ns) {
  int status;
  if (budget_ns == 0) {
    self.check();
    status = self.wait(0);
  } else {
    nb::gil_scoped_release release;
    status = self.wait(budget_ns);
  }
  self.is_busy = status == MPISTRAT_WAITING;
  return status;
}

void detach(Calls& self) {
  if (self.may_detach) mpistrat_detach(self.calls);
}

nb::object bytes_view(const nb::object& owner, uint8_t* data, npy_intp rows, npy_intp columns) {
  npy_intp shape[] = {rows, columns};
  PyObject* view = rows ? PyArray_SimpleNewFromData(2, shape, NPY_UINT8, data)
                        : PyArray_SimpleNewFromData(1, shape + 1, NPY_UINT8, data);
  if (!view) throw nb::python_error();
  nb::object array = nb::steal(view);
  if (PyArray_SetBaseObject(reinterpret_cast<PyArrayObject*>(view),
                            nb::object(owner).release().ptr()))
    throw nb::python_error();
  return array;
}

// Queue an all-reduce of the common case and return its number.
int64_t submit(Calls& self, nb::handle array, nb::handle op, nb::handle out, int64_t digest) {
  Allreduce call = common_allreduce(self, array.ptr(), op.ptr(), out.ptr());
  if (call.op < 0) throw nb::value_error("expected an all-reduce of the common case");
  call.spec.send = &call.send;
  call.spec.recv = &call.recv;
  return mpistrat_submit(self.calls, &call.spec, digest, self.records, &call.record);
}

bool is_common(Calls& self, nb::handle array, nb::handle op, nb::handle out) {
  return common_allreduce(self, array.ptr(), op.ptr(), out.ptr()).op >= 0;
}

int collect(Calls& self, int64_t number, uint64_t budget_ns) {
  int status;
  {
    nb::gil_scoped_release release;
    status = mpistrat_collect(self.calls, number, budget_ns);
  }
  if (status != MPISTRAT_DONE) self.check();
  return status;
}

// Record fast calls in a ring from now on, or no more (None).
void record_in(Calls& self, const nb::object& records) {
  self.records = records.is_none() ? nullptr : nb::cast<RecordsHandle&>(records).records;
  self.records_object = records;
}

nb::object fast_allreduce(nb::handle_t<Calls> self, nb::handle general, nb::handle digest,
                          nb::handle finish, nb::handle lose) {
  Calls* calls = nb::cast<Calls*>(self);
  PyObject* made =
      make_fast_allreduce(self.ptr(), calls, general.ptr(), digest.ptr(), finish.ptr(), lose.ptr());
  if (!made) throw nb::python_error();
  return nb::steal(made);
}

}  // namespace

void bind_calls(nb::module_& module) {
  nb::class_<Calls>(module, "Calls")
      .def("start", &start)
      .def("wait", &wait)
      .def("end", [](Calls& self) { self.is_busy = false; })
      .def("detach", &detach)
      .def("is_common", &is_common, nb::arg(), nb::arg(), nb::arg().none())
      .def("submit", &submit)
      .def("collect", &collect)
      .def("resume", [](Calls& self) { mpistrat_resume(self.calls); })
      .def("drop", [](Calls& self) { mpistrat_drop(self.calls); })
      .def("fast_allreduce", &fast_allreduce)
      .def("record_in", &record_in, nb::arg().none())
      .def("line",
           [](nb::handle_t<Calls> self) {
             return bytes_view(nb::borrow(self), mpistrat_line(nb::cast<Calls*>(self)->calls), 0,
                               MPISTRAT_LINE_BYTES);
           })
      .def("table",
           [](nb::handle_t<Calls> self) {
             Calls* calls = nb::cast<Calls*>(self);
             return bytes_view(nb::borrow(self), const_cast<uint8_t*>(mpistrat_table(calls->calls)),
                               calls->size, MPISTRAT_LINE_BYTES);
           })
      .def_rw("is_ready", &Calls::is_ready)
      .def_ro("size", &Calls::size)
      .def_prop_ro("is_busy",
                   [](Calls& self) { return self.is_busy || mpistrat_is_queue_busy(self.calls); })
      .def_ro("is_fast", &Calls::is_fast)
      .def_rw("label", &Calls::label)
      .def_rw("has_digests", &Calls::has_digests)
      .def_ro("fast_calls", &Calls::fast_calls);
}

}  // namespace mpistrat
