// Gather rows from several stores while their owners change them; and hand memory back and forth
// between two threads.

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <memory>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "helpers/check.h"
#include "mpistrat/store.h"
#include "mpistrat/types.h"

namespace {

constexpr uint64_t kSecond = 1'000'000'000;
constexpr size_t kColumns = 20;
using Indices = std::vector<int64_t>;
using Values = std::vector<int64_t>;

struct Store {
  MpistratStoreShape shape;
  void* memory;
  MpistratStore* store;

  explicit Store(int64_t num_rows) : shape{num_rows, kColumns * sizeof(int64_t), 3} {
    memory = mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    store = mpistrat_store_open(memory, &shape, 1);
    CHECK(store);
  }
  ~Store() {
    mpistrat_store_close(store);
    munmap(memory, bytes());
  }
  Store(const Store&) = delete;

  size_t bytes() const { return mpistrat_store_bytes(&shape); }

  // All rows, in another order each time.
  void add(int64_t number, std::mt19937& random) const {
    Indices rows(static_cast<size_t>(shape.num_rows));
    std::iota(rows.begin(), rows.end(), 0);
    std::shuffle(rows.begin(), rows.end(), random);
    const Values values(rows.size() * kColumns, number);
    CHECK(mpistrat_store_begin(store));
    CHECK(mpistrat_store_add(store, mpistrat_store_current(store), rows.data(), shape.num_rows,
                             values.data(), MPISTRAT_INT64) == MPISTRAT_ROWS_DONE);
    mpistrat_store_finish(store);
  }
};

struct Table {
  std::vector<std::unique_ptr<Store>> parts;
  std::vector<const MpistratStore*> stores;
  Indices starts = {0};

  explicit Table(const Indices& lengths) {
    for (int64_t length : lengths) {
      parts.push_back(std::make_unique<Store>(length));
      stores.push_back(parts.back()->store);
      starts.push_back(starts.back() + length);
    }
  }

  int64_t gather(const Indices& rows, Values& out, uint64_t budget_ns = 0) const {
    out.assign(rows.size() * kColumns, -1);
    return mpistrat_store_gather(stores.data(), starts.data(), static_cast<int>(stores.size()),
                                 rows.data(), static_cast<int64_t>(rows.size()), out.data(),
                                 budget_ns);
  }

  size_t part_of(int64_t row) const {
    size_t part = 0;
    while (row >= starts[part + 1]) ++part;
    return part;
  }
};

Indices some_rows(std::mt19937& random, size_t count, int64_t num_rows) {
  Indices rows(count);
  for (int64_t& row : rows) row = static_cast<int64_t>(random()) % num_rows;
  return rows;
}

// Every part has a number of its own. Few parts, many, and some without rows.
void check_values(const Indices& lengths) {
  const Table table(lengths);
  std::mt19937 random(1);
  for (size_t i = 0; i < lengths.size(); ++i) {
    table.parts[i]->add(static_cast<int64_t>(i) + 7, random);
  }
  Values out;
  for (size_t count : {0, 1, 15, 31, 32, 33, 500}) {
    const Indices rows = some_rows(random, count, table.starts.back());
    CHECK(table.gather(rows, out) == MPISTRAT_ROWS_DONE);
    for (size_t i = 0; i < out.size(); ++i) {
      CHECK(out[i] == static_cast<int64_t>(table.part_of(rows[i / kColumns])) + 7);
    }
  }
  CHECK(table.gather({0, table.starts.back()}, out) == 1);
  CHECK(table.gather({-1}, out) == 0);
}

// A part whose owner has died in a change of all.
void check_broken_off() {
  const Table table({40, 40});
  MpistratStore* store = table.parts[1]->store;
  mpistrat_store_begin_in(store, mpistrat_store_current(store));
  Values out;
  CHECK(table.gather({0, 39, 3}, out) == MPISTRAT_ROWS_DONE);
  CHECK(table.gather({0, 40, 3}, out) == MPISTRAT_STORE_BUSY);
  CHECK(table.gather({0, 40, 3}, out, 200'000) == MPISTRAT_STORE_BUSY);
}

// Each owner adds 1 to all rows at once, so all rows of a part are alike in a version.
void check_race() {
  const Table table({130, 70, 200});
  std::atomic<int> num_owners{3}, copies{0};
  std::vector<std::thread> threads;
  for (const auto& part : table.parts) {
    threads.emplace_back([&] {
      std::mt19937 random(static_cast<unsigned>(part->shape.num_rows));
      for (int i = 0; i < 600; ++i) {
        part->add(1, random);
        if (i % 8 == 0) std::this_thread::yield();
      }
      --num_owners;
    });
  }
  for (unsigned seed : {1, 2}) {
    threads.emplace_back([&, seed] {
      std::mt19937 random(seed);
      Values out;
      while (num_owners > 0) {
        const Indices rows = some_rows(random, 1 + random() % 60, table.starts.back());
        if (table.gather(rows, out, kSecond / 50) != MPISTRAT_ROWS_DONE) continue;
        ++copies;
        Values found(table.parts.size(), -1);
        for (size_t i = 0; i < out.size(); ++i) {
          int64_t& version = found[table.part_of(rows[i / kColumns])];
          if (version < 0) version = out[i];
          CHECK(out[i] == version);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::printf("%d copies\n", copies.load());
}

// One fills plain memory and sets the word, the other reads it and sets the word back.
void check_handing_over() {
  alignas(8) uint64_t word = 0;
  std::vector<int> memory(100, 0);
  std::thread reader([&] {
    for (int i = 1; i <= 2000; ++i) {
      while (mpistrat_word_get(&word) == 0) std::this_thread::yield();
      for (int value : memory) CHECK(value == i);
      mpistrat_word_set(&word, 0);
    }
  });
  for (int i = 1; i <= 2000; ++i) {
    while (mpistrat_word_get(&word) != 0) std::this_thread::yield();
    for (int& value : memory) value = i;
    mpistrat_word_set(&word, 1);
  }
  reader.join();
}

}  // namespace

int main() {
  check_values({50});
  check_values({17, 16, 16});
  check_values({0, 5, 0, 9, 0});
  check_values(Indices(23, 4));
  check_broken_off();
  check_race();
  check_handing_over();
  return 0;
}
