#define MPISTRAT_IMPORTS_NUMPY
#include "fast_calls.h"

#include <structmember.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "../../calls/fast_path.h"
#include "../dtypes.h"
#include "carry_out_list.h"
#include "fast_call_steps.h"
#include "object_frames.h"
#include "result_memory.h"

namespace mpistrat {
namespace {

PyTypeObject* fast_type = nullptr;

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

// Where the arrays of a broadcast are, as the kernels take them.
void place_broadcast(const CallState& calls, Plain* call) {
  if (call->root != calls.rank) {
    call->send = call->recv;
  } else if (!calls.copies_own) {
    if (call->recv != call->send) copy_own(call->send, call->recv, call->send_bytes);
    call->send = call->recv;
  }
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
