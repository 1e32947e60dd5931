// Rows of a table, of every dtype and with every instruction set, against one element at a time.

#include "mpistrat/rows.h"

#include <algorithm>
#include <atomic>
#include <complex>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "helpers/check.h"
#include "helpers/reference.h"

namespace {

using namespace mpistrat_test;

using Indices = std::vector<int64_t>;
constexpr int64_t kNumRows = 37;

Indices some_rows(std::mt19937& random, size_t count) {
  Indices rows(count);
  for (int64_t& row : rows) row = random() % kNumRows;  // many of them twice
  return rows;
}

MpistratTable table_of(Buffer& data, size_t row_bytes) {
  return {data.data(), kNumRows, static_cast<int64_t>(row_bytes)};
}

// All that comes to a row, in its order; halves are rounded at the end.
template <class Format>
void add_one_by_one(Buffer& table, size_t row_bytes, const Indices& rows, const Buffer& values) {
  for (int64_t row = 0; row < kNumRows; ++row) {
    const auto base = table.begin() + static_cast<ptrdiff_t>(row * row_bytes);
    std::vector<Buffer> sources = {Buffer(base, base + static_cast<ptrdiff_t>(row_bytes))};
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto value = values.begin() + static_cast<ptrdiff_t>(i * row_bytes);
      if (rows[i] == row) sources.emplace_back(value, value + static_cast<ptrdiff_t>(row_bytes));
    }
    if (sources.size() == 1) continue;
    const Buffer sum = reference<Format>(sources, Format::kBytes, MPISTRAT_SUM, 1);
    std::copy(sum.begin(), sum.end(), base);
  }
}

template <class Format>
void check_add(int dtype, size_t elements, size_t count) {
  std::mt19937 random(static_cast<unsigned>(100 * elements + count));
  const size_t row_bytes = elements * Format::kBytes;
  const Buffer before = random_source<Format>(random, kNumRows * elements);
  const Buffer values = random_source<Format>(random, count * elements);
  const Indices rows = some_rows(random, count);
  Buffer expected = before;
  add_one_by_one<Format>(expected, row_bytes, rows, values);
  for (const char* name : instruction_sets()) {
    CHECK(mpistrat_simd_select(name));
    Buffer data = before;
    const MpistratTable table = table_of(data, row_bytes);
    CHECK(mpistrat_rows_add(&table, rows.data(), static_cast<int64_t>(count), values.data(),
                            dtype) == MPISTRAT_ROWS_DONE);
    CHECK_AT((same<Format>(data.data(), expected.data(), data.size())),
             "%s: dtype %d elements %zu count %zu", name, dtype, elements, count);
  }
}

template <class Format>
void check_dtype(int dtype) {
  for (size_t elements : {size_t{1}, size_t{3}, size_t{64}, size_t{2500}}) {
    for (size_t count : {size_t{0}, size_t{1}, size_t{20}, size_t{150}}) {
      check_add<Format>(dtype, elements, count);
    }
  }
}

void check_take_and_put(size_t row_bytes, size_t count) {
  std::mt19937 random(static_cast<unsigned>(row_bytes + count));
  Buffer data = random_source<Plain<uint8_t>>(random, kNumRows * row_bytes), expected = data;
  const Buffer values = random_source<Plain<uint8_t>>(random, count * row_bytes);
  const Indices rows = some_rows(random, count);
  const MpistratTable table = table_of(data, row_bytes);
  const auto num = static_cast<int64_t>(count);
  Buffer out(count * row_bytes + 1, 'x');
  CHECK(mpistrat_rows_take(&table, rows.data(), num, out.data()) == MPISTRAT_ROWS_DONE);
  CHECK(out.back() == 'x');
  for (size_t i = 0; i < count; ++i) {
    CHECK(std::equal(&out[i * row_bytes], &out[(i + 1) * row_bytes], &data[rows[i] * row_bytes]));
  }
  for (size_t i = 0; i < count; ++i) {
    std::copy_n(&values[i * row_bytes], row_bytes, &expected[rows[i] * row_bytes]);
  }
  CHECK(mpistrat_rows_put(&table, rows.data(), num, values.data()) == MPISTRAT_ROWS_DONE);
  CHECK(data == expected);
}

// Rows of parts, some of them empty; few, and so many that they are searched for.
template <class T>
void check_split(const Indices& lengths, int dtype, int negated_dtype) {
  Indices starts = {0};
  for (int64_t length : lengths) starts.push_back(starts.back() + length);
  const size_t num_parts = lengths.size(), columns = 3;
  std::mt19937 random(static_cast<unsigned>(num_parts));
  Indices rows(400), counts(num_parts, -1);
  std::vector<T> values(rows.size() * columns);
  for (int64_t& row : rows) row = static_cast<int64_t>(random()) % starts.back();
  for (T& value : values) value = static_cast<T>(random() % 200);
  const auto count = static_cast<int64_t>(rows.size());
  const int num = static_cast<int>(num_parts);
  CHECK(mpistrat_rows_count(rows.data(), count, starts.data(), num, counts.data()) ==
        MPISTRAT_ROWS_DONE);
  std::vector<Indices> some_rows, expected_rows(num_parts);
  std::vector<std::vector<T>> some_values, expected_values(num_parts);
  std::vector<int64_t*> row_places;
  std::vector<void*> value_places;
  for (size_t i = 0; i < num_parts; ++i) {
    some_rows.emplace_back(static_cast<size_t>(counts[i]), -1);
    some_values.emplace_back(static_cast<size_t>(counts[i]) * columns, T{1});
    row_places.push_back(some_rows[i].data());
    value_places.push_back(some_values[i].data());
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    size_t part = 0;
    while (rows[i] >= starts[part + 1]) ++part;
    expected_rows[part].push_back(rows[i] - starts[part]);
    for (size_t k = i * columns; k < (i + 1) * columns; ++k) {
      const T value = values[k];
      expected_values[part].push_back(negated_dtype < 0 ? value : static_cast<T>(T{} - value));
    }
  }
  const MpistratPieces pieces = {starts.data(), num, counts.data(), row_places.data(),
                                 value_places.data()};
  CHECK(mpistrat_rows_split(&pieces, rows.data(), count, values.data(), columns * sizeof(T),
                            negated_dtype) == MPISTRAT_ROWS_DONE);
  CHECK_AT(some_rows == expected_rows && some_values == expected_values, "dtype %d, %d parts",
           dtype, num);
}

template <class T>
void check_splits(int dtype) {
  for (int negated : {-1, dtype}) {
    check_split<T>({11}, dtype, negated);
    check_split<T>({0, 7, 0, 6, 0}, dtype, negated);
    check_split<T>(Indices(30, 3), dtype, negated);
  }
}

void check_split_refusals() {
  const Indices rows = {3, 9, 4}, starts = {0, 5, 9};
  Indices counts(2);
  CHECK(mpistrat_rows_count(rows.data(), 3, starts.data(), 2, counts.data()) == 1);
  const MpistratPieces pieces = {starts.data(), 2, counts.data(), nullptr, nullptr};
  for (int dtype : {int{MPISTRAT_BOOL}, 15, int{MPISTRAT_FLOAT64}}) {
    CHECK(mpistrat_rows_split(&pieces, rows.data(), 3, rows.data(), 4, dtype) ==
          MPISTRAT_ROWS_NO_DTYPE);
  }
}

// Whatever is wrong, nothing is written.
void check_refusals() {
  Buffer data(kNumRows * 8, 'a'), before = data, values(3 * 8, 'b');
  const MpistratTable table = table_of(data, 8);
  for (int64_t wrong : {kNumRows, int64_t{-1}, INT64_MIN, INT64_MAX}) {
    const Indices rows = {0, 36, wrong};
    CHECK(mpistrat_rows_take(&table, rows.data(), 3, values.data()) == 2);
    CHECK(mpistrat_rows_put(&table, rows.data(), 3, values.data()) == 2);
    CHECK(mpistrat_rows_add(&table, rows.data(), 3, values.data(), MPISTRAT_INT64) == 2);
  }
  const Indices rows = {1, 2, 3};
  for (int dtype : {-1, 15, int{MPISTRAT_COMPLEX128}}) {
    CHECK(mpistrat_rows_add(&table, rows.data(), 3, values.data(), dtype) ==
          MPISTRAT_ROWS_NO_DTYPE);
  }
  CHECK(data == before);
  const MpistratTable empty = {nullptr, kNumRows, 0};
  CHECK(mpistrat_rows_take(&empty, rows.data(), 3, nullptr) == MPISTRAT_ROWS_DONE);
  CHECK(mpistrat_rows_put(&empty, rows.data(), 3, nullptr) == MPISTRAT_ROWS_DONE);
  CHECK(mpistrat_rows_add(&empty, rows.data(), 3, nullptr, MPISTRAT_BFLOAT16) ==
        MPISTRAT_ROWS_DONE);
}

// Another thread writes to the indices; the sanitizers and the guards tell what else is touched.
void check_changing_indices() {
  constexpr int64_t kCount = 2000;
  constexpr size_t kGuard = 64;
  Buffer guarded(kGuard + kNumRows * 8 + kGuard, 'g'), values(kCount * 8, 0);
  const MpistratTable table = {guarded.data() + kGuard, kNumRows, 8};
  const Indices starts = {0, 5, kNumRows};
  Indices rows(kCount, 3), counts(2), near(kCount), far(kCount);
  Buffer near_values(kCount * 8), far_values(kCount * 8);
  void* const value_places[] = {near_values.data(), far_values.data()};
  std::atomic<bool> is_over{false};
  std::thread writer([&] {
    for (size_t i = 0; !is_over.load(std::memory_order_relaxed); ++i) {
      int64_t* one = rows.data() + i * 7 % kCount;
      for (int64_t row : {INT64_MAX / 64, -INT64_MAX / 64, int64_t{7}, int64_t{3}}) {
        __atomic_store_n(one, row, __ATOMIC_RELAXED);
      }
    }
  });
  const char* from = values.data();
  for (int turn = 0; turn < 300; ++turn) {
    mpistrat_rows_take(&table, rows.data(), kCount, values.data());
    mpistrat_rows_put(&table, rows.data(), kCount, from);
    mpistrat_rows_add(&table, rows.data(), kCount, from, MPISTRAT_FLOAT64);
    mpistrat_rows_add(&table, rows.data(), kCount, from, MPISTRAT_FLOAT16);
    if (mpistrat_rows_count(rows.data(), kCount, starts.data(), 2, counts.data()) >= 0) continue;
    near.assign(static_cast<size_t>(counts[0]), -1);
    far.assign(static_cast<size_t>(counts[1]), -1);
    int64_t* const exact[] = {near.data(), far.data()};
    const MpistratPieces pieces = {starts.data(), 2, counts.data(), exact, value_places};
    const int64_t result = mpistrat_rows_split(&pieces, rows.data(), kCount, from, 8, -1);
    CHECK(result == MPISTRAT_ROWS_DONE || result == MPISTRAT_ROWS_CHANGED);
  }
  is_over.store(true);
  writer.join();
  const Buffer guard(kGuard, 'g');
  CHECK(std::equal(guard.begin(), guard.end(), guarded.begin()));
  CHECK(std::equal(guard.begin(), guard.end(), guarded.end() - kGuard));
}

}  // namespace

int main() {
  on_every_dtype([](auto format, int dtype) { check_dtype<decltype(format)>(dtype); });
  for (size_t row_bytes : {1, 4, 12, 256, 1000, 5000}) {
    for (size_t count : {0, 1, 15, 16, 17, 200}) check_take_and_put(row_bytes, count);
  }
  check_splits<int8_t>(MPISTRAT_INT8);
  check_splits<uint16_t>(MPISTRAT_UINT16);
  check_splits<int32_t>(MPISTRAT_INT32);
  check_splits<int64_t>(MPISTRAT_INT64);
  check_splits<float>(MPISTRAT_FLOAT32);
  check_splits<double>(MPISTRAT_FLOAT64);
  check_splits<std::complex<float>>(MPISTRAT_COMPLEX64);
  check_split_refusals();
  check_refusals();
  check_changing_indices();
  return 0;
}
