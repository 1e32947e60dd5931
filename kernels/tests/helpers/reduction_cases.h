#ifndef MPISTRAT_TESTS_HELPERS_REDUCTION_CASES_H_
#define MPISTRAT_TESTS_HELPERS_REDUCTION_CASES_H_

// Reductions of every dtype, between lists of pieces, checked against one element at a time.

#include <cstdint>
#include <memory>
#include <mutex>
#include <random>
#include <tuple>
#include <vector>

#include "check.h"
#include "mpistrat/calls.h"
#include "mpistrat/simd.h"
#include "reference.h"
#include "values.h"

namespace mpistrat_test {

// A call, alike on all ranks.
struct Reduced {
  int dtype, op;
  int64_t divisor;
  size_t count;
  int num_pieces;
  unsigned seed;
  bool is_exact;  // in any order: of small whole numbers
};

// What all ranks give, and get.
struct Answer {
  std::vector<Buffer> sources;
  Buffer expected;
};

template <class Format>
Answer answer_of(const Reduced& c, int size) {
  Answer made;
  for (int of = 0; of < size; ++of) {
    std::mt19937 random(c.seed + static_cast<unsigned>(of));
    made.sources.push_back(random_source<Format>(random, c.count, c.is_exact ? 1 : 2));
  }
  made.expected = reference<Format>(made.sources, Format::kBytes, c.op, c.divisor);
  return made;
}

// The answer to a call, made by the first of the ranks that needs it: all of them are threads. The
// next call with its dtype, which begins when all ranks are done with this one, replaces it.
template <class Format>
std::shared_ptr<const Answer> shared_answer(const Reduced& c, int size) {
  using Key = std::tuple<unsigned, size_t, int, int64_t, int, bool>;
  static std::mutex mutex;
  static Key last;
  static std::shared_ptr<const Answer> answer;
  const Key key{c.seed, c.count, c.op, c.divisor, size, c.is_exact};
  const std::lock_guard<std::mutex> lock(mutex);
  if (!answer || key != last) answer = std::make_shared<const Answer>(answer_of<Format>(c, size));
  last = key;
  return answer;
}

template <class Format, class Run>
void check_reduced(const Reduced& c, int rank, int size, Run run) {
  const std::shared_ptr<const Answer> answer = shared_answer<Format>(c, size);
  Buffer send = answer->sources[static_cast<size_t>(rank)], recv(send.size());
  const auto sends = cut(send.data(), c.count, Format::kBytes, c.num_pieces);
  const auto recvs = cut(recv.data(), c.count, Format::kBytes, 1 + c.num_pieces % 3);
  MpistratSpec spec = {};
  spec.kind = MPISTRAT_ALLREDUCE;
  spec.op = c.op;
  spec.dtype = c.dtype;
  spec.divisor = c.divisor;
  spec.send = sends.data();
  spec.num_send = static_cast<int32_t>(sends.size());
  spec.recv = recvs.data();
  spec.num_recv = static_cast<int32_t>(recvs.size());
  run(spec);
  CHECK_AT((same<Format>(recv.data(), answer->expected.data(), recv.size())),
           "rank %d of %d: dtype %d op %d count %zu pieces %d", rank, size, c.dtype, c.op, c.count,
           c.num_pieces);
}

template <class Run>
void check_dtype(const Reduced& c, int rank, int size, Run run) {
  using Check = void (*)(const Reduced&, int, int, Run);
  static constexpr Check kChecks[] = {
      check_reduced<Truth, Run>,           check_reduced<Plain<int8_t>, Run>,
      check_reduced<Plain<int16_t>, Run>,  check_reduced<Plain<int32_t>, Run>,
      check_reduced<Plain<int64_t>, Run>,  check_reduced<Plain<uint8_t>, Run>,
      check_reduced<Plain<uint16_t>, Run>, check_reduced<Plain<uint32_t>, Run>,
      check_reduced<Plain<uint64_t>, Run>, check_reduced<Float16, Run>,
      check_reduced<Bfloat16, Run>,        check_reduced<Plain<float>, Run>,
      check_reduced<Plain<double>, Run>,   check_reduced<Complex<float>, Run>,
      check_reduced<Complex<double>, Run>,
  };
  kChecks[c.dtype](c, rank, size, run);
}

// Every dtype, with what `random` chooses alike on all ranks; `run(spec)` makes a call. Where
// ranks are not reduced in their order, results have to be exact.
template <class Run>
void check_dtypes(std::mt19937& random, int rank, int size, bool is_exact, Run run) {
  constexpr size_t kCounts[] = {0, 3, 57, 1000, 4097, 10007};
  for (int dtype = MPISTRAT_BOOL; dtype <= MPISTRAT_COMPLEX128; ++dtype) {
    int op = static_cast<int>(random() % 7);
    if (!mpistrat_can_reduce(op, dtype) || (is_exact && op == MPISTRAT_PROD)) op = MPISTRAT_SUM;
    const int64_t divisor = op == MPISTRAT_SUM && random() % 2 ? size : 1;
    const size_t count = kCounts[random() % 6];
    const int num_pieces = static_cast<int>(1 + random() % 7);
    const auto seed = static_cast<unsigned>(random());
    check_dtype(Reduced{dtype, op, divisor, count, num_pieces, seed, is_exact}, rank, size, run);
  }
}

}  // namespace mpistrat_test

#endif  // MPISTRAT_TESTS_HELPERS_REDUCTION_CASES_H_
