#ifndef MPISTRAT_TESTS_HELPERS_SHM_CASES_H_
#define MPISTRAT_TESTS_HELPERS_SHM_CASES_H_

// Calls of every kind: what each rank gives and, by the definition of the collective, gets.

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "mpistrat/calls.h"
#include "values.h"

namespace mpistrat_test {

// What one rank holds at index `i` of the block that it has for rank `to`; small whole numbers, so
// that sums are exact in any order.
inline float value(int rank, int to, int64_t i, int salt) {
  return static_cast<float>((rank * 31 + to * 17 + i * 7 + salt) % 97);
}
constexpr size_t kPeriod = 97;  // of `i`

// The sum of all ranks' values.
inline float sum_of(int size, int to, int64_t i, int salt) {
  float sum = 0;
  for (int rank = 0; rank < size; ++rank) sum += value(rank, to, i, salt);
  return sum;
}

struct Case {
  int kind, size, root, salt;
  std::vector<std::vector<int64_t>> counts;  // [from][to], elements
  int num_pieces;
  bool is_delayed;
};

inline int64_t total(const std::vector<int64_t>& counts) {
  int64_t sum = 0;
  for (int64_t n : counts) sum += n;
  return sum;
}

inline std::vector<int64_t> in_bytes(std::vector<int64_t> counts) {
  for (int64_t& n : counts) n *= static_cast<int64_t>(sizeof(float));
  return counts;
}

inline int64_t most(const Case& c) {
  int64_t most = 0;
  for (const auto& row : c.counts)
    for (int64_t n : row) most = std::max(most, n);
  return most * static_cast<int64_t>(sizeof(float));
}

// The counts of `send` and `recv` as this rank gives them.
inline std::vector<int64_t> sent(const Case& c, int rank) {
  switch (c.kind) {
    case MPISTRAT_ALLREDUCE:
    case MPISTRAT_REDUCE:
    case MPISTRAT_BCAST:
      return {c.counts[0][0]};
    case MPISTRAT_REDUCE_SCATTER:
      return c.counts[0];
    case MPISTRAT_SCATTER:
      return c.counts[static_cast<size_t>(c.root)];
    case MPISTRAT_ALLTOALL:
      return c.counts[static_cast<size_t>(rank)];
    default:
      return {c.counts[static_cast<size_t>(rank)][0]};
  }
}

inline std::vector<int64_t> received(const Case& c, int rank) {
  std::vector<int64_t> counts;
  const auto me = static_cast<size_t>(rank);
  switch (c.kind) {
    case MPISTRAT_REDUCE_SCATTER:
      return {c.counts[0][me]};
    case MPISTRAT_SCATTER:
      return {c.counts[static_cast<size_t>(c.root)][me]};
    case MPISTRAT_ALLTOALL:
      for (const auto& row : c.counts) counts.push_back(row[me]);
      return counts;
    case MPISTRAT_ALLGATHER:
    case MPISTRAT_GATHER:
      for (const auto& row : c.counts) counts.push_back(row[0]);
      return counts;
    default:
      return {c.counts[0][0]};
  }
}

inline Values inputs(const Case& c, int rank) {
  Values values;
  const auto counts = sent(c, rank);
  for (size_t to = 0; to < counts.size(); ++to)
    append(values, counts[to], kPeriod,
           [&](int64_t i) { return value(rank, static_cast<int>(to), i, c.salt); });
  return values;
}

// The answer at index `i` of the block from a rank, from the definition of each collective.
inline float answer(const Case& c, int rank, int from, int64_t i) {
  switch (c.kind) {
    case MPISTRAT_ALLREDUCE:
    case MPISTRAT_REDUCE:
      return sum_of(c.size, 0, i, c.salt);
    case MPISTRAT_REDUCE_SCATTER:
      return sum_of(c.size, rank, i, c.salt);
    case MPISTRAT_BCAST:
      return value(c.root, 0, i, c.salt);
    case MPISTRAT_SCATTER:
      return value(c.root, rank, i, c.salt);
    case MPISTRAT_ALLTOALL:
      return value(from, rank, i, c.salt);
    default:
      return value(from, 0, i, c.salt);
  }
}

inline Values expected(const Case& c, int rank) {
  Values values;
  const auto counts = received(c, rank);
  for (size_t from = 0; from < counts.size(); ++from)
    append(values, counts[from], kPeriod,
           [&](int64_t i) { return answer(c, rank, static_cast<int>(from), i); });
  return values;
}

inline Case random_case(int size, std::mt19937& random) {
  static const int64_t kCounts[] = {0,   1,   3,    17,   56,    57,    256,   257,
                                    512, 513, 1000, 4097, 32768, 32769, 100003};
  Case c{static_cast<int>(1 + random() % 8),
         size,
         static_cast<int>(random() % size),
         static_cast<int>(random() % 1000),
         {},
         static_cast<int>(1 + random() % 4),
         random() % 2 == 0};
  for (int from = 0; from < size; ++from) {
    c.counts.emplace_back();
    for (int to = 0; to < size; ++to)
      c.counts.back().push_back(kCounts[random() % (sizeof kCounts / sizeof *kCounts)]);
  }
  return c;
}

}  // namespace mpistrat_test

#endif  // MPISTRAT_TESTS_HELPERS_SHM_CASES_H_
