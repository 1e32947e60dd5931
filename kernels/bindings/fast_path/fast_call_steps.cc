#include "fast_call_steps.h"

#include <nanobind/nanobind.h>

#include <algorithm>

#include "list_calls.h"

namespace mpistrat {
namespace {

constexpr uint64_t kHoldGilNs = 5'000;  // calls that have waited for this long let others run
// A nonblocking call waits for its peers for a moment. After kMisses waits in vain it waits for
// kShortStayNs only, and each kTryEvery-th longer again.
constexpr uint64_t kShortStayNs = 5'000;
constexpr unsigned kMisses = 2, kTryEvery = 16;
constexpr int kMostStays = 10;  // times kStayNs, where data is moved all the time
constexpr int kLoseTries = 8;   // each is lost to one more interrupt at most

PyObject* or_none(PyObject* object) { return object ? object : Py_None; }

// Ask Python how a call is shown and recorded.
bool ask_ticket(FastCalls* self, const Arguments& call, const CallState& calls,
                MpistratTicket* ticket) {
  PyObject* found = PyObject_CallFunction(self->ticket, "sOOi", call.method->name, brought(call),
                                          or_none(call.op_text), call.root);
  if (!found) return false;
  long long digest, extra, nbytes;
  MpistratRecord& record = ticket->record;
  const int is_read = PyArg_ParseTuple(found, "LLLiii", &digest, &extra, &nbytes, &record.op,
                                       &record.reduction, &record.dtype);
  Py_DECREF(found);
  if (!is_read) return false;
  ticket->digest = digest;
  ticket->extra = extra;
  record.nbytes = nbytes;
  record.label = static_cast<int32_t>(calls.label);
  return true;
}

Kind key_of_array(const CallState& calls, const Arguments& call) {
  const int kind = call.method->kind;
  // Arrays from GPUs are told from those of the host by a root that is none.
  const int op = call.op, root = is_from_gpu(*call.method) ? -1 - call.root : call.root;
  if (call.list.object)
    return kind_of(calls, kind, op, root, type_num_of(call.list.object), 0, nullptr);
  if (!call.array) return kind_of(calls, kind, op, root, 0, 0, nullptr);
  int64_t shape[kMaxDims];
  const int ndim = PyArray_NDIM(call.array);
  std::copy_n(PyArray_DIMS(call.array), ndim, shape);
  return kind_of(calls, kind, op, root, PyArray_TYPE(call.array), ndim, shape);
}

Kind key_of(const CallState& calls, const Arguments& call) {
  Kind key = key_of_array(calls, call);
  key.is_of_objects = call.method->has(kIsOfObjects);
  return key;
}

int wait(CallState* calls, const Plain& call, int most_stays) {
  int status = MPISTRAT_WAITING;
  if (std::max(call.send_bytes, call.recv_bytes) <= kHoldGilBytes) status = calls->wait(kHoldGilNs);
  if (status == MPISTRAT_WAITING) {
    Py_BEGIN_ALLOW_THREADS;
    int stays = 0;
    do status = calls->wait(kStayNs);
    while (status == MPISTRAT_WAITING && ++stays < most_stays && mpistrat_is_moving(calls->calls));
    Py_END_ALLOW_THREADS;
  }
  return status;
}

int stay_with_nonblocking(FastCalls* self) {
  const bool is_long = self->misses < kMisses || self->misses % kTryEvery == 0;
  CallState* calls = self->path.calls;
  int status = calls->wait(kShortStayNs);
  if (status == MPISTRAT_WAITING && is_long) {
    Py_BEGIN_ALLOW_THREADS;
    status = calls->wait(calls->nonblocking_ns);
    Py_END_ALLOW_THREADS;
  }
  self->misses = status == MPISTRAT_WAITING ? self->misses + 1 : 0;
  return status;
}

}  // namespace

PyObject* leave_to_python() {
  if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_Exception)) PyErr_Clear();
  return nullptr;
}

PyArrayObject* form_of(FastCalls* self, const Arguments& call) {
  const bool is_known = self->form && self->form_root == call.root;
  return is_known ? reinterpret_cast<PyArrayObject*>(self->form) : nullptr;
}

Claim claim_with_ticket(FastCalls* self, const Arguments& call, PyArrayObject* form,
                        const MpistratTicket** ticket) {
  CallState* calls = self->path.calls;
  if (!claim(calls)) return kRefused;
  if (!calls->has_digests) return kClaimed;
  const Kind key = key_of(*calls, call);
  const Shapes shapes = shapes_of(call.list.object);
  if ((*ticket = self->path.find(key, shapes))) return kClaimed;
  calls->is_busy = false;  // while Python runs, other threads may, too
  MpistratTicket found = {};
  if (!ask_ticket(self, call, *calls, &found)) {
    leave_to_python();
    return kRefused;
  }
  if (!claim(calls)) return kRefused;
  if (!call.array && form_of(self, call) != form) {  // another thread has learned of another one
    calls->is_busy = false;
    return kRefused;
  }
  self->path.learn(key, found, shapes);
  *ticket = self->path.find(key, shapes);
  return kClaimed;
}

int stay(FastCalls* self, const Arguments& arguments, const Plain& call) {
  const Method& method = *arguments.method;
  if (method.has(kIsNonblocking)) return stay_with_nonblocking(self);
  const int most_stays = method.has(kTakesTimeout) ? kMostStays : 1;  // of allreduce_soon
  return wait(self->path.calls, call, most_stays);
}

PyObject* finish(FastCalls* self, const Arguments& call, int status, int64_t sequence,
                 PyObject* out, size_t transfer) {
  PyObject* array = brought(call);
  PyObject* is_given = call.out == Py_None ? Py_False : Py_True;
  PyObject* result = PyObject_CallFunction(self->finish, "i(sOOiOn)OO", status, call.method->name,
                                           array, or_none(call.op_text), call.root, call.timeout,
                                           static_cast<Py_ssize_t>(transfer), out, is_given);
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

PyObject* result_of(FastCalls* self, const Arguments& arguments, PyObject* out) {
  const bool is_work = arguments.method->has(kIsNonblocking);
  return is_work ? PyObject_CallOneArg(self->over, out) : Py_NewRef(out);
}

}  // namespace mpistrat
