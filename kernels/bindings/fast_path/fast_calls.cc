#define MPISTRAT_IMPORTS_NUMPY
#include "fast_calls.h"

#include <nanobind/nanobind.h>
#include <structmember.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "../../calls/fast_path.h"
#include "../dtypes.h"
#include "list_calls.h"
#include "object_frames.h"
#include "result_memory.h"

namespace mpistrat {
namespace {

constexpr int64_t kHoldGilBytes = 16 << 10;  // longer calls let other threads run at once
constexpr uint64_t kHoldGilNs = 5'000;       // as do calls that have waited for this long
// A nonblocking call of up to kNonblockingBytes waits for its peers for a moment, since to end it
// by Python and the queue's thread takes longer. After kMisses waits in vain it waits for
// kShortStayNs only, and each kTryEvery-th longer again.
constexpr int64_t kNonblockingBytes = 64 << 10;
constexpr uint64_t kShortStayNs = 5'000;
constexpr unsigned kMisses = 2, kTryEvery = 16;
constexpr int kMostStays = 10;  // times kStayNs, where data is moved all the time
constexpr int kLoseTries = 8;   // each is lost to one more interrupt at most

struct FastCalls {
  PyObject_HEAD;
  PyObject *calls_object, *ticket, *finish, *lose, *over;
  PyObject* form;  // like what was last scattered to this rank, by `form_root`; or null
  int form_root;
  unsigned misses;  // nonblocking calls in a row that were not over in time
  FastPath path;
};

PyTypeObject* fast_type = nullptr;

PyObject* or_none(PyObject* object) { return object ? object : Py_None; }

enum Claim { kClaimed, kRefused };

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

// Errors before a call has begun are the general way's, which tells the peers of them.
PyObject* leave_to_python() {
  if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_Exception)) PyErr_Clear();
  return nullptr;
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

// What the root scatters, as far as this rank knows.
PyArrayObject* form_of(FastCalls* self, const Arguments& call) {
  const bool is_known = self->form && self->form_root == call.root;
  return is_known ? reinterpret_cast<PyArrayObject*>(self->form) : nullptr;
}

// Claim the calls, with the ticket of this one at hand; Python is asked once for each kind.
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

// Of a root that broadcasts from where its result is: put the array there.
void copy_own(const void* array, void* result, int64_t nbytes) {
  if (nbytes <= kHoldGilBytes) {
    std::memcpy(result, array, static_cast<size_t>(nbytes));
    return;
  }
  Py_BEGIN_ALLOW_THREADS;
  std::memcpy(result, array, static_cast<size_t>(nbytes));
  Py_END_ALLOW_THREADS;
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

// End a call in Python, from its transfer under way on; tell `lose` of an error, again if one more
// interrupt strikes that.
PyObject* finish(FastCalls* self, const Arguments& call, int status, int64_t sequence,
                 PyObject* out, size_t transfer = 0) {
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

// What is returned of a call that is over.
PyObject* result_of(FastCalls* self, const Arguments& arguments, PyObject* out) {
  const bool is_work = arguments.method->has(kIsNonblocking);
  return is_work ? PyObject_CallOneArg(self->over, out) : Py_NewRef(out);
}

// Where the arrays of a broadcast are, as the kernels take them.
void place_broadcast(const CallState& calls, Plain* call) {
  if (call->root != calls.rank) {
    call->send = call->recv;
  } else if (!calls.copies_own) {
    if (call->recv != call->send) copy_own(call->send, call->recv, call->send_bytes);
    call->send = call->recv;
  }
}

// Stay with the transfer that has begun; returns its MpistratStatus.
int stay(FastCalls* self, const Arguments& arguments, const Plain& call) {
  const Method& method = *arguments.method;
  if (method.has(kIsNonblocking)) return stay_with_nonblocking(self);
  const int most_stays = method.has(kTakesTimeout) ? kMostStays : 1;  // of allreduce_soon
  return wait(self->path.calls, call, most_stays);
}

// Returns null without an error where another thread was faster.
PyObject* carry_out(FastCalls* self, const Arguments& arguments, PyArrayObject* form, Plain* call,
                    PyObject* out) {
  const MpistratTicket* ticket = nullptr;
  const Claim claimed = claim_with_ticket(self, arguments, form, &ticket);
  if (claimed != kClaimed) return nullptr;
  CallState* calls = self->path.calls;
  const bool is_of_objects = arguments.method->has(kIsOfObjects);
  MpistratTicket of_objects;
  if (is_of_objects && ticket) {
    of_objects = ticket_of_objects(*ticket, *calls, *call);
    ticket = &of_objects;
  }
  if (out != Py_None) call->recv = PyArray_DATA(reinterpret_cast<PyArrayObject*>(out));
  if (call->kind == MPISTRAT_BCAST) place_broadcast(*calls, call);
  self->path.begin(*call, ticket);
  const int64_t sequence = calls->call.ticket.record.sequence;
  const int status = stay(self, arguments, *call);
  // A call whose objects are longer goes on in Python; until then no other one begins.
  const bool is_over =
      status == MPISTRAT_DONE && (!is_of_objects || are_objects_whole(*call, call->send_bytes));
  self->path.note(is_over ? MPISTRAT_DONE : std::max<int>(status, MPISTRAT_WAITING));
  return is_over ? result_of(self, arguments, out) : finish(self, arguments, status, sequence, out);
}

// Begin a group's transfer; that of the first one begins the call.
void begin_group(FastCalls* self, const Plain& call, size_t group, bool is_last,
                 const MpistratTicket* ticket) {
  if (group == 0)
    self->path.begin(call, ticket);
  else
    self->path.go_on(call);
  // Where the queue takes the transfer over, calls behind it wait until the last one is over.
  self->path.calls->call.ticket.holds = !is_last;
}

// Make a call of a list, a transfer for each dtype; returns null as above.
PyObject* carry_out_list(FastCalls* self, const Arguments& arguments, const ListPlan& plan,
                         PyObject* out) {
  const MpistratTicket* ticket = nullptr;
  if (claim_with_ticket(self, arguments, nullptr, &ticket) != kClaimed) return nullptr;
  FastCall& mine = self->path.calls->call;
  int status = MPISTRAT_DONE;
  size_t group = 0;
  for (const size_t count = plan.groups.size(); group < count; ++group) {
    place_group(arguments.list.object, out, plan, group, &mine);
    const Plain call = plan.transfer(arguments, group);
    begin_group(self, call, group, group + 1 == count, ticket);
    status = stay(self, arguments, call);
    if (status != MPISTRAT_DONE) break;
  }
  const int64_t sequence = mine.ticket.record.sequence;
  self->path.note(status);
  return status == MPISTRAT_DONE ? result_of(self, arguments, out)
                                 : finish(self, arguments, status, sequence, out, group);
}

bool may_begin(const CallState& calls) { return calls.is_ready && !calls.is_busy; }

// (array, op) -> (function, state, kind), or None: see allreduce_now in fast_path.h.
PyObject* native(PyObject* object, PyObject* const* args, Py_ssize_t nargs) {
  auto* self = reinterpret_cast<FastCalls*>(object);
  Arguments call;
  call.method = find_method("allreduce");
  if (nargs != 2 || !parse(args, nargs, nullptr, &call)) Py_RETURN_NONE;
  const int dtype = dtype_of(args[0]);
  // Without a thread of their own, calls are made by threads that Python knows of.
  if (!can_reduce(call.op, dtype) || !self->path.calls->may_detach) Py_RETURN_NONE;
  const int64_t kind =
      packed_kind(call.op, dtype, PyArray_TYPE(call.array), PyArray_ITEMSIZE(call.array));
  return Py_BuildValue("KKL", reinterpret_cast<unsigned long long>(&allreduce_now),
                       reinterpret_cast<unsigned long long>(&self->path),
                       static_cast<long long>(kind));
}

// (status, sequence, array, op, out) -> work: end an all-reduce that native code has begun.
PyObject* end(PyObject* object, PyObject* args) {
  auto* self = reinterpret_cast<FastCalls*>(object);
  int status;
  long long sequence;
  PyObject *array, *out;
  Arguments call;
  call.method = find_method("allreduce_soon");
  if (!PyArg_ParseTuple(args, "iLO!OO", &status, &sequence, &PyArray_Type, &array, &call.op_text,
                        &out))
    return nullptr;
  call.array = reinterpret_cast<PyArrayObject*>(array);
  call.out = out;
  return finish(self, call, status, sequence, out);
}

bool is_alike(PyObject* first, PyObject* second) {
  auto *a = reinterpret_cast<PyArrayObject*>(first), *b = reinterpret_cast<PyArrayObject*>(second);
  return PyArray_SAMESHAPE(a, b) && PyArray_TYPE(a) == PyArray_TYPE(b);
}

// (root, form): take note of what was scattered to this rank.
PyObject* know_scatter(PyObject* object, PyObject* args) {
  auto* self = reinterpret_cast<FastCalls*>(object);
  PyObject* form;
  int root;
  if (!PyArg_ParseTuple(args, "iO!", &root, &PyArray_Type, &form)) return nullptr;
  if (self->form && self->form_root == root && is_alike(self->form, form)) Py_RETURN_NONE;
  self->form_root = root;
  Py_XSETREF(self->form, Py_NewRef(form));
  self->path.forget_scatters();
  Py_RETURN_NONE;
}

int clear(PyObject* object) {
  auto* self = reinterpret_cast<FastCalls*>(object);
  Py_CLEAR(self->ticket);
  Py_CLEAR(self->finish);
  Py_CLEAR(self->lose);
  Py_CLEAR(self->over);
  Py_CLEAR(self->form);
  return 0;
}

void dealloc(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  clear(object);
  Py_CLEAR(reinterpret_cast<FastCalls*>(object)->calls_object);
  type->tp_free(object);
  Py_DECREF(type);
}

int traverse(PyObject* object, visitproc visit, void* arg) {
  auto* self = reinterpret_cast<FastCalls*>(object);
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->calls_object);
  Py_VISIT(self->ticket);
  Py_VISIT(self->finish);
  Py_VISIT(self->lose);
  Py_VISIT(self->over);
  Py_VISIT(self->form);
  return 0;
}

PyMethodDef methods[] = {{"native", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(native)),
                          METH_FASTCALL, nullptr},
                         {"end", end, METH_VARARGS, nullptr},
                         {"know_scatter", know_scatter, METH_VARARGS, nullptr},
                         {nullptr, nullptr, 0, nullptr}};

PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
                       {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                       {Py_tp_clear, reinterpret_cast<void*>(clear)},
                       {Py_tp_methods, methods},
                       {0, nullptr}};

PyType_Spec type_spec = {"mpistrat._kernels.FastCalls", sizeof(FastCalls), 0,
                         Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots};

}  // namespace

bool init_fast_calls() {
  import_array1(false);
  fast_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&type_spec));
  return fast_type != nullptr;
}

PyObject* make_fast_calls(PyObject* calls_object, CallState* calls, PyObject* ticket,
                          PyObject* finish, PyObject* lose, PyObject* over) {
  PyObject* object = fast_type->tp_alloc(fast_type, 0);
  if (!object) return nullptr;
  auto* self = reinterpret_cast<FastCalls*>(object);
  self->calls_object = Py_NewRef(calls_object);
  self->ticket = Py_NewRef(ticket);
  self->finish = Py_NewRef(finish);
  self->lose = Py_NewRef(lose);
  self->over = Py_NewRef(over);
  self->form_root = -1;
  self->path.calls = calls;
  return object;
}

// Make a call of a list. The arrays of a call are its own tuple's: a user's list may change.
static PyObject* call_list(FastCalls* self, const Arguments& arguments) {
  ListPlan plan;
  if (!plan_list(arguments, &plan)) return nullptr;
  if (arguments.method->has(kIsNonblocking) && plan.nbytes > kNonblockingBytes) return nullptr;
  PyObject* out = results_of_list(arguments, plan);
  if (!out) return leave_to_python();
  PyObject* found = carry_out_list(self, arguments, plan, out);
  Py_DECREF(out);
  return found;
}

PyObject* call_fast(PyObject* state, const Method* method, PyObject* const* args, Py_ssize_t nargs,
                    PyObject* kwnames) {
  if (Py_TYPE(state) != fast_type) return nullptr;
  auto* self = reinterpret_cast<FastCalls*>(state);
  const CallState& calls = *self->path.calls;
  Arguments arguments;
  arguments.method = method;
  if (!may_begin(calls) || !parse(args, nargs, kwnames, &arguments)) return nullptr;
  if (method->has(kTakesLists)) return call_list(self, arguments);
  Plain call;
  ResultShape result;
  PyArrayObject* const form = form_of(self, arguments);
  if (!plan(calls, arguments, form, &call, &result)) return nullptr;
  // What takes longer goes on beside Python.
  if (method->has(kIsNonblocking) && std::max(call.send_bytes, call.recv_bytes) > kNonblockingBytes)
    return nullptr;
  if (!result.is_wanted) return carry_out(self, arguments, form, &call, Py_None);
  PyArrayObject* like = arguments.array ? arguments.array : form;
  if (arguments.out != Py_None && !fits(arguments.out, result, like, arguments)) return nullptr;
  PyObject* out = arguments.out == Py_None
                      ? new_result(PyArray_DESCR(like), result.ndim, result.dims)
                      : Py_NewRef(arguments.out);
  if (!out) return leave_to_python();
  PyObject* found = carry_out(self, arguments, form, &call, out);
  Py_DECREF(out);
  return found;
}

}  // namespace mpistrat
