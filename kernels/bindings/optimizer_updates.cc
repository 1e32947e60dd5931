#include "optimizer_updates.h"

#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "dtypes.h"
#include "mpistrat/optimizer_updates.h"
#include "mpistrat/simd.h"
#include "numpy_api.h"

namespace nb = nanobind;

namespace mpistrat {
namespace {

constexpr size_t kHoldGil = 16 << 10;  // elements; to release the GIL for fewer costs more

struct Memory {
  const char *begin, *end;

  explicit Memory(PyArrayObject* array)
      : begin(PyArray_BYTES(array)), end(begin + PyArray_NBYTES(array)) {}
};

bool are_apart(PyArrayObject* first, PyArrayObject* second) {
  const Memory a(first), b(second);
  return a.begin >= b.end || b.begin >= a.end;
}

// Whether two arrays of one shape are the same memory and dtype.
bool are_same(PyArrayObject* first, PyArrayObject* second) {
  return PyArray_DATA(first) == PyArray_DATA(second) && PyArray_TYPE(first) == PyArray_TYPE(second);
}

// An array in C order and native byte order, aligned, and of no subclass; or null.
PyArrayObject* plain(nb::handle object) {
  if (!PyArray_CheckExact(object.ptr())) return nullptr;
  auto* array = reinterpret_cast<PyArrayObject*>(object.ptr());
  return PyArray_ISCARRAY_RO(array) ? array : nullptr;
}

// Likewise, of one that may be written to.
PyArrayObject* writable(nb::handle object) {
  PyArrayObject* array = plain(object);
  return array && PyArray_ISWRITEABLE(array) ? array : nullptr;
}

int dtype_number(PyArrayObject* array) { return dtype_of(reinterpret_cast<PyObject*>(array)); }

// The arrays of one variable: those that are written, and those that are read in their places.
struct Arrays {
  PyArrayObject* gradient;
  // The variable, then the slots; so many of each.
  std::array<PyArrayObject*, 1 + MPISTRAT_MAX_SLOTS> written, read;
  size_t count = 0;
};

// Whether no array is written that another one is read from, or written to, too.
bool may_be_written(const Arrays& arrays) {
  for (size_t i = 0; i < arrays.count; ++i) {
    PyArrayObject* const to = arrays.written[i];
    const auto is_free = [to](PyArrayObject* other, bool may_be_same) {
      return are_apart(other, to) || (may_be_same && are_same(other, to));
    };
    if (!is_free(arrays.gradient, i == 0)) return false;
    for (size_t k = 0; k < arrays.count; ++k)
      if (!is_free(arrays.written[k], k == i) || !is_free(arrays.read[k], k == i)) return false;
  }
  return true;
}

// A variable, or one of its slots, if the kernels take it: of a dtype, and of the gradient's shape.
bool add(nb::handle written, nb::handle read, int dtype, Arrays* arrays) {
  for (PyArrayObject* one : {writable(written), plain(read)})
    if (!one || dtype_number(one) != dtype || !PyArray_SAMESHAPE(one, arrays->gradient))
      return false;
  arrays->written[arrays->count] = plain(written);
  arrays->read[arrays->count++] = plain(read);
  return true;
}

// Variables, and their slots: a list for each slot.
struct Lists {
  const nb::list& variables;
  const std::vector<nb::list>& slots;
};

std::optional<Arrays> arrays_of(const Lists& written, const Lists& read, nb::handle gradient,
                                size_t index) {
  const nb::handle variable = written.variables[index];
  Arrays arrays = {plain(gradient), {}, {}, 0};
  if (!arrays.gradient || !plain(variable)) return {};
  const int dtype = dtype_number(plain(variable)), wanted = mpistrat_slot_dtype(dtype);
  if (wanted < 0 || mpistrat_slot_dtype(dtype_number(arrays.gradient)) < 0) return {};
  if (!add(variable, read.variables[index], dtype, &arrays)) return {};
  for (size_t s = 0; s < written.slots.size(); ++s)
    if (!add(written.slots[s][index], read.slots[s][index], wanted, &arrays)) return {};
  if (!may_be_written(arrays)) return {};
  return arrays;
}

MpistratUpdateArrays pointers_of(const Arrays& arrays) {
  PyArrayObject* const variable = arrays.written[0];
  MpistratUpdateArrays all = {PyArray_DATA(variable),
                              PyArray_DATA(arrays.read[0]),
                              dtype_number(variable),
                              PyArray_DATA(arrays.gradient),
                              dtype_number(arrays.gradient),
                              {},
                              {},
                              static_cast<size_t>(PyArray_SIZE(variable))};
  for (size_t s = 1; s < arrays.count; ++s) {
    all.slots[s - 1] = PyArray_DATA(arrays.written[s]);
    all.old_slots[s - 1] = PyArray_DATA(arrays.read[s]);
  }
  return all;
}

void check_rule(int rule, const std::vector<double>& numbers) {
  if (mpistrat_num_slots(rule) < 0 || numbers.size() > MPISTRAT_MAX_NUMBERS)
    throw nb::value_error("no such rule");
}

void check_lists(int rule, size_t count, const Lists& lists) {
  bool are_equal = lists.variables.size() == count &&
                   lists.slots.size() == static_cast<size_t>(mpistrat_num_slots(rule));
  for (const nb::list& some : lists.slots) are_equal &= some.size() == count;
  if (!are_equal) throw nb::value_error("expected a gradient and each slot for each variable");
}

void carry_out(const MpistratUpdate& call, const std::vector<MpistratUpdateArrays>& updates) {
  for (const MpistratUpdateArrays& one : updates) mpistrat_update(&call, &one);
}

// Returns whether it was done; if not, nothing was changed. The lists of what is read may be those
// of what is written.
bool update(int rule, const std::vector<double>& numbers, const nb::list& gradients,
            const nb::list& variables, const std::vector<nb::list>& slots,
            const nb::list& old_variables, const std::vector<nb::list>& old_slots) {
  const Lists written = {variables, slots}, read = {old_variables, old_slots};
  check_rule(rule, numbers);
  check_lists(rule, gradients.size(), written);
  check_lists(rule, gradients.size(), read);
  MpistratUpdate call = {rule, {}};
  std::copy(numbers.begin(), numbers.end(), call.numbers);
  std::vector<MpistratUpdateArrays> updates;
  updates.reserve(gradients.size());
  size_t elements = 0;
  for (size_t i = 0; i < gradients.size(); ++i) {
    const std::optional<Arrays> arrays = arrays_of(written, read, gradients[i], i);
    if (!arrays) return false;
    updates.push_back(pointers_of(*arrays));
    elements += updates.back().count;
  }
  if (elements <= kHoldGil) {
    carry_out(call, updates);
  } else {
    nb::gil_scoped_release others;
    carry_out(call, updates);
  }
  return true;
}

}  // namespace

void bind_updates(nb::module_& module) { module.def("update", &update); }

}  // namespace mpistrat
