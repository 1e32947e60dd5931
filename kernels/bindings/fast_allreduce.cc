#define MPISTRAT_IMPORTS_NUMPY
#include "fast_allreduce.h"

#include <nanobind/nanobind.h>
#include <structmember.h>

#include <array>
#include <cstddef>

#include "mpistrat/simd.h"
#include "numpy_api.h"

namespace mpistrat {
namespace {

constexpr int kMean = 7;  // a sum, divided
constexpr int kMaxDims = 6;
constexpr int64_t kHoldGilBytes = 16 << 10;  // longer calls let other threads run at once
constexpr uint64_t kHoldGilNs = 5'000;       // as do calls that have waited for this long
constexpr uint64_t kStayNs = 2'000'000;      // then Python looks after deadlines and signals
constexpr int kLoseTries = 8;                // each is lost to one more interrupt at most
const char* const kOpNames[] = {"sum", "prod", "min", "max", "and", "or", "xor", "mean"};
PyObject* op_names[8];
PyObject *out_name, *op_name, *timeout_name;
// The texts of records (mpistrat/collectives/diagnosis/recorder.py).
enum { kAllreduceText = 1, kFirstOpText = 2, kFirstDtypeText = 10 };

// What a fingerprint is made of.
struct Kind {
  int64_t label;
  int32_t op, type_num, ndim;
  npy_intp shape[kMaxDims];

  bool operator==(const Kind& other) const { return std::memcmp(this, &other, sizeof *this) == 0; }
  size_t hash() const {
    uint64_t h = static_cast<uint64_t>(label) * 31 + static_cast<uint64_t>(op) * 37 +
                 static_cast<uint64_t>(type_num);
    for (int i = 0; i < ndim; ++i) h = (h ^ static_cast<uint64_t>(shape[i])) * 0x9E3779B97F4A7C15u;
    return static_cast<size_t>(h >> 32 ^ h);
  }
};

struct FastAllreduce {
  PyObject_HEAD;
  vectorcallfunc vectorcall;
  PyObject *calls_object, *general, *digest, *finish, *lose;
  CallsHandle* calls;
  struct Known {
    Kind kind;
    int64_t digest;
    bool is_used;
  };
  std::array<Known, 256> known;
};

int user_type_num = -1, user_dtype = -1;

// The arguments of a call, taken apart; `op` -1 if they are not the common case.
struct Arguments {
  PyArrayObject* array = nullptr;
  PyObject* out = Py_None;
  PyObject* op_text = nullptr;
  int op = 0;
};

int find_op(PyObject* text) {
  for (int i = 0; i < 8; ++i)
    if (text == op_names[i]) return i;
  return -1;
}

bool parse(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames, Arguments* parsed) {
  if (nargs < 1 || nargs > 2 || !PyArray_CheckExact(args[0])) return false;
  parsed->array = reinterpret_cast<PyArrayObject*>(args[0]);
  parsed->op_text = nargs > 1 ? args[1] : op_names[0];
  const Py_ssize_t num_named = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  for (Py_ssize_t i = 0; i < num_named; ++i) {
    PyObject *name = PyTuple_GET_ITEM(kwnames, i), *value = args[nargs + i];
    if (name == out_name) {
      parsed->out = value;
    } else if (name == op_name && nargs == 1) {
      parsed->op_text = value;
    } else if (name != timeout_name || value != Py_None) {
      return false;
    }
  }
  parsed->op = find_op(parsed->op_text);
  return parsed->op >= 0;
}

bool is_plain(PyArrayObject* array) {
  return PyArray_IS_C_CONTIGUOUS(array) && PyArray_ISALIGNED(array) &&
         PyArray_ISNOTSWAPPED(array) && PyArray_NDIM(array) <= kMaxDims;
}

bool fits(PyObject* out, PyArrayObject* array) {
  if (!PyArray_CheckExact(out)) return false;
  auto* result = reinterpret_cast<PyArrayObject*>(out);
  if (!is_plain(result) || !PyArray_ISWRITEABLE(result) || !PyArray_SAMESHAPE(result, array) ||
      PyArray_TYPE(result) != PyArray_TYPE(array))
    return false;
  const char *a = PyArray_BYTES(array), *b = PyArray_BYTES(result);
  const npy_intp n = PyArray_NBYTES(array);
  return a == b || a + n <= b || b + n <= a;
}

// The common case of `op` and dtype, where the kernels' answer is the general one's.
bool can(int op, int dtype) {
  if (dtype < 0) return false;
  if (op == kMean) return dtype >= MPISTRAT_FLOAT16 && dtype <= MPISTRAT_FLOAT64;
  return mpistrat_can_reduce(op, dtype);
}

bool find_digest(FastAllreduce* self, const Arguments& call, int64_t* digest) {
  Kind kind;
  std::memset(&kind, 0, sizeof kind);
  kind.label = self->calls->label;
  kind.op = call.op;
  kind.type_num = PyArray_TYPE(call.array);
  kind.ndim = PyArray_NDIM(call.array);
  std::memcpy(kind.shape, PyArray_DIMS(call.array),
              static_cast<size_t>(kind.ndim) * sizeof *kind.shape);
  auto& known = self->known[kind.hash() % self->known.size()];
  if (!known.is_used || !(known.kind == kind)) {
    PyObject* found = PyObject_CallFunctionObjArgs(
        self->digest, reinterpret_cast<PyObject*>(call.array), call.op_text, nullptr);
    if (!found) return false;
    known = {kind, PyLong_AsLongLong(found), true};
    Py_DECREF(found);
  }
  *digest = known.digest;
  return !PyErr_Occurred();
}

int run(CallsHandle* calls, const MpistratSpec& spec, int64_t nbytes) {
  calls->is_busy = calls->is_fast = true;
  ++calls->fast_calls;
  mpistrat_begin(calls->calls, &spec);
  int status = MPISTRAT_WAITING;
  if (nbytes <= kHoldGilBytes) status = calls->wait(kHoldGilNs);
  if (status == MPISTRAT_WAITING) {
    Py_BEGIN_ALLOW_THREADS;
    status = calls->wait(kStayNs);
    Py_END_ALLOW_THREADS;
  }
  calls->is_busy = status != MPISTRAT_DONE;  // until Python has it, and has read what differs
  return status;
}

// What is said to the kernels and to the records of a call.
Allreduce describe(const CallsHandle& calls, PyArrayObject* array, int op, int dtype) {
  Allreduce found;
  found.spec.kind = MPISTRAT_ALLREDUCE;
  found.spec.crosses = 1;
  found.spec.op = op == kMean ? MPISTRAT_SUM : op;
  found.spec.dtype = dtype;
  found.spec.divisor = op == kMean ? calls.size : 1;
  found.spec.num_send = found.spec.num_recv = 1;
  found.send = {PyArray_DATA(array), static_cast<int64_t>(PyArray_NBYTES(array))};
  found.record.nbytes = found.send.nbytes;
  found.record.op = kAllreduceText;
  found.record.reduction = kFirstOpText + op;
  found.record.dtype = kFirstDtypeText + dtype;
  found.record.label = static_cast<int32_t>(calls.label);
  return found;
}

// Where a reader of records is called for, the next call goes through Python, which calls it.
void record_end(CallsHandle* calls) {
  if (mpistrat_record_end(calls->records, MPISTRAT_SUCCEEDED)) calls->is_ready = false;
}

// End a call in Python; tell `lose` of an error, again if one more interrupt strikes that.
PyObject* finish(FastAllreduce* self, const Arguments& call, int status, int64_t sequence,
                 PyObject* out) {
  auto* array = reinterpret_cast<PyObject*>(call.array);
  PyObject* result = PyObject_CallFunction(self->finish, "iOOO", status, array, call.op_text, out);
  if (result) return result;
  nanobind::python_error error;
  for (int i = 0; i < kLoseTries; ++i) {
    result = PyObject_CallFunction(self->lose, "LOOO", static_cast<long long>(sequence),
                                   error.value().ptr(), array, out);
    if (result) break;
    PyErr_WriteUnraisable(self->lose);
  }
  Py_XDECREF(result);
  error.restore();
  return nullptr;
}

bool may_begin(const CallsHandle& calls) { return calls.is_ready && !calls.is_busy; }

PyObject* call_general(FastAllreduce* self, const Arguments& call, PyObject* out) {
  PyObject* const arguments[] = {reinterpret_cast<PyObject*>(call.array), call.op_text, out};
  PyObject* names = PyTuple_Pack(1, out_name);
  if (!names) return nullptr;
  PyObject* result = PyObject_Vectorcall(self->general, arguments, 2, names);
  Py_DECREF(names);
  return result;
}

PyObject* carry_out(FastAllreduce* self, const Arguments& call, int dtype, PyObject* out) {
  int64_t digest = 0;
  CallsHandle* calls = self->calls;
  if (calls->has_digests && !find_digest(self, call, &digest)) return nullptr;
  if (!may_begin(*calls)) return call_general(self, call, out);  // another thread has run meanwhile
  Allreduce& mine = calls->call;
  mine = describe(*calls, call.array, call.op, dtype);
  mine.recv = {PyArray_DATA(reinterpret_cast<PyArrayObject*>(out)), mine.send.nbytes};
  mine.spec.send = &mine.send;
  mine.spec.recv = &mine.recv;
  mine.record.sequence = mpistrat_count(calls->calls, digest);
  if (calls->records) mpistrat_record_begin(calls->records, &mine.record);
  const int status = run(calls, mine.spec, mine.send.nbytes);
  if (status == MPISTRAT_DONE) {
    if (calls->records) record_end(calls);
    return Py_NewRef(out);
  }
  calls->is_ready = false;  // until this call is in the queue: another would pass it
  return finish(self, call, status, mine.record.sequence, out);
}

PyObject* call(PyObject* object, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  auto* self = reinterpret_cast<FastAllreduce*>(object);
  const Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
  Arguments call;
  if (may_begin(*self->calls) && parse(args, nargs, kwnames, &call) && is_plain(call.array) &&
      (call.out == Py_None || fits(call.out, call.array))) {
    const int dtype = dtype_of(reinterpret_cast<PyObject*>(call.array));
    if (can(call.op, dtype)) {
      PyObject* out = call.out == Py_None ? PyArray_NewLikeArray(call.array, NPY_CORDER, nullptr, 0)
                                          : Py_NewRef(call.out);
      if (!out) return nullptr;
      PyObject* result = carry_out(self, call, dtype, out);
      Py_DECREF(out);
      return result;
    }
  }
  return PyObject_Vectorcall(self->general, args, nargsf, kwnames);
}

void dealloc(PyObject* object) {
  auto* self = reinterpret_cast<FastAllreduce*>(object);
  PyTypeObject* type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  Py_CLEAR(self->calls_object);
  Py_CLEAR(self->general);
  Py_CLEAR(self->digest);
  Py_CLEAR(self->finish);
  Py_CLEAR(self->lose);
  type->tp_free(object);
  Py_DECREF(type);
}

int traverse(PyObject* object, visitproc visit, void* arg) {
  auto* self = reinterpret_cast<FastAllreduce*>(object);
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->calls_object);
  Py_VISIT(self->general);
  Py_VISIT(self->digest);
  Py_VISIT(self->finish);
  Py_VISIT(self->lose);
  return 0;
}

int clear(PyObject* object) {
  auto* self = reinterpret_cast<FastAllreduce*>(object);
  Py_CLEAR(self->general);
  Py_CLEAR(self->digest);
  Py_CLEAR(self->finish);
  Py_CLEAR(self->lose);
  return 0;
}

PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(FastAllreduce, vectorcall), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};

PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
                       {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                       {Py_tp_clear, reinterpret_cast<void*>(clear)},
                       {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                       {Py_tp_members, members},
                       {0, nullptr}};

PyType_Spec type_spec = {"mpistrat._kernels.FastAllreduce", sizeof(FastAllreduce), 0,
                         Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
                         slots};
PyTypeObject* fast_type = nullptr;

}  // namespace

bool init_fast_allreduce() {
  import_array1(false);
  for (int i = 0; i < 8; ++i)
    if (!(op_names[i] = PyUnicode_InternFromString(kOpNames[i]))) return false;
  out_name = PyUnicode_InternFromString("out");
  op_name = PyUnicode_InternFromString("op");
  timeout_name = PyUnicode_InternFromString("timeout");
  fast_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&type_spec));
  return fast_type && out_name && op_name && timeout_name;
}

PyObject* make_fast_allreduce(PyObject* calls_object, CallsHandle* calls, PyObject* general,
                              PyObject* digest, PyObject* finish, PyObject* lose) {
  PyObject* object = fast_type->tp_alloc(fast_type, 0);
  if (!object) return nullptr;
  auto* self = reinterpret_cast<FastAllreduce*>(object);
  self->vectorcall = call;
  self->calls_object = Py_NewRef(calls_object);
  self->general = Py_NewRef(general);
  self->digest = Py_NewRef(digest);
  self->finish = Py_NewRef(finish);
  self->lose = Py_NewRef(lose);
  self->calls = calls;
  return object;
}

void register_dtype(int type_num, int dtype) {
  user_type_num = type_num;
  user_dtype = dtype;
}

int dtype_of(PyObject* object) {
  auto* array = reinterpret_cast<PyArrayObject*>(object);
  switch (PyArray_TYPE(array)) {
    case NPY_BOOL:
      return MPISTRAT_BOOL;
    case NPY_HALF:
      return MPISTRAT_FLOAT16;
    case NPY_FLOAT:
      return MPISTRAT_FLOAT32;
    case NPY_DOUBLE:
      return MPISTRAT_FLOAT64;
    case NPY_CFLOAT:
      return MPISTRAT_COMPLEX64;
    case NPY_CDOUBLE:
      return MPISTRAT_COMPLEX128;
    default:
      break;
  }
  if (PyArray_TYPE(array) == user_type_num) return user_dtype;
  if (!PyArray_ISINTEGER(array)) return -1;
  const int first = PyArray_ISUNSIGNED(array) ? MPISTRAT_UINT8 : MPISTRAT_INT8;
  switch (PyArray_ITEMSIZE(array)) {
    case 1:
      return first;
    case 2:
      return first + 1;
    case 4:
      return first + 2;
    default:
      return first + 3;
  }
}

}  // namespace mpistrat
