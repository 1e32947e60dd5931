#include "mpistrat/store.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <new>
#include <optional>

#include "mpistrat/rows.h"
#include "numpy_api.h"
#include "store.h"

namespace nb = nanobind;

namespace mpistrat {
namespace {

// Less than this is done sooner than the interpreter's lock is had back.
constexpr int64_t kShortBytes = 64 << 10;

// Call with the interpreter's lock given up, unless there is little to do.
template <class Function>
auto unlocked(int64_t nbytes, Function function) {
  if (nbytes < kShortBytes) return function();
  nb::gil_scoped_release release;
  return function();
}

// An array's memory, of at least `nbytes` bytes in C order.
struct Memory {
  char* data;
  int64_t nbytes, num_rows;

  Memory(nb::handle array, int64_t at_least, bool is_written) {
    if (!PyArray_Check(array.ptr())) throw nb::type_error("expected NumPy arrays");
    auto* found = reinterpret_cast<PyArrayObject*>(array.ptr());
    data = PyArray_BYTES(found);
    nbytes = PyArray_NBYTES(found);
    num_rows = PyArray_NDIM(found) > 0 ? PyArray_DIM(found, 0) : 1;
    if (!PyArray_IS_C_CONTIGUOUS(found) || nbytes < at_least ||
        (is_written && !PyArray_ISWRITEABLE(found))) {
      throw nb::value_error("expected an array in C order, of the right size");
    }
  }
  int64_t row_bytes() const { return num_rows > 0 ? nbytes / num_rows : 0; }
};

struct Rows {
  const int64_t* data;
  int64_t count;

  explicit Rows(nb::handle array) {
    const Memory memory(array, 0, false);
    auto* found = reinterpret_cast<PyArrayObject*>(array.ptr());
    if (PyArray_NDIM(found) != 1 || PyArray_TYPE(found) != NPY_INT64 || !PyArray_ISALIGNED(found)) {
      throw nb::value_error("expected indices of int64");
    }
    data = reinterpret_cast<const int64_t*>(memory.data);
    count = memory.num_rows;
  }
};

MpistratTable table_of(const Memory& memory) {
  return {memory.data, memory.num_rows, memory.row_bytes()};
}

int64_t take_rows(nb::handle table_array, nb::handle indices, nb::handle out) {
  const MpistratTable table = table_of(Memory(table_array, 0, false));
  const Rows rows(indices);
  const int64_t nbytes = rows.count * table.row_bytes;
  const Memory to(out, nbytes, true);
  return unlocked(nbytes,
                  [&] { return mpistrat_rows_take(&table, rows.data, rows.count, to.data); });
}

int64_t put_rows(nb::handle table_array, nb::handle indices, nb::handle values) {
  const MpistratTable table = table_of(Memory(table_array, 0, true));
  const Rows rows(indices);
  const int64_t nbytes = rows.count * table.row_bytes;
  const Memory from(values, nbytes, false);
  return unlocked(nbytes,
                  [&] { return mpistrat_rows_put(&table, rows.data, rows.count, from.data); });
}

int64_t add_rows(nb::handle table_array, nb::handle indices, nb::handle values, int dtype) {
  const MpistratTable table = table_of(Memory(table_array, 0, true));
  const Rows rows(indices);
  const int64_t nbytes = rows.count * table.row_bytes;
  const Memory from(values, nbytes, false);
  return unlocked(
      nbytes, [&] { return mpistrat_rows_add(&table, rows.data, rows.count, from.data, dtype); });
}

// Where the parts of a table begin, and after them the number of its rows.
struct Starts {
  const int64_t* data;
  int num_parts;

  explicit Starts(nb::handle array) {
    const Rows numbers(array);
    if (numbers.count < 2) throw nb::value_error("expected the starts of at least one part");
    data = numbers.data;
    num_parts = static_cast<int>(numbers.count - 1);
  }
};

std::pair<int64_t, std::vector<int64_t>> count_rows(nb::handle indices, nb::handle begins) {
  const Rows rows(indices);
  const Starts starts(begins);
  std::vector<int64_t> counts(static_cast<size_t>(starts.num_parts), 0);
  const int64_t result = unlocked(rows.count * static_cast<int64_t>(sizeof(int64_t)), [&] {
    return mpistrat_rows_count(rows.data, rows.count, starts.data, starts.num_parts, counts.data());
  });
  return {result, counts};
}

// `rows_out` and `values_out` are lists of arrays, of as many rows as count_rows has found.
int64_t split_rows(nb::handle indices, nb::handle values, nb::handle begins, nb::list rows_out,
                   nb::list values_out, int negated_dtype) {
  const Rows rows(indices);
  const Starts starts(begins);
  const Memory from(values, 0, false);
  if (from.num_rows != rows.count) throw nb::value_error("expected a value for each row");
  const auto num_parts = static_cast<size_t>(starts.num_parts);
  if (nb::len(rows_out) != num_parts || nb::len(values_out) != num_parts) {
    throw nb::value_error("expected an array for each part");
  }
  std::vector<int64_t> counts(num_parts);
  const int64_t wrong =
      mpistrat_rows_count(rows.data, rows.count, starts.data, starts.num_parts, counts.data());
  if (wrong >= 0) return wrong;
  std::vector<int64_t*> row_places;
  std::vector<void*> value_places;
  for (size_t i = 0; i < num_parts; ++i) {
    const Rows to(rows_out[i]);
    Memory room(rows_out[i], 0, true);
    if (to.count != counts[i]) throw nb::value_error("expected room for all rows of a part");
    row_places.push_back(reinterpret_cast<int64_t*>(room.data));
    value_places.push_back(Memory(values_out[i], counts[i] * from.row_bytes(), true).data);
  }
  const MpistratPieces pieces = {starts.data, starts.num_parts, counts.data(), row_places.data(),
                                 value_places.data()};
  return unlocked(from.nbytes, [&] {
    return mpistrat_rows_split(&pieces, rows.data, rows.count, from.data, from.row_bytes(),
                               negated_dtype);
  });
}

void* word_of(nb::handle array) {
  const Memory memory(array, sizeof(uint64_t), true);
  if (reinterpret_cast<uintptr_t>(memory.data) % sizeof(uint64_t) != 0) {
    throw nb::value_error("expected an aligned word");
  }
  return memory.data;
}

MpistratStoreShape shape_of(int64_t num_rows, int64_t row_bytes, int num_buffers) {
  return {num_rows, row_bytes, num_buffers};
}

// A store, and the memory that it is in.
struct Store {
  nb::object memory;
  MpistratStoreShape shape;
  MpistratStore* store;

  Store(nb::object memory_of, size_t address, int64_t num_rows, int64_t row_bytes, int num_buffers,
        bool is_new)
      : memory(std::move(memory_of)), shape(shape_of(num_rows, row_bytes, num_buffers)) {
    store = mpistrat_store_open(reinterpret_cast<void*>(address), &shape, is_new);
    if (!store) throw nb::value_error("no store of this shape is there");
  }
  ~Store() { mpistrat_store_close(store); }
  Store(const Store&) = delete;

  int64_t nbytes() const { return shape.num_rows * shape.row_bytes; }

  void check(int buffer) const {
    if (buffer < 0 || buffer >= shape.num_buffers) throw nb::value_error("no such buffer");
  }
};

// Try at once; wait only with the interpreter's lock given up, which a change may be waiting for.
template <class Function>
int64_t read(int64_t nbytes, uint64_t budget_ns, Function function) {
  if (nbytes < kShortBytes) {
    const int64_t result = function(uint64_t{0});
    if (result != MPISTRAT_STORE_BUSY || budget_ns == 0) return result;
  }
  nb::gil_scoped_release release;
  return function(budget_ns);
}

int64_t read_all(Store& self, nb::handle out, bool is_whole, uint64_t budget_ns) {
  const Memory to(out, self.nbytes(), true);
  return read(self.nbytes(), budget_ns, [&](uint64_t budget) {
    return mpistrat_store_read(self.store, to.data, is_whole, budget);
  });
}

int64_t take(Store& self, nb::handle indices, nb::handle out, bool is_whole, uint64_t budget_ns) {
  const Rows rows(indices);
  const int64_t nbytes = rows.count * self.shape.row_bytes;
  const Memory to(out, nbytes, true);
  return read(nbytes, budget_ns, [&](uint64_t budget) {
    return mpistrat_store_take(self.store, rows.data, rows.count, to.data, is_whole, budget);
  });
}

int64_t gather(const std::vector<const Store*>& stores, nb::handle begins, nb::handle indices,
               nb::handle out, uint64_t budget_ns) {
  const Starts starts(begins);
  const Rows rows(indices);
  if (stores.size() != static_cast<size_t>(starts.num_parts)) {
    throw nb::value_error("expected a store for each part");
  }
  std::vector<const MpistratStore*> opened;
  for (size_t i = 0; i < stores.size(); ++i) {
    if (stores[i]->shape.row_bytes != stores[0]->shape.row_bytes ||
        stores[i]->shape.num_rows != starts.data[i + 1] - starts.data[i]) {
      throw nb::value_error("expected stores of the parts' rows");
    }
    opened.push_back(stores[i]->store);
  }
  const int64_t nbytes = rows.count * stores[0]->shape.row_bytes;
  const Memory to(out, nbytes, true);
  return read(nbytes, budget_ns, [&](uint64_t budget) {
    return mpistrat_store_gather(opened.data(), starts.data, starts.num_parts, rows.data,
                                 rows.count, to.data, budget);
  });
}

// The lease or a negative result, its buffer and its version.
std::tuple<int64_t, int, uint64_t> lease(Store& self, uint64_t tag, uint64_t budget_ns) {
  int buffer = 0;
  uint64_t version = 0;
  const int64_t result = read(0, budget_ns, [&](uint64_t budget) -> int64_t {
    return mpistrat_store_lease(self.store, tag, budget, &buffer, &version);
  });
  return {result, buffer, version};
}

std::vector<uint64_t> tags(Store& self) {
  std::vector<uint64_t> found(MPISTRAT_STORE_LEASES);
  mpistrat_store_tags(self.store, found.data());
  return found;
}

int64_t put(Store& self, int buffer, nb::handle indices, nb::handle values) {
  self.check(buffer);
  const Rows rows(indices);
  const int64_t nbytes = rows.count * self.shape.row_bytes;
  const Memory from(values, nbytes, false);
  return unlocked(nbytes, [&] {
    return mpistrat_store_put(self.store, buffer, rows.data, rows.count, from.data);
  });
}

int64_t add(Store& self, int buffer, nb::handle indices, nb::handle values, int dtype) {
  self.check(buffer);
  const Rows rows(indices);
  const int64_t nbytes = rows.count * self.shape.row_bytes;
  const Memory from(values, nbytes, false);
  return unlocked(nbytes, [&] {
    return mpistrat_store_add(self.store, buffer, rows.data, rows.count, from.data, dtype);
  });
}

void fill(Store& self, int buffer, std::optional<nb::object> values) {
  self.check(buffer);
  const char* from = values ? Memory(*values, self.nbytes(), false).data : nullptr;
  unlocked(self.nbytes(), [&] { mpistrat_store_fill(self.store, buffer, from); });
}

int64_t sum(Store& self, int buffer, nb::handle values, int dtype) {
  self.check(buffer);
  const Memory from(values, self.nbytes(), false);
  return unlocked(self.nbytes(),
                  [&] { return mpistrat_store_sum(self.store, buffer, from.data, dtype); });
}

}  // namespace

void bind_store(nb::module_& module) {
  module.def("take_rows", &take_rows);
  module.def("put_rows", &put_rows);
  module.def("add_rows", &add_rows);
  module.def("count_rows", &count_rows);
  module.def("split_rows", &split_rows);
  module.def("set_word",
             [](nb::handle word, uint64_t value) { mpistrat_word_set(word_of(word), value); });
  module.def("get_word", [](nb::handle word) { return mpistrat_word_get(word_of(word)); });
  module.def("store_bytes", [](int64_t num_rows, int64_t row_bytes, int num_buffers) {
    const MpistratStoreShape shape = shape_of(num_rows, row_bytes, num_buffers);
    return mpistrat_store_bytes(&shape);
  });
  module.def("store_range", [](int64_t num_rows, int64_t row_bytes, int num_buffers, int buffer) {
    const MpistratStoreShape shape = shape_of(num_rows, row_bytes, num_buffers);
    std::pair<size_t, size_t> range;
    mpistrat_store_range(&shape, buffer, &range.first, &range.second);
    return range;
  });
  nb::class_<Store>(module, "Store")
      .def(nb::init<nb::object, size_t, int64_t, int64_t, int, bool>())
      .def_prop_ro("version", [](Store& self) { return mpistrat_store_version(self.store); })
      .def_prop_ro("current", [](Store& self) { return mpistrat_store_current(self.store); })
      .def_prop_ro("leased", [](Store& self) { return mpistrat_store_leased(self.store); })
      .def("read", &read_all)
      .def("take", &take)
      .def("lease", &lease)
      .def("release", [](Store& self, int held) { mpistrat_store_release(self.store, held); })
      .def("tags", &tags)
      .def("drop",
           [](Store& self, int held, uint64_t tag) { mpistrat_store_drop(self.store, held, tag); })
      .def("begin", [](Store& self) { return mpistrat_store_begin(self.store) != 0; })
      .def("finish", [](Store& self) { mpistrat_store_finish(self.store); })
      .def("cancel", [](Store& self) { mpistrat_store_cancel(self.store); })
      .def("begin_in",
           [](Store& self, int buffer) {
             self.check(buffer);
             mpistrat_store_begin_in(self.store, buffer);
           })
      .def("finish_in",
           [](Store& self, int buffer) {
             self.check(buffer);
             mpistrat_store_finish_in(self.store, buffer);
           })
      .def("put", &put)
      .def("add", &add)
      .def("fill", &fill, nb::arg(), nb::arg().none())
      .def("sum", &sum);
  module.def("gather", &gather);
}

}  // namespace mpistrat
