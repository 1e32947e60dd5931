#define MPISTRAT_IMPORTS_NUMPY
#include "fast_allreduce.h"

#include <nanobind/nanobind.h>
#include <structmember.h>

#include <cstddef>

#include "../calls/fast_path.h"
#include "mpistrat/simd.h"
#include "numpy_api.h"

namespace mpistrat {
namespace {

constexpr int64_t kHoldGilBytes = 16 << 10;  // longer calls let other threads run at once
constexpr uint64_t kHoldGilNs = 5'000;       // as do calls that have waited for this long
constexpr int kLoseTries = 8;                // each is lost to one more interrupt at most
const char* const kOpNames[] = {"sum", "prod", "min", "max", "and", "or", "xor", "mean"};
PyObject* op_names[8];
PyObject *out_name, *op_name, *timeout_name;
struct FastAllreduce {
  PyObject_HEAD;
  vectorcallfunc vectorcall;
  PyObject *calls_object, *general, *digest, *finish, *lose;
  FastPath path;
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

// What the array is for a fingerprint. No byte of it is left undefined.
Kind kind_of(const CallState& calls, const Arguments& call) {
  Kind kind;
  std::memset(&kind, 0, sizeof kind);
  kind.label = calls.label;
  kind.op = call.op;
  kind.type_num = PyArray_TYPE(call.array);
  kind.ndim = PyArray_NDIM(call.array);
  for (int i = 0; i < kind.ndim; ++i) kind.shape[i] = PyArray_DIM(call.array, i);
  return kind;
}

enum Claim { kClaimed, kRefused, kRaised };

// Claim the calls, with the fingerprint of this one at hand; Python is asked once for each kind.
Claim claim_with_digest(FastAllreduce* self, const Arguments& call, int64_t* digest) {
  CallState* calls = self->path.calls;
  if (!claim(calls)) return kRefused;
  if (!calls->has_digests) return kClaimed;
  const Kind kind = kind_of(*calls, call);
  if (self->path.find_digest(kind, digest)) return kClaimed;
  calls->is_busy = false;  // while Python runs, other threads may, too
  PyObject* found = PyObject_CallFunctionObjArgs(
      self->digest, reinterpret_cast<PyObject*>(call.array), call.op_text, nullptr);
  if (!found) return kRaised;
  *digest = PyLong_AsLongLong(found);
  Py_DECREF(found);
  if (PyErr_Occurred()) return kRaised;
  if (!claim(calls)) return kRefused;
  self->path.learn_digest(kind, *digest);
  return kClaimed;
}

int wait(CallState* calls, int64_t nbytes) {
  int status = MPISTRAT_WAITING;
  if (nbytes <= kHoldGilBytes) status = calls->wait(kHoldGilNs);
  if (status == MPISTRAT_WAITING) {
    Py_BEGIN_ALLOW_THREADS;
    status = calls->wait(kStayNs);
    Py_END_ALLOW_THREADS;
  }
  return status;
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

bool may_begin(const CallState& calls) { return calls.is_ready && !calls.is_busy; }

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
  const Claim claimed = claim_with_digest(self, call, &digest);
  if (claimed == kRaised) return nullptr;
  if (claimed == kRefused) return call_general(self, call, out);  // another thread was faster
  CallState* calls = self->path.calls;
  void* const recv = PyArray_DATA(reinterpret_cast<PyArrayObject*>(out));
  const int64_t nbytes = PyArray_NBYTES(call.array);
  self->path.begin({call.op, dtype, PyArray_DATA(call.array), recv, nbytes}, digest);
  const int64_t sequence = calls->call.record.sequence;
  const int status = wait(calls, nbytes);
  self->path.note(status);
  return status == MPISTRAT_DONE ? Py_NewRef(out) : finish(self, call, status, sequence, out);
}

PyObject* call(PyObject* object, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  auto* self = reinterpret_cast<FastAllreduce*>(object);
  const Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
  Arguments call;
  if (may_begin(*self->path.calls) && parse(args, nargs, kwnames, &call) && is_plain(call.array) &&
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

// (array, op) -> (function, state, kind), or None: see allreduce_now in fast_path.h.
PyObject* native(PyObject* object, PyObject* const* args, Py_ssize_t nargs) {
  auto* self = reinterpret_cast<FastAllreduce*>(object);
  Arguments call;
  if (!parse(args, nargs, nullptr, &call) || nargs != 2) Py_RETURN_NONE;
  const int dtype = dtype_of(args[0]);
  // Without a thread of their own, calls are made by threads that Python knows of.
  if (!can(call.op, dtype) || !self->path.calls->may_detach) Py_RETURN_NONE;
  const int64_t kind =
      packed_kind(call.op, dtype, PyArray_TYPE(call.array), PyArray_ITEMSIZE(call.array));
  return Py_BuildValue("KKL", reinterpret_cast<unsigned long long>(&allreduce_now),
                       reinterpret_cast<unsigned long long>(&self->path),
                       static_cast<long long>(kind));
}

// (status, sequence, array, op, out) -> result: end a call that native code has begun.
PyObject* end(PyObject* object, PyObject* args) {
  auto* self = reinterpret_cast<FastAllreduce*>(object);
  int status;
  long long sequence;
  PyObject *array, *out;
  Arguments call;
  if (!PyArg_ParseTuple(args, "iLO!OO", &status, &sequence, &PyArray_Type, &array, &call.op_text,
                        &out))
    return nullptr;
  call.array = reinterpret_cast<PyArrayObject*>(array);
  return finish(self, call, status, sequence, out);
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

PyMethodDef methods[] = {{"native", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(native)),
                          METH_FASTCALL, nullptr},
                         {"end", end, METH_VARARGS, nullptr},
                         {nullptr, nullptr, 0, nullptr}};

PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
                       {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                       {Py_tp_clear, reinterpret_cast<void*>(clear)},
                       {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                       {Py_tp_members, members},
                       {Py_tp_methods, methods},
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

PyObject* make_fast_allreduce(PyObject* calls_object, CallState* calls, PyObject* general,
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
  self->path.calls = calls;
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
