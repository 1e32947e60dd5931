// A store that is changed while others read it: by one thread, then by many.

#include "mpistrat/store.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "helpers/check.h"
#include "helpers/values.h"
#include "mpistrat/types.h"

namespace {

using mpistrat_test::append;

constexpr uint64_t kSecond = 1'000'000'000;
using Indices = std::vector<int64_t>;

// A store of numbers of type T, in memory as processes share it.
template <class T>
struct Table {
  size_t num_rows, columns;
  MpistratStoreShape shape;
  void* memory;
  MpistratStore* store;

  Table(size_t rows_, size_t columns_, int num_buffers)
      : num_rows(rows_),
        columns(columns_),
        shape{static_cast<int64_t>(rows_), static_cast<int64_t>(columns_ * sizeof(T)),
              num_buffers} {
    memory = mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    store = mpistrat_store_open(memory, &shape, 1);
    CHECK(store);
  }
  ~Table() {
    mpistrat_store_close(store);
    munmap(memory, bytes());
  }
  Table(const Table&) = delete;

  size_t bytes() const { return mpistrat_store_bytes(&shape); }
  size_t size() const { return num_rows * columns; }

  std::vector<T> read(bool is_whole = true) const {
    std::vector<T> out(size());
    CHECK(mpistrat_store_read(store, out.data(), is_whole, kSecond) == MPISTRAT_ROWS_DONE);
    return out;
  }

  // The first buffer that may be written to. A reader that comes late may hold one more, for the
  // moment until it sees that another is current.
  int free_buffer() const {
    for (;; std::this_thread::yield()) {
      const uint64_t taken = mpistrat_store_leased(store) | uint64_t{1}
                                                                << mpistrat_store_current(store);
      for (int i = 0; i < shape.num_buffers; ++i) {
        if ((taken >> i & 1) == 0) return i;
      }
    }
  }

  // As the owner changes it: in place if it may.
  template <class Change>
  void change(Change make) {
    if (mpistrat_store_begin(store)) {
      make(mpistrat_store_current(store));
      mpistrat_store_finish(store);
      return;
    }
    const int buffer = free_buffer();
    mpistrat_store_begin_in(store, buffer);
    mpistrat_store_fill(store, buffer, nullptr);
    make(buffer);
    mpistrat_store_finish_in(store, buffer);
  }

  void add(const Indices& rows, const std::vector<T>& values, int dtype) {
    change([&](int buffer) {
      CHECK(mpistrat_store_add(store, buffer, rows.data(), static_cast<int64_t>(rows.size()),
                               values.data(), dtype) == MPISTRAT_ROWS_DONE);
    });
  }

  void put(const Indices& rows, const std::vector<T>& values) {
    change([&](int buffer) {
      CHECK(mpistrat_store_put(store, buffer, rows.data(), static_cast<int64_t>(rows.size()),
                               values.data()) == MPISTRAT_ROWS_DONE);
    });
  }
};

// ---------------------------------------------------------------------------------- one thread

// Rows of all lengths, so that words begin and end anywhere.
void check_changes(size_t columns) {
  Table<uint8_t> table(50, columns, 3);
  std::mt19937 random(static_cast<unsigned>(columns));
  std::vector<uint8_t> expected(table.size(), 0), values(4 * columns);
  CHECK(table.read() == expected);
  for (uint64_t version = 1; version <= 40; ++version) {
    const Indices rows = {static_cast<int64_t>(random() % 50), 0, 49, 0};
    for (uint8_t& value : values) value = static_cast<uint8_t>(random());
    const bool is_put = random() % 2 != 0;
    is_put ? table.put(rows, values) : table.add(rows, values, MPISTRAT_UINT8);
    for (size_t i = 0; i < values.size(); ++i) {
      const size_t at = static_cast<size_t>(rows[i / columns]) * columns + i % columns;
      expected[at] = static_cast<uint8_t>((is_put ? 0 : expected[at]) + values[i]);
    }
    CHECK(mpistrat_store_version(table.store) == version);
    CHECK(table.read(random() % 2 != 0) == expected);
    std::vector<uint8_t> some(values.size());
    CHECK(mpistrat_store_take(table.store, rows.data(), 4, some.data(), random() % 2 != 0, 0) ==
          MPISTRAT_ROWS_DONE);
    for (size_t i = 0; i < some.size(); ++i) {
      CHECK(some[i] == expected[static_cast<size_t>(rows[i / columns]) * columns + i % columns]);
    }
  }
}

void check_whole_changes() {
  Table<float> table(100, 130, 3);
  std::vector<float> values(table.size());
  std::iota(values.begin(), values.end(), 1.0f);
  const int first = table.free_buffer();
  mpistrat_store_begin_in(table.store, first);
  mpistrat_store_fill(table.store, first, values.data());
  CHECK(table.read() == std::vector<float>(table.size()));  // not yet
  mpistrat_store_finish_in(table.store, first);
  CHECK(mpistrat_store_current(table.store) == first);
  CHECK(table.read() == values);
  // One that is given up, and another in the same memory.
  const int second = table.free_buffer();
  mpistrat_store_begin_in(table.store, second);
  mpistrat_store_begin_in(table.store, second);
  CHECK(mpistrat_store_sum(table.store, second, values.data(), MPISTRAT_FLOAT32) ==
        MPISTRAT_ROWS_DONE);
  CHECK(table.read() == values);
  mpistrat_store_finish_in(table.store, second);
  for (float& value : values) value *= 2;
  CHECK(table.read() == values);
  CHECK(table.read(false) == values);
  CHECK(mpistrat_store_version(table.store) == 2);
}

void check_leases() {
  Table<int64_t> table(10, 8, 4);
  const Indices rows = {3};
  const std::vector<int64_t> ones(8, 1);
  std::vector<int> leases;
  for (uint64_t tag = 1; tag <= 2; ++tag) {
    int buffer;
    uint64_t version;
    leases.push_back(mpistrat_store_lease(table.store, tag, 0, &buffer, &version));
    CHECK(leases.back() >= 0 && version == tag - 1);
    const auto* view = static_cast<const int64_t*>(mpistrat_store_data(table.store, buffer));
    table.add(rows, ones, MPISTRAT_INT64);
    CHECK(mpistrat_store_current(table.store) != buffer);
    CHECK(view[3 * 8] == static_cast<int64_t>(version));
  }
  // Of two versions, and so the owner has but one buffer left.
  int buffer;
  uint64_t version, tags[MPISTRAT_STORE_LEASES];
  CHECK(mpistrat_store_lease(table.store, 3, 0, &buffer, &version) == MPISTRAT_STORE_FULL);
  table.add(rows, ones, MPISTRAT_INT64);
  mpistrat_store_tags(table.store, tags);
  CHECK(tags[leases[0]] == 1 && tags[leases[1]] == 2);
  mpistrat_store_drop(table.store, leases[0], 2);  // another's: stays
  CHECK(mpistrat_store_lease(table.store, 3, 0, &buffer, &version) == MPISTRAT_STORE_FULL);
  mpistrat_store_drop(table.store, leases[0], 1);
  mpistrat_store_release(table.store, leases[1]);
  CHECK(mpistrat_store_leased(table.store) == 0);
  // Many of one version, as many as there are.
  for (int i = 0; i < MPISTRAT_STORE_LEASES; ++i) {
    CHECK(mpistrat_store_lease(table.store, 4, 0, &buffer, &version) == i);
    CHECK(buffer == mpistrat_store_current(table.store) && version == 3);
  }
  CHECK(mpistrat_store_lease(table.store, 4, 0, &buffer, &version) == MPISTRAT_STORE_FULL);
}

// A change that never ends, its owner having died: nobody waits for longer than he said.
void check_broken_off() {
  Table<int32_t> table(600, 16, 3);
  CHECK(mpistrat_store_begin(table.store));
  int buffer;
  uint64_t version;
  CHECK(mpistrat_store_lease(table.store, 1, 1000, &buffer, &version) == MPISTRAT_STORE_BUSY);
  CHECK(mpistrat_store_leased(table.store) == 0);
  CHECK(table.read() == std::vector<int32_t>(table.size()));  // no word was written yet
  mpistrat_store_finish(table.store);
  mpistrat_store_begin_in(table.store, mpistrat_store_current(table.store));
  std::vector<int32_t> out(table.size());
  const Indices rows = {5};
  for (bool is_whole : {false, true}) {
    CHECK(mpistrat_store_read(table.store, out.data(), is_whole, 1000) == MPISTRAT_STORE_BUSY);
    CHECK(mpistrat_store_take(table.store, rows.data(), 1, out.data(), is_whole, 0) ==
          MPISTRAT_STORE_BUSY);
  }
}

void check_shapes() {
  Table<char> table(10, 3, 3);
  MpistratStoreShape shape = table.shape;
  MpistratStore* again = mpistrat_store_open(table.memory, &shape, 0);
  CHECK(again);
  mpistrat_store_close(again);
  shape.row_bytes = 4;
  CHECK(!mpistrat_store_open(table.memory, &shape, 0));
  shape.num_buffers = MPISTRAT_STORE_MAX_BUFFERS + 1;
  CHECK(!mpistrat_store_open(table.memory, &shape, 1));
  size_t start, nbytes, end = 0;
  for (int64_t rows : {0, 1, 1000, 300000}) {
    const MpistratStoreShape other = {rows, 256, 8};
    for (int buffer = -1; buffer < 8; ++buffer) {
      mpistrat_store_range(&other, buffer, &start, &nbytes);
      CHECK(start >= end || buffer < 0);
      CHECK(start % (rows * 256 < (2 << 20) ? 4096 : 2 << 20) == 0);
      end = start + nbytes;
    }
    CHECK(end <= mpistrat_store_bytes(&other));
  }
  const Indices rows = {10};
  CHECK(mpistrat_store_take(table.store, rows.data(), 1, nullptr, 1, 0) == 0);
  CHECK(mpistrat_store_put(table.store, 0, rows.data(), 1, nullptr) == 0);
  CHECK(mpistrat_store_add(table.store, 0, rows.data(), 1, nullptr, MPISTRAT_INT8) == 0);
  CHECK(mpistrat_store_sum(table.store, 1, nullptr, MPISTRAT_INT32) == MPISTRAT_ROWS_NO_DTYPE);
}

// -------------------------------------------------------------------------------- many threads
// Every change adds 1 to every number, so that each is the version that it is of.

template <class T>
struct Race {
  Table<T> table;
  int dtype;
  std::atomic<bool> is_over{false};
  std::atomic<int> copies{0}, views{0};

  Race(size_t rows, size_t columns, int num_buffers, int dtype_)
      : table(rows, columns, num_buffers), dtype(dtype_) {}

  void own(int changes) {
    std::mt19937 random(1);
    Indices rows(table.num_rows);
    std::iota(rows.begin(), rows.end(), 0);
    const std::vector<T> ones(table.size(), 1);
    std::vector<T> value;
    for (int i = 0; i < changes; ++i) {
      value.clear();
      append(value, static_cast<int64_t>(table.size()), 1, [i](int64_t) { return i + 1; });
      std::shuffle(rows.begin(), rows.end(), random);
      switch (random() % 4) {
        case 0:
          table.put(rows, value);
          break;
        case 1:
          whole([&](int buffer) { mpistrat_store_fill(table.store, buffer, value.data()); });
          break;
        case 2:
          whole([&](int buffer) { mpistrat_store_sum(table.store, buffer, ones.data(), dtype); });
          break;
        default:
          table.add(rows, ones, dtype);
      }
      if (random() % 8 == 0) std::this_thread::yield();
    }
    is_over = true;
  }

  template <class Write>
  void whole(Write write) {
    const int buffer = table.free_buffer();
    mpistrat_store_begin_in(table.store, buffer);
    write(buffer);
    mpistrat_store_finish_in(table.store, buffer);
  }

  // Each number with the next one: at once, or sanitizers would look at each by itself.
  static bool is_equal(const T* begin, const T* end) {
    return std::memcmp(begin, begin + 1, static_cast<size_t>(end - begin - 1) * sizeof(T)) == 0;
  }

  void copy(unsigned seed) {
    std::mt19937 random(seed);
    std::vector<T> out(table.size());
    while (!is_over) {
      Indices rows(1 + random() % table.num_rows);
      for (int64_t& row : rows) row = static_cast<int64_t>(random() % table.num_rows);
      const auto count = static_cast<int64_t>(rows.size());
      const uint64_t before = mpistrat_store_version(table.store);
      if (mpistrat_store_take(table.store, rows.data(), count, out.data(), 1, 0) ==
          MPISTRAT_ROWS_DONE) {
        CHECK(is_equal(out.data(), out.data() + rows.size() * table.columns));
        CHECK(out[0] >= static_cast<T>(before));
        ++copies;
      }
      if (mpistrat_store_read(table.store, out.data(), 1, 0) == MPISTRAT_ROWS_DONE) {
        CHECK(is_equal(out.data(), out.data() + out.size()));
        ++copies;
      }
      // However much is written, single rows are had.
      CHECK(mpistrat_store_take(table.store, rows.data(), count, out.data(), 0, 20 * kSecond) ==
            MPISTRAT_ROWS_DONE);
      for (size_t i = 0; i < rows.size(); ++i) {
        CHECK(is_equal(&out[i * table.columns], &out[i * table.columns] + table.columns));
        CHECK(out[i * table.columns] >= static_cast<T>(before));
      }
    }
  }

  void view(uint64_t tag) {
    while (!is_over) {
      int buffer;
      uint64_t version;
      const int lease = mpistrat_store_lease(table.store, tag, 20 * kSecond, &buffer, &version);
      if (lease == MPISTRAT_STORE_FULL) continue;
      CHECK(lease >= 0);
      const T* data = static_cast<const T*>(mpistrat_store_data(table.store, buffer));
      for (int times = 0; times < 3; ++times) {
        CHECK(data[0] == static_cast<T>(version) && is_equal(data, data + table.size()));
        std::this_thread::yield();
      }
      mpistrat_store_release(table.store, lease);
      ++views;
    }
  }

  void run(int changes) {
    std::vector<std::thread> readers;
    for (unsigned seed : {1, 2}) readers.emplace_back([this, seed] { copy(seed); });
    for (uint64_t tag : {1, 2}) readers.emplace_back([this, tag] { view(tag); });
    own(changes);
    for (std::thread& reader : readers) reader.join();
    CHECK(table.read() == std::vector<T>(table.size(), static_cast<T>(changes)));
    std::printf("%d changes, %d copies, %d views\n", changes, copies.load(), views.load());
  }
};

}  // namespace

int main() {
  for (size_t columns : {1, 3, 8, 13, 500, 9000}) check_changes(columns);
  check_whole_changes();
  check_leases();
  check_broken_off();
  check_shapes();
  Race<int64_t>(60, 512, 3, MPISTRAT_INT64).run(500);  // four rows a block
  Race<int32_t>(700, 3, 4, MPISTRAT_INT32).run(500);   // rows of a word and a half
  return 0;
}
