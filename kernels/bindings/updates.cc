#include "updates.h"

#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "dtypes.h"
#include "mpistrat/simd.h"
#include "mpistrat/updates.h"
#include "numpy_api.h"

namespace nb = nanobind;

namespace mpistrat {
namespace {

constexpr int64_t kHoldGil = 16 << 10;  // elements that are moved before another thread would run

// One variable with what belongs to it.
struct Move {
  void* variable;
  const void* gradient;
  void* slots[MPISTRAT_MAX_SLOTS];
  int dtype, gradient_dtype;
  int64_t count;
};

struct Memory {
  const char *begin, *end;

  explicit Memory(PyArrayObject* array)
      : begin(PyArray_BYTES(array)), end(begin + PyArray_NBYTES(array)) {}
};

bool are_apart(PyArrayObject* first, PyArrayObject* second) {
  const Memory a(first), b(second);
  return a.begin >= b.end || b.begin >= a.end;
}

// Arrays of one shape.
bool are_same(PyArrayObject* first, PyArrayObject* second) {
  return PyArray_DATA(first) == PyArray_DATA(second) && PyArray_TYPE(first) == PyArray_TYPE(second);
}

// An array in C order and native byte order, aligned, and of no subclass; or null.
PyArrayObject* plain(nb::handle object) {
  if (!PyArray_CheckExact(object.ptr())) return nullptr;
  auto* array = reinterpret_cast<PyArrayObject*>(object.ptr());
  return PyArray_ISCARRAY_RO(array) ? array : nullptr;
}

// One that may be written to, too.
PyArrayObject* writable(nb::handle object) {
  PyArrayObject* array = plain(object);
  return array && PyArray_ISWRITEABLE(array) ? array : nullptr;
}

int number_of(PyArrayObject* array) { return dtype_of(reinterpret_cast<PyObject*>(array)); }

// What is moved, if these are arrays that the kernels take.
std::optional<Move> move_of(nb::handle variable_object, nb::handle gradient_object,
                            const std::vector<nb::list>& slots, size_t index) {
  PyArrayObject* variable = writable(variable_object);
  PyArrayObject* gradient = plain(gradient_object);
  if (!variable || !gradient || !PyArray_SAMESHAPE(variable, gradient)) return {};
  const int dtype = number_of(variable), wanted = mpistrat_slot_dtype(dtype);
  if (wanted < 0 || mpistrat_slot_dtype(number_of(gradient)) < 0) return {};
  if (!are_apart(gradient, variable) && !are_same(gradient, variable)) return {};
  Move move = {PyArray_DATA(variable), PyArray_DATA(gradient), {}, dtype,
               number_of(gradient),    PyArray_SIZE(variable)};
  PyArrayObject* written[MPISTRAT_MAX_SLOTS + 1] = {variable};
  for (size_t s = 0; s < slots.size(); ++s) {
    PyArrayObject* slot = writable(slots[s][index]);
    if (!slot || number_of(slot) != wanted || !PyArray_SAMESHAPE(variable, slot)) return {};
    if (!are_apart(gradient, slot)) return {};
    for (size_t other = 0; other <= s; ++other)
      if (!are_apart(slot, written[other])) return {};
    written[s + 1] = slot;
    move.slots[s] = PyArray_DATA(slot);
  }
  return move;
}

void check(int rule, const std::vector<double>& numbers, size_t count, const nb::list& gradients,
           const std::vector<nb::list>& slots) {
  const int num_slots = mpistrat_num_slots(rule);
  if (num_slots < 0 || numbers.size() > MPISTRAT_MAX_NUMBERS) throw nb::value_error("no such rule");
  bool are_equal = gradients.size() == count && slots.size() == static_cast<size_t>(num_slots);
  for (const nb::list& some : slots) are_equal &= some.size() == count;
  if (!are_equal) throw nb::value_error("expected a gradient and each slot for each variable");
}

void carry_out(const MpistratUpdate& call, const std::vector<Move>& moves) {
  for (const Move& one : moves)
    mpistrat_update(&call, one.variable, one.dtype, one.gradient, one.gradient_dtype, one.slots,
                    static_cast<size_t>(one.count));
}

// Returns whether it was done; if not, nothing was changed. `slots` has a list for each slot.
bool update(int rule, const std::vector<double>& numbers, const nb::list& variables,
            const nb::list& gradients, const std::vector<nb::list>& slots) {
  check(rule, numbers, variables.size(), gradients, slots);
  MpistratUpdate call = {rule, {}};
  std::copy(numbers.begin(), numbers.end(), call.numbers);
  std::vector<Move> moves;
  int64_t elements = 0;
  for (size_t i = 0; i < variables.size(); ++i) {
    const std::optional<Move> move = move_of(variables[i], gradients[i], slots, i);
    if (!move) return false;
    moves.push_back(*move);
    elements += move->count;
  }
  if (elements <= kHoldGil) {
    carry_out(call, moves);
  } else {
    nb::gil_scoped_release others;
    carry_out(call, moves);
  }
  return true;
}

}  // namespace

void bind_updates(nb::module_& module) { module.def("update", &update); }

}  // namespace mpistrat
