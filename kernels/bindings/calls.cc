#include "calls.h"

#include <nanobind/stl/array.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include "fast_path/fast_calls.h"
#include "fast_path/list_calls.h"
#include "flight_recorder.h"
#include "numpy_api.h"

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
  for (nb::handle item : arrays) append_piece(piece(item), &found);
  return found;
}

// A call as Python describes it; holds its arrays.
struct Described {
  nb::object arrays;
  std::vector<MpistratPiece> send, recv;
  std::vector<int64_t> send_bytes, recv_bytes;
  MpistratSpec spec = {};

  Described(int kind, int op, int dtype, int root, int64_t divisor, const nb::sequence& sends,
            const nb::sequence& recvs, std::vector<int64_t> send_bytes_,
            std::vector<int64_t> recv_bytes_, int64_t most_bytes, int payload_bytes)
      : arrays(nb::make_tuple(nb::tuple(sends), nb::tuple(recvs))),
        send(pieces(sends)),
        recv(pieces(recvs)),
        send_bytes(std::move(send_bytes_)),
        recv_bytes(std::move(recv_bytes_)) {
    spec.kind = kind;
    spec.op = op;
    spec.dtype = dtype;
    spec.root = root;
    spec.divisor = divisor;
    spec.payload_bytes = payload_bytes;
    spec.is_list = nb::len(sends) > 1;
    spec.send = send.data();
    spec.num_send = static_cast<int32_t>(send.size());
    spec.recv = recv.data();
    spec.num_recv = static_cast<int32_t>(recv.size());
    spec.send_bytes = send_bytes.empty() ? nullptr : send_bytes.data();
    spec.recv_bytes = recv_bytes.empty() ? nullptr : recv_bytes.data();
    spec.most_bytes = most_bytes;
  }
  Described(const Described&) = delete;
};

// Start a call, which is held until it is done, or another one starts.
void start(Calls& self, const nb::object& described, bool crosses) {
  self.hold(described);
  MpistratSpec spec = nb::cast<Described&>(described).spec;
  spec.crosses = crosses;
  mpistrat_begin(self.calls, &spec);
}

MpistratTicket ticket_of(const Calls& self, int64_t digest, int64_t extra, int64_t nbytes,
                         const std::array<int32_t, 4>& texts) {
  MpistratTicket ticket = {digest, extra, 0, self.records, {}};
  ticket.record.nbytes = nbytes;
  ticket.record.op = texts[0];
  ticket.record.reduction = texts[1];
  ticket.record.dtype = texts[2];
  ticket.record.label = texts[3];
  return ticket;
}

// Start a call likewise, which is counted and recorded here.
void start_counted(Calls& self, const nb::object& described, int64_t digest, int64_t extra,
                   int64_t nbytes, const std::array<int32_t, 4>& texts) {
  self.hold(described);
  MpistratSpec spec = nb::cast<Described&>(described).spec;
  MpistratTicket ticket = ticket_of(self, digest, extra, nbytes, texts);
  mpistrat_begin_counted(self.calls, &spec, &ticket);
}

// Queue a call, which is held until it is over, and return its number.
int64_t submit(Calls& self, const nb::object& object, int64_t digest, int64_t extra, bool holds,
               int64_t nbytes, const std::array<int32_t, 4>& texts) {
  const auto& described = nb::cast<const Described&>(object);
  for (const auto* bytes : {&described.send_bytes, &described.recv_bytes})
    if (!bytes->empty() && bytes->size() != static_cast<size_t>(self.size))
      throw nb::value_error("expected as many lengths as ranks");
  MpistratTicket ticket = ticket_of(self, digest, extra, nbytes, texts);
  ticket.holds = holds;
  const int64_t number = mpistrat_submit(self.calls, &described.spec, &ticket);
  self.queued[number] = object;
  return number;
}

int wait(Calls& self, uint64_t budget_ns) {
  int status;
  if (budget_ns == 0 && !mpistrat_is_moving(self.calls)) {
    self.check();
    status = self.wait(0);
  } else {
    nb::gil_scoped_release release;
    status = self.wait(budget_ns);
  }
  self.is_busy = status == MPISTRAT_WAITING;
  // Results that nobody wants any more are to be free for the next call (buffer_pool.py).
  nb::object done;
  if (status == MPISTRAT_DONE) done = std::move(self.held);
  return status;
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

// Queue the fast call that is under way, and return its number and whether it holds others; -1 if
// that is not possible.
std::pair<int64_t, bool> adopt(Calls& self) {
  if (!self.may_detach) return {-1, false};
  const int64_t number = mpistrat_adopt(self.calls, &self.call.ticket);
  if (number >= 0) self.is_busy = false;
  return {number, self.call.ticket.holds};
}

int collect(Calls& self, int64_t number, uint64_t budget_ns) {
  int status;
  {
    nb::gil_scoped_release release;
    status = mpistrat_collect(self.calls, number, budget_ns);
  }
  if (status != MPISTRAT_DONE) self.check();
  if (status != MPISTRAT_WAITING) self.queued.erase(number);
  return status;
}

// Record fast calls in a ring from now on, or no more (None).
void record_in(Calls& self, const nb::object& records) {
  self.records = records.is_none() ? nullptr : nb::cast<RecordsHandle&>(records).records;
  self.records_object = records;
}

nb::object fast_calls_of(nb::handle_t<Calls> self, nb::handle ticket, nb::handle finish,
                         nb::handle lose, nb::handle over) {
  PyObject* made = make_fast_calls(self.ptr(), nb::cast<Calls*>(self), ticket.ptr(), finish.ptr(),
                                   lose.ptr(), over.ptr());
  if (!made) throw nb::python_error();
  return nb::steal(made);
}

}  // namespace

void bind_calls(nb::module_& module) {
  nb::class_<Described>(module, "Described")
      .def(nb::init<int, int, int, int, int64_t, const nb::sequence&, const nb::sequence&,
                    std::vector<int64_t>, std::vector<int64_t>, int64_t, int>());
  nb::class_<Calls>(module, "Calls")
      .def("start", &start)
      .def("start_counted", &start_counted)
      .def("wait", &wait)
      .def("end", [](Calls& self) { self.is_busy = false; })
      .def("submit", &submit)
      .def("collect", &collect)
      .def("resume", [](Calls& self) { mpistrat_resume(self.calls); })
      .def("drop", [](Calls& self) { mpistrat_drop(self.calls); })
      .def("adopt", &adopt)
      .def("fast_calls_of", &fast_calls_of)
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
      .def_prop_rw(
          "is_ready", [](Calls& self) { return self.is_ready.load(); },
          [](Calls& self, bool value) { self.is_ready = value; })
      .def_ro("size", &Calls::size)
      .def_prop_ro("is_busy",
                   [](Calls& self) { return self.is_busy || mpistrat_is_queue_busy(self.calls); })
      .def_prop_ro("is_fast", [](Calls& self) { return self.is_fast.load(); })
      .def_prop_rw(
          "label", [](Calls& self) { return self.label.load(); },
          [](Calls& self, int64_t value) { self.label = value; })
      .def_rw("has_digests", &Calls::has_digests)
      .def_prop_ro("fast_calls", [](Calls& self) { return self.fast_calls.load(); });
}

}  // namespace mpistrat
