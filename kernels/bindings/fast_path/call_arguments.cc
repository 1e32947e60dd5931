#include "call_arguments.h"

#include <algorithm>
#include <cstring>

#include "../dtypes.h"
#include "list_calls.h"
#include "mpistrat/simd.h"

namespace mpistrat {
namespace {

const char* const kOpNames[] = {"sum", "prod", "min", "max", "and", "or", "xor", "mean"};
PyObject* op_names[8];
PyObject *array_name, *arrays_name, *op_name, *root_name, *gpu_name, *bucket_name, *axis_name,
    *splits_name, *out_name, *timeout_name;

constexpr npy_intp kMostCopied = 64 << 10;  // bytes; the general way lets other threads run

constexpr double kLeastTimeout = 0.5;  // seconds

bool is_number(PyObject* value) {
  return PyFloat_CheckExact(value) || PyLong_CheckExact(value) || PyBool_Check(value) ||
         PyComplex_CheckExact(value) || PyArray_IsScalar(value, Generic);
}

// Take what is, or can be made, an array in C order; of what cannot, the general way says why.
bool take_array(PyObject* value, Arguments* parsed) {
  auto* array = reinterpret_cast<PyArrayObject*>(value);
  PyObject* made = nullptr;
  if (PyArray_CheckExact(value)) {
    const bool is_copied = !is_plain(array) && dtype_of(value) >= 0 &&
                           PyArray_ISNOTSWAPPED(array) && PyArray_NDIM(array) <= kMaxDims &&
                           PyArray_NBYTES(array) <= kMostCopied;
    if (is_copied) made = PyArray_NewCopy(array, NPY_CORDER);
    if (!is_copied) parsed->array = array;
  } else if (is_number(value) || PyList_CheckExact(value) || PyTuple_CheckExact(value)) {
    made = PyArray_FromAny(value, nullptr, 0, 0, 0, nullptr);
  }
  if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_Exception)) PyErr_Clear();
  if (made) {
    Py_XSETREF(parsed->made.object, made);
    parsed->array = reinterpret_cast<PyArrayObject*>(made);
  }
  return parsed->array != nullptr;
}

// Whether it is well above the 2 ms, 20 where data moves all the time, after which a call that has
// not ended goes on in Python, which counts its deadline from then on.
bool is_long_timeout(PyObject* value) {
  if (PyFloat_CheckExact(value)) return PyFloat_AS_DOUBLE(value) >= kLeastTimeout;
  int overflow = 0;
  return PyLong_CheckExact(value) && PyLong_AsLongAndOverflow(value, &overflow) > 0;
}

bool take_int(PyObject* value, int* taken) {
  if (!PyLong_CheckExact(value)) return false;
  int overflow = 0;
  const long number = PyLong_AsLongAndOverflow(value, &overflow);
  *taken = static_cast<int>(number);
  return overflow == 0 && *taken == number;
}

// What `name` says is `value`; returns false if that is not the common case.
bool take(PyObject* name, PyObject* value, Arguments* parsed) {
  if (name == array_name) {
    parsed->has_array = true;
    if (value == Py_None) return parsed->method->kind == MPISTRAT_SCATTER;
    return take_array(value, parsed);
  }
  if (name == arrays_name) {
    parsed->has_array = true;
    return take_list(value, &parsed->list);
  }
  if (name == op_name) {
    parsed->op_text = value;
    return true;
  }
  if (name == root_name || name == gpu_name) return take_int(value, &parsed->root);
  if (name == bucket_name)
    return value == Py_None || (take_int(value, &parsed->root) && parsed->root > 0);
  if (name == axis_name) return PyLong_CheckExact(value) && PyObject_Not(value) == 1;
  if (name == out_name) {
    parsed->out = value;
    return true;
  }
  if (name == timeout_name) {
    parsed->timeout = value;
    return value == Py_None || is_long_timeout(value);
  }
  return name == splits_name && value == Py_None;
}

constexpr int kMostMethods = 32;
PyObject* positional_names[kMostMethods][kMaxPositional];

PyObject* const* names_of(const Method* method) { return positional_names[method - kMethods]; }

// A name of a keyword as it is compared, whoever has made the string.
PyObject* known_name(PyObject* name) {
  for (PyObject* one : {out_name, op_name, root_name, axis_name, array_name, splits_name,
                        timeout_name, gpu_name, arrays_name, bucket_name})
    if (name == one) return one;
  return nullptr;
}

bool has_rows(int32_t kind) {
  return kind == MPISTRAT_REDUCE_SCATTER ||
         (kind >= MPISTRAT_ALLGATHER && kind <= MPISTRAT_ALLTOALL);
}

bool is_reduction(int32_t kind) {
  return kind == MPISTRAT_ALLREDUCE || kind == MPISTRAT_REDUCE || kind == MPISTRAT_REDUCE_SCATTER;
}

// Rows of this rank's result; -1 where blocks would not be equal.
int64_t result_rows(const CallState& calls, int32_t kind, int64_t rows) {
  switch (kind) {
    case MPISTRAT_REDUCE_SCATTER:
    case MPISTRAT_SCATTER:
      return rows_of(rows, calls.size, calls.rank);
    case MPISTRAT_ALLGATHER:
    case MPISTRAT_GATHER:
      return rows * calls.size;
    case MPISTRAT_ALLTOALL:
      return rows % calls.size == 0 ? rows : -1;
    default:
      return rows;
  }
}

// Whether this rank gets a result, which its array's rows, or others', make up.
bool wants_result(const CallState& calls, const Arguments& call) {
  const int32_t kind = call.method->kind;
  const bool is_at_root = kind == MPISTRAT_REDUCE || kind == MPISTRAT_GATHER;
  return !is_at_root || call.root == calls.rank;
}

// Rows are told apart by their lengths, which travel with the fingerprint (gate.py).
bool may_guess(const CallState& calls, int32_t kind, int64_t nbytes) {
  if (kind == MPISTRAT_REDUCE_SCATTER) return true;
  const bool is_gathered = kind == MPISTRAT_ALLGATHER || kind == MPISTRAT_GATHER;
  return calls.has_digests && calls.size > 1 &&
         nbytes <= kMostGathered / (is_gathered ? calls.size : 1);
}

}  // namespace

constexpr unsigned kBlocking = kTakesOut | kTakesTimeout, kNonblocking = kTakesOut | kIsNonblocking;

const Method kMethods[] = {
    {"allreduce", MPISTRAT_ALLREDUCE, {"array", "op", nullptr}, kBlocking},
    {"allreduce_soon", MPISTRAT_ALLREDUCE, {"array", "op", nullptr}, kTakesOut},
    {"allreduce_many", MPISTRAT_ALLREDUCE, {"arrays", "op", nullptr}, kBlocking | kTakesLists},
    {"reduce", MPISTRAT_REDUCE, {"array", "op", "root"}, kBlocking},
    {"reduce_scatter", MPISTRAT_REDUCE_SCATTER, {"array", "op", "axis"}, kBlocking},
    {"bcast", MPISTRAT_BCAST, {"array", "root", nullptr}, kBlocking},
    {"allgather", MPISTRAT_ALLGATHER, {"array", "axis", nullptr}, kBlocking},
    {"gather", MPISTRAT_GATHER, {"array", "root", "axis"}, kBlocking},
    {"scatter", MPISTRAT_SCATTER, {"array", "root", "axis"}, kBlocking},
    {"alltoall", MPISTRAT_ALLTOALL, {"array", "splits", "axis"}, kBlocking},
    {"_allreduce_from_gpu", MPISTRAT_ALLREDUCE, {"array", "op", "gpu"}, kBlocking},
    {"_bcast_packed", MPISTRAT_BCAST, {"array", "root", nullptr}, kBlocking | kIsOfObjects},
    {"_allgather_packed",
     MPISTRAT_ALLGATHER,
     {"array", nullptr, nullptr},
     kBlocking | kIsOfObjects},
    {"barrier", MPISTRAT_CROSS, {nullptr, nullptr, nullptr}, kTakesTimeout},
    {"iallreduce", MPISTRAT_ALLREDUCE, {"array", "op", nullptr}, kNonblocking},
    {"iallreduce_many", MPISTRAT_ALLREDUCE, {"arrays", "op", nullptr}, kNonblocking | kTakesLists},
    {"ireduce", MPISTRAT_REDUCE, {"array", "op", "root"}, kNonblocking},
    {"ireduce_scatter", MPISTRAT_REDUCE_SCATTER, {"array", "op", "axis"}, kNonblocking},
    {"ibcast", MPISTRAT_BCAST, {"array", "root", nullptr}, kNonblocking},
    {"iallgather", MPISTRAT_ALLGATHER, {"array", "axis", nullptr}, kNonblocking},
    {"igather", MPISTRAT_GATHER, {"array", "root", "axis"}, kNonblocking},
    {"iscatter", MPISTRAT_SCATTER, {"array", "root", "axis"}, kNonblocking},
    {"ialltoall", MPISTRAT_ALLTOALL, {"array", "splits", "axis"}, kNonblocking},
    {"ibarrier", MPISTRAT_CROSS, {nullptr, nullptr, nullptr}, kIsNonblocking},
    {nullptr, 0, {nullptr, nullptr, nullptr}, 0},
};

static_assert(sizeof kMethods / sizeof *kMethods <= kMostMethods);

const Method* find_method(const char* name) {
  const Method* found = kMethods;
  while (found->name && std::strcmp(found->name, name) != 0) ++found;
  return found->name ? found : nullptr;
}

bool init_call_arguments() {
  for (int i = 0; i < 8; ++i)
    if (!(op_names[i] = PyUnicode_InternFromString(kOpNames[i]))) return false;
  array_name = PyUnicode_InternFromString("array");
  arrays_name = PyUnicode_InternFromString("arrays");
  op_name = PyUnicode_InternFromString("op");
  root_name = PyUnicode_InternFromString("root");
  gpu_name = PyUnicode_InternFromString("gpu");
  bucket_name = PyUnicode_InternFromString("bucket_bytes");
  axis_name = PyUnicode_InternFromString("axis");
  splits_name = PyUnicode_InternFromString("splits");
  out_name = PyUnicode_InternFromString("out");
  timeout_name = PyUnicode_InternFromString("timeout");
  for (const Method* one = kMethods; one->name; ++one)
    for (int i = 0; i < kMaxPositional; ++i)
      if (one->positional[i])
        positional_names[one - kMethods][i] = PyUnicode_InternFromString(one->positional[i]);
  return !PyErr_Occurred();
}

bool is_from_gpu(const Method& method) {
  return method.kind == MPISTRAT_ALLREDUCE && method.positional[2] != nullptr;
}

int find_op(PyObject* text) {
  for (int i = 0; i < 8; ++i)
    if (text == op_names[i]) return i;
  if (PyUnicode_CheckExact(text))  // equal, but another object: read from a file, say
    for (int i = 0; i < 8; ++i)
      if (PyUnicode_CompareWithASCIIString(text, kOpNames[i]) == 0) return i;
  return -1;
}

bool can_reduce(int op, int dtype) {
  if (dtype < 0 || op < 0) return false;
  if (op == kMean) return dtype >= MPISTRAT_FLOAT16 && dtype <= MPISTRAT_FLOAT64;
  return mpistrat_can_reduce(op, dtype);
}

bool is_plain(PyArrayObject* array) {
  return PyArray_IS_C_CONTIGUOUS(array) && PyArray_ISALIGNED(array) &&
         PyArray_ISNOTSWAPPED(array) && PyArray_NDIM(array) <= kMaxDims;
}

bool overlap(PyArrayObject* a, PyArrayObject* b) {
  const char *first = PyArray_BYTES(a), *second = PyArray_BYTES(b);
  return first < second + PyArray_NBYTES(b) && second < first + PyArray_NBYTES(a);
}

PyObject* brought(const Arguments& call) {
  if (call.list.object) return call.list.object;
  return call.array ? reinterpret_cast<PyObject*>(call.array) : Py_None;
}

bool parse(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames, Arguments* parsed) {
  PyObject* const* names = names_of(parsed->method);
  if (nargs > kMaxPositional) return false;
  if (is_reduction(parsed->method->kind)) parsed->op_text = op_names[0];
  for (Py_ssize_t i = 0; i < nargs; ++i)
    if (!names[i] || !take(names[i], args[i], parsed)) return false;
  const Py_ssize_t num_named = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  for (Py_ssize_t i = 0; i < num_named; ++i) {
    PyObject* name = known_name(PyTuple_GET_ITEM(kwnames, i));
    const bool is_of_method = name == out_name       ? parsed->method->has(kTakesOut)
                              : name == bucket_name  ? parsed->method->has(kTakesLists)
                              : name == timeout_name ? parsed->method->has(kTakesTimeout)
                                                     : std::find(names, names + kMaxPositional,
                                                                 name) != names + kMaxPositional;
    // One that is given by its place as well is refused by the general way.
    const bool is_new = std::find(names, names + nargs, name) == names + nargs;
    if (!name || !is_of_method || !is_new || !take(name, args[nargs + i], parsed)) return false;
  }
  if (!parsed->has_array && names[0]) return false;
  if (!is_reduction(parsed->method->kind)) return true;
  parsed->op = find_op(parsed->op_text);
  return parsed->op >= 0;
}

bool plan(const CallState& calls, const Arguments& arguments, PyArrayObject* form, Plain* call,
          ResultShape* result) {
  const int32_t kind = arguments.method->kind;
  const int root = is_from_gpu(*arguments.method) ? 0 : arguments.root;
  *call = {kind, arguments.op, MPISTRAT_FLOAT64, root, nullptr, nullptr, 0, 0, 0, 0, 0};
  *result = {};
  if (kind == MPISTRAT_CROSS) return true;
  if (arguments.method->has(kIsOfObjects) && calls.size == 1) return false;  // without frames
  const bool is_root = arguments.root == calls.rank;
  if (kind == MPISTRAT_SCATTER && is_root != (arguments.array != nullptr)) return false;
  PyArrayObject* like = arguments.array ? arguments.array : form;
  if (!like || root < 0 || root >= calls.size) return false;
  if (arguments.array && !is_plain(like)) return false;
  if (PyArray_NDIM(like) > kMaxDims) return false;  // of a form, of which no more is asked
  call->dtype = dtype_of(reinterpret_cast<PyObject*>(like));
  if (is_reduction(kind) && !can_reduce(arguments.op, call->dtype)) return false;
  // Bools of a view may have any bytes, which only the general way makes 0 and 1.
  if (call->dtype < 0 || (call->dtype == MPISTRAT_BOOL && !is_reduction(kind))) return false;
  result->is_wanted = wants_result(calls, arguments);
  result->ndim = PyArray_NDIM(like);
  std::copy_n(PyArray_DIMS(like), result->ndim, result->dims);
  const int64_t nbytes = PyArray_SIZE(like) * PyArray_ITEMSIZE(like);
  if (arguments.array) {
    call->send = PyArray_DATA(like);
    call->send_bytes = nbytes;
  }
  call->recv_bytes = result->is_wanted ? nbytes : 0;
  if (!has_rows(kind)) return nbytes > 0 || kind != MPISTRAT_BCAST;
  if (result->ndim == 0 || nbytes == 0 || !may_guess(calls, kind, nbytes)) return false;
  call->rows = result->dims[0];
  call->row_bytes = nbytes / call->rows;
  const int64_t rows = result_rows(calls, kind, call->rows);
  if (rows < 0) return false;
  result->dims[0] = rows;
  if (result->is_wanted) call->recv_bytes = rows * call->row_bytes;
  return true;
}

bool fits(PyObject* out, const ResultShape& result, PyArrayObject* like, const Arguments& call) {
  if (!PyArray_CheckExact(out)) return false;
  auto* array = reinterpret_cast<PyArrayObject*>(out);
  if (!is_plain(array) || !PyArray_ISWRITEABLE(array) || PyArray_NDIM(array) != result.ndim ||
      PyArray_TYPE(array) != PyArray_TYPE(like) ||
      !std::equal(result.dims, result.dims + result.ndim, PyArray_DIMS(array)))
    return false;
  if (!call.array || !overlap(array, call.array)) return true;
  return !has_rows(call.method->kind) && PyArray_BYTES(array) == PyArray_BYTES(call.array);
}

}  // namespace mpistrat
