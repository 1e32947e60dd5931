#ifndef MPISTRAT_BINDINGS_FAST_PATH_CALL_ARGUMENTS_H_
#define MPISTRAT_BINDINGS_FAST_PATH_CALL_ARGUMENTS_H_

// Take the arguments of a collective apart, where they are the common case: one array or number in
// native byte order, or a list of arrays (list_calls.h), axis 0, equal blocks.

#include <Python.h>

#include "../../calls/fast_path.h"
#include "../numpy_api.h"

namespace mpistrat {

enum { kMaxPositional = 3 };

enum MethodTraits : unsigned {
  kTakesOut = 1,
  kTakesTimeout = 2,
  kTakesLists = 4,
  kIsNonblocking = 8,  // starts the call, and returns a `Work`
  kIsOfObjects = 16,   // shares its kind with a method of arrays
};

// What a method of `Communicator` takes, and what its calls are.
struct Method {
  const char* name;
  int32_t kind;                            // MpistratKind; MPISTRAT_CROSS for a barrier
  const char* positional[kMaxPositional];  // its positional parameters, after `self`
  unsigned traits;

  bool has(MethodTraits trait) const { return traits & trait; }
};
extern const Method kMethods[];
const Method* find_method(const char* name);

// A reference that this owns, or none.
struct Owned {
  PyObject* object = nullptr;
  Owned() = default;
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() { Py_XDECREF(object); }
};

// A call's arguments. All references are borrowed, but for that to `made`.
struct Arguments {
  const Method* method = nullptr;
  PyArrayObject* array = nullptr;  // null for barriers, and for who only receives of a scatter
  Owned made;  // the array, where it was made of a number, a list, or an array in another order
  Owned list;  // a tuple of arrays, of a method of lists
  PyObject* out = Py_None;
  PyObject* timeout = Py_None;  // seconds, or None
  PyObject* op_text = nullptr;  // null where nothing is reduced
  int op = 0, root = 0;         // the root of lists: their `bucket_bytes`, or 0
  bool has_array = false;       // whether it was given, be it None
};

// Where the result of a call goes.
struct ResultShape {
  bool is_wanted = false;
  int ndim = 0;
  npy_intp dims[kMaxDims] = {};
};

// Create the names that are compared. Returns false with a Python error set.
bool init_call_arguments();

// Returns whether the arguments, without `self`, are the common case.
bool parse(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames, Arguments* parsed);

// Fill in what is known before there is memory for the result. `form` is what the root scatters.
// Returns false where the general way is to be taken.
bool plan(const CallState& calls, const Arguments& arguments, PyArrayObject* form, Plain* call,
          ResultShape* result);

// Whether the result can be written to `out` at once.
bool fits(PyObject* out, const ResultShape& result, PyArrayObject* like, const Arguments& call);

// Whether a method's array was copied from a GPU, whose number is in the place of a root.
bool is_from_gpu(const Method& method);

// What the call's rank brings, to be shown to Python.
PyObject* brought(const Arguments& call);

// The number of an op, or -1.
int find_op(PyObject* text);
bool can_reduce(int op, int dtype);
bool is_plain(PyArrayObject* array);
bool overlap(PyArrayObject* a, PyArrayObject* b);

}  // namespace mpistrat

#endif  // MPISTRAT_BINDINGS_FAST_PATH_CALL_ARGUMENTS_H_
