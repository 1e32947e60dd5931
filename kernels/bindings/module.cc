// The Python module mpistrat._kernels: the C functions of the kernels, with NumPy arrays.
//
// No defaults and no logic: both are Python's (mpistrat/collectives/shm.py).

#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include "fast_allreduce.h"
#include "mpistrat/simd.h"
#include "numpy_api.h"
#include "records.h"

namespace nb = nanobind;
using mpistrat::NodeHandle;

namespace {

// A node, the memory that it lives in, and the arrays of its call.
struct Node : NodeHandle {
  nb::object memory, held, records_object;
  std::vector<MpistratPiece> sends, recvs;
  std::vector<int64_t> send_bytes, recv_bytes;

  Node(nb::object memory_of, size_t address, int rank_, int size_, int num_cpus)
      : memory(std::move(memory_of)) {
    rank = rank_;
    size = size_;
    node = mpistrat_node_open(reinterpret_cast<void*>(address), rank, size, num_cpus);
    if (!node) throw std::bad_alloc();
  }
  ~Node() { mpistrat_node_close(node); }
  Node(const Node&) = delete;
};

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

// Write sources[0] op sources[1] op ... to `into`; all have as many bytes.
void reduce(nb::handle into, const nb::sequence& sources, int op, int dtype, int64_t divisor) {
  MpistratPiece target = piece(into);
  std::vector<const void*> from;
  for (const MpistratPiece& source : pieces(sources)) {
    if (source.nbytes != target.nbytes) throw nb::value_error("the arrays differ in bytes");
    from.push_back(source.data);
  }
  const size_t itemsize = mpistrat_itemsize(dtype);
  if (itemsize == 0 || from.empty()) throw nb::value_error("no dtype of the kernels, or no source");
  nb::gil_scoped_release release;
  mpistrat_reduce(&target.data, 1, from.data(), static_cast<int>(from.size()),
                  static_cast<size_t>(target.nbytes) / itemsize, dtype, op, divisor, 0);
}

// Start a call whose arrays are held until the next one starts.
void start(Node& self, int kind, bool crosses, int op, int dtype, int root, int64_t divisor,
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
  mpistrat_begin(self.node, &spec);
}

int wait(Node& self, uint64_t budget_ns) {
  int status;
  if (budget_ns == 0) {
    status = mpistrat_wait(self.node, 0);
  } else {
    nb::gil_scoped_release release;
    status = mpistrat_wait(self.node, budget_ns);
  }
  self.is_busy = status == MPISTRAT_WAITING;
  return status;
}

// Queue an all-reduce of the common case and return its number; None if it is none.
nb::object submit(Node& self, nb::handle array, nb::handle op, nb::handle out, int64_t digest) {
  mpistrat::Allreduce call = mpistrat::common_allreduce(self, array.ptr(), op.ptr(), out.ptr());
  if (call.op < 0) return nb::none();
  call.spec.send = &call.send;
  call.spec.recv = &call.recv;
  return nb::int_(mpistrat_submit(self.node, &call.spec, digest, self.records, &call.record));
}

bool is_common(Node& self, nb::handle array, nb::handle op, nb::handle out) {
  return mpistrat::common_allreduce(self, array.ptr(), op.ptr(), out.ptr()).op >= 0;
}

int collect(Node& self, int64_t number, uint64_t budget_ns) {
  nb::gil_scoped_release release;
  return mpistrat_collect(self.node, number, budget_ns);
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

// Record fast calls in a ring from now on, or no more (None).
void record_in(Node& self, const nb::object& records) {
  self.records = records.is_none() ? nullptr : nb::cast<mpistrat::RecordsHandle&>(records).records;
  self.records_object = records;
}

nb::object fast_allreduce(nb::handle_t<Node> self, nb::handle general, nb::handle digest,
                          nb::handle finish, nb::handle lose) {
  Node* node = nb::cast<Node*>(self);
  PyObject* made = mpistrat::make_fast_allreduce(self.ptr(), node, general.ptr(), digest.ptr(),
                                                 finish.ptr(), lose.ptr());
  if (!made) throw nb::python_error();
  return nb::steal(made);
}

}  // namespace

NB_MODULE(_kernels, m) {
  nb::set_leak_warnings(false);  // communicators may live until the interpreter ends
  if (!mpistrat::init_fast_allreduce()) throw nb::python_error();
  m.def("node_bytes", &mpistrat_node_bytes);
  m.def("simd_name", &mpistrat_simd_name);
  m.def("simd_select", [](const char* name) { return mpistrat_simd_select(name) != 0; });
  m.def("can_reduce", [](int op, int dtype) { return mpistrat_can_reduce(op, dtype) != 0; });
  m.def("has_token", [](int32_t pid, uint64_t address, uint64_t value) {
    return mpistrat_has_token(pid, address, value) != 0;
  });
  m.def("reduce", &reduce);
  m.def("register_dtype", &mpistrat::register_dtype);
  m.def("dtype_of", [](nb::handle array) { return mpistrat::dtype_of(array.ptr()); });
  mpistrat::bind_records(m);
  nb::class_<Node>(m, "Node")
      .def(nb::init<nb::object, size_t, int, int, int>())
      .def("start", &start)
      .def("wait", &wait)
      .def("detach", [](Node& self) { mpistrat_detach(self.node); })
      .def("is_common", &is_common, nb::arg(), nb::arg(), nb::arg().none())
      .def("submit", &submit)
      .def("collect", &collect)
      .def("resume", [](Node& self) { mpistrat_resume(self.node); })
      .def("drop", [](Node& self) { mpistrat_drop(self.node); })
      .def("token", &token)
      .def("reach", &reach)
      .def("add_region", &add_region)
      .def("remove_region", [](Node& self, int id) { mpistrat_region_remove(self.node, id); })
      .def("tune", &tune)
      .def("fast_allreduce", &fast_allreduce)
      .def("record_in", &record_in, nb::arg().none())
      .def("line",
           [](nb::handle_t<Node> self) {
             return bytes_view(nb::borrow(self), mpistrat_line(nb::cast<Node*>(self)->node), 0,
                               MPISTRAT_LINE_BYTES);
           })
      .def("table",
           [](nb::handle_t<Node> self) {
             Node* node = nb::cast<Node*>(self);
             return bytes_view(nb::borrow(self), const_cast<uint8_t*>(mpistrat_table(node->node)),
                               node->size, MPISTRAT_LINE_BYTES);
           })
      .def_rw("is_ready", &Node::is_ready)
      .def_ro("size", &Node::size)
      .def_prop_ro("is_busy",
                   [](Node& self) { return self.is_busy || mpistrat_is_queue_busy(self.node); })
      .def_ro("is_fast", &Node::is_fast)
      .def_rw("label", &Node::label)
      .def_rw("has_digests", &Node::has_digests)
      .def_ro("fast_calls", &Node::fast_calls);
}
