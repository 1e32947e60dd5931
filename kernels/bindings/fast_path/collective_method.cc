#include "collective_method.h"

#include <structmember.h>

#include <cstddef>

#include "fast_calls.h"

namespace mpistrat {
namespace {

PyObject* fast_name;  // of the communicator's attribute

struct CollectiveMethod {
  PyObject_HEAD;
  vectorcallfunc vectorcall;
  PyObject *general, *dict, *weak_references;
  const Method* method;
};

// The first argument is the communicator: as a method descriptor, this is called without being
// bound before.
PyObject* call(PyObject* object, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  auto* self = reinterpret_cast<CollectiveMethod*>(object);
  const Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
  if (nargs > 0) {
    PyObject* state = PyObject_GetAttr(args[0], fast_name);
    if (state) {
      PyObject* result = call_fast(state, self->method, args + 1, nargs - 1, kwnames);
      Py_DECREF(state);
      if (result || PyErr_Occurred()) return result;
    } else {
      PyErr_Clear();  // no communicator, of which the function says more
    }
  }
  return PyObject_Vectorcall(self->general, args, nargsf, kwnames);
}

PyObject* bind(PyObject* object, PyObject* instance, PyObject*) {
  return instance && instance != Py_None ? PyMethod_New(object, instance) : Py_NewRef(object);
}

PyObject* make(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  PyObject* general;
  const char* name;
  static const char* names[] = {"", "", nullptr};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "Os", const_cast<char**>(names), &general, &name))
    return nullptr;
  const Method* method = find_method(name);
  if (!method) return PyErr_Format(PyExc_ValueError, "no collective is named %s", name);
  PyObject* object = type->tp_alloc(type, 0);
  if (!object) return nullptr;
  auto* self = reinterpret_cast<CollectiveMethod*>(object);
  self->vectorcall = call;
  self->general = Py_NewRef(general);
  self->method = method;
  return object;
}

int traverse(PyObject* object, visitproc visit, void* arg) {
  auto* self = reinterpret_cast<CollectiveMethod*>(object);
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->general);
  Py_VISIT(self->dict);
  return 0;
}

int clear(PyObject* object) {
  Py_CLEAR(reinterpret_cast<CollectiveMethod*>(object)->dict);
  return 0;
}

void dealloc(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  PyObject_ClearWeakRefs(object);
  clear(object);
  Py_CLEAR(reinterpret_cast<CollectiveMethod*>(object)->general);
  type->tp_free(object);
  Py_DECREF(type);
}

PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(CollectiveMethod, vectorcall), READONLY, nullptr},
    {"__dictoffset__", T_PYSSIZET, offsetof(CollectiveMethod, dict), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(CollectiveMethod, weak_references), READONLY,
     nullptr},
    {nullptr, 0, 0, 0, nullptr}};

// As a function does, it travels by its name.
PyObject* reduce(PyObject* object, PyObject*) {
  return PyObject_GetAttrString(object, "__qualname__");
}

PyMethodDef methods[] = {{"__reduce__", reduce, METH_NOARGS, nullptr},
                         {nullptr, nullptr, 0, nullptr}};

PyGetSetDef properties[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
                       {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                       {Py_tp_clear, reinterpret_cast<void*>(clear)},
                       {Py_tp_new, reinterpret_cast<void*>(make)},
                       {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                       {Py_tp_descr_get, reinterpret_cast<void*>(bind)},
                       {Py_tp_members, members},
                       {Py_tp_methods, methods},
                       {Py_tp_getset, properties},
                       {0, nullptr}};

PyType_Spec type_spec = {"mpistrat._kernels.CollectiveMethod", sizeof(CollectiveMethod), 0,
                         Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                             Py_TPFLAGS_METHOD_DESCRIPTOR,
                         slots};

}  // namespace

bool init_collective_method(PyObject* module) {
  fast_name = PyUnicode_InternFromString("fast_calls");
  PyObject* type = PyType_FromSpec(&type_spec);
  const bool is_added =
      fast_name && type && PyModule_AddObjectRef(module, "CollectiveMethod", type) == 0;
  Py_XDECREF(type);
  return is_added;
}

}  // namespace mpistrat
