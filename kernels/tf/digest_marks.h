// Digest tensors: read some of their memory, the same places on all ranks.
//
// Integers, strings and shapes are digested exactly. Floating-point numbers are not: ranks that
// compute one and the same thing round it differently, since sums depend on where arrays lie in
// memory and on the processor. Of these a weighted sum is noted, to be compared with a tolerance.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/types.h"

namespace mpistrat {
namespace {

using tensorflow::DataTypeCanUseMemcpy;
using tensorflow::Tensor;

constexpr int64_t kWholeBytes = 8 << 10;  // shorter memory is read whole
constexpr int64_t kPieceBytes = 64;       // that are read in a row, of longer memory
constexpr int64_t kNumPieces = 96;
constexpr int64_t kNumStrings = 64;  // of a tensor, at most
// Part of the numbers' distance from their mean by which they may differ between ranks.
constexpr double kPartOfSpread = 1e-4;
constexpr double kNoNumber = 1234.5;  // stands for infinities and for what is no number
constexpr uint64_t kFactor = 0x9E3779B97F4A7C15U;

uint64_t mix(uint64_t digest, uint64_t word) {
  digest = (digest ^ word) * kFactor;
  return digest ^ (digest >> 29U);
}

// Call `read(first, nbytes)` with all memory, or with pieces of it if it is long: at places that
// look random, so that they do not all fall into one column of the rows, but are the same on all
// ranks. They begin at multiples of `kPieceBytes`.
template <typename Read>
void read_some(const char* first, int64_t nbytes, Read read) {
  if (nbytes <= kWholeBytes) {
    read(first, nbytes);
    return;
  }
  uint64_t place = 1;
  for (int64_t i = 0; i < kNumPieces; ++i) {
    place = mix(place, static_cast<uint64_t>(i) + 1);
    const auto piece = static_cast<int64_t>(place % static_cast<uint64_t>(nbytes / kPieceBytes));
    read(first + piece * kPieceBytes, kPieceBytes);
  }
}

uint64_t digest_of(const char* first, int64_t nbytes, uint64_t digest) {
  read_some(first, nbytes, [&digest](const char* piece, int64_t length) {
    int64_t at = 0;
    for (; at + 8 <= length; at += 8) {
      uint64_t word = 0;
      std::memcpy(&word, piece + at, 8);
      digest = mix(digest, word);
    }
    uint64_t rest = 0;
    std::memcpy(&rest, piece + at, static_cast<size_t>(length - at));
    digest = mix(digest, rest);
  });
  return digest;
}

// Call `read(first, nbytes)` with some strings of a tensor.
template <typename Read>
void for_strings(const Tensor& tensor, Read read) {
  const auto strings = tensor.flat<tensorflow::tstring>();
  const int64_t step = strings.size() / kNumStrings + 1;
  for (int64_t i = 0; i < strings.size(); i += step) {
    read(strings(i).data(), static_cast<int64_t>(strings(i).size()));
  }
}

// What is noted of a component of an element.
struct Mark {
  uint64_t digest = 1;  // of all that is compared exactly
  double sum = 0;       // of floating-point numbers, weighted by their places
  double allowed = 0;   // how much the sums of two ranks may differ by rounding
};

// Weights from 0.5 to 1.5 that differ between neighbours, so that two rows that change places
// change the sum. As many as numbers of two bytes are read.
const std::vector<double>& weights() {
  static const auto* all = [] {
    auto* made = new std::vector<double>(kWholeBytes / 2);
    for (size_t place = 0; place < made->size(); ++place) {
      const double turns = 0.618033988749895 * static_cast<double>(place);
      (*made)[place] = 0.5 + (turns - std::floor(turns));
    }
    return made;
  }();
  return *all;
}

// Note the weighted sum of a tensor's numbers, and how much it may differ between ranks: by
// rounding, a part `of_numbers` of each number, and by what is computed from rounded numbers, which
// differs by a part of the distance from their mean.
template <typename T>
void add_floats(const Tensor& tensor, double of_numbers, Mark* mark) {
  std::vector<double> numbers(kWholeBytes / sizeof(T));
  size_t count = 0;
  double total = 0;
  const auto add = [&](const char* piece, int64_t length) {
    for (int64_t at = 0; at + static_cast<int64_t>(sizeof(T)) <= length; at += sizeof(T)) {
      T number;
      std::memcpy(&number, piece + at, sizeof(T));
      const auto value = static_cast<double>(number);
      numbers[count] = value - value == 0 ? value : kNoNumber;
      total += numbers[count++];
    }
  };
  read_some(static_cast<const char*>(tensor.data()), static_cast<int64_t>(tensor.TotalBytes()),
            add);
  const double mean = total / static_cast<double>(std::max<size_t>(count, 1));
  const double* weight = weights().data();
  double sum = 0, of_distances = 0, of_sizes = 0;
  for (size_t i = 0; i < count; ++i) {
    sum += weight[i] * numbers[i];
    of_distances += weight[i] * std::abs(numbers[i] - mean);
    of_sizes += weight[i] * std::abs(numbers[i]);
  }
  mark->sum = sum;
  mark->allowed = kPartOfSpread * of_distances + of_numbers * of_sizes;
}

Mark mark_of(const Tensor& tensor) {
  Mark mark;
  mark.digest = mix(mark.digest, static_cast<uint64_t>(tensor.dtype()));
  for (const auto dim : tensor.shape()) {
    mark.digest = mix(mark.digest, static_cast<uint64_t>(dim.size));
  }
  switch (tensor.dtype()) {
    case tensorflow::DT_STRING:
      for_strings(tensor, [&mark](const char* one, int64_t nbytes) {
        mark.digest = digest_of(one, nbytes, mark.digest);
      });
      break;
    case tensorflow::DT_HALF:
      add_floats<Eigen::half>(tensor, 2e-3, &mark);
      break;
    case tensorflow::DT_BFLOAT16:
      add_floats<Eigen::bfloat16>(tensor, 2e-2, &mark);
      break;
    case tensorflow::DT_FLOAT:
    case tensorflow::DT_COMPLEX64:
      add_floats<float>(tensor, 2e-6, &mark);
      break;
    case tensorflow::DT_DOUBLE:
    case tensorflow::DT_COMPLEX128:
      add_floats<double>(tensor, 1e-11, &mark);
      break;
    default:
      if (!DataTypeCanUseMemcpy(tensor.dtype())) break;  // such as a variant
      mark.digest = digest_of(static_cast<const char*>(tensor.data()),
                              static_cast<int64_t>(tensor.TotalBytes()), mark.digest);
  }
  return mark;
}

// Finds out whether the rows of a component differ at all: a column of ones says nothing about an
// order of rows. To be asked with the tensors of one pass. Reads what the digests are made of, and
// compares it with the same columns of the first row: so where digests of ranks differ, either
// their first rows do, or one of the ranks finds variety here.
class Variety {
 public:
  bool found() const { return is_found_; }

  void look_at(const Tensor& tensor) {
    if (is_found_ || tensor.NumElements() == 0) return;
    if (tensor.dtype() == tensorflow::DT_STRING) {
      for_strings(tensor,
                  [this](const char* one, int64_t nbytes) { compare(one, nbytes, nbytes); });
    } else if (DataTypeCanUseMemcpy(tensor.dtype())) {
      const auto nbytes = static_cast<int64_t>(tensor.TotalBytes());
      const int64_t rows = tensor.dims() == 0 ? 1 : tensor.dim_size(0);
      compare(static_cast<const char*>(tensor.data()), nbytes, nbytes / rows);
    }
  }

 private:
  // Compare rows of `row` bytes each with the first one.
  void compare(const char* rows, int64_t nbytes, int64_t row) {
    if (!has_first_) {
      first_.assign(rows, static_cast<size_t>(row));
      has_first_ = true;
    }
    is_found_ = is_found_ || row != static_cast<int64_t>(first_.size());
    if (is_found_ || row == 0) return;
    read_some(rows, nbytes, [this, rows, row](const char* piece, int64_t length) {
      for (int64_t done = 0; done < length && !is_found_;) {
        const int64_t column = (piece - rows + done) % row;
        const int64_t part = std::min(length - done, row - column);
        is_found_ =
            std::memcmp(first_.data() + column, piece + done, static_cast<size_t>(part)) != 0;
        done += part;
      }
    });
  }

  bool has_first_ = false, is_found_ = false;
  std::string first_;  // row of the pass
};

}  // namespace
}  // namespace mpistrat
