// A product or a sum of matrices, as the library hands it to its kernels.
#pragma once

#include <cstdint>

namespace pretend {

// The type of the matrices' elements. Scalars have it too, and sums, but for halves: float.
enum class Number : uint32_t { kHalf, kFloat, kDouble, kComplex, kDoubleComplex };

// A scalar: at an address of the device, which is read when the kernel runs, or, where that is 0,
// in these bytes.
struct Scalar {
  uint64_t address;
  alignas(16) unsigned char bytes[16];
};

// A batch of matrices. The distances are counted in elements, and may be negative.
struct Matrices {
  uint64_t address;     // of element (0, 0) of the first
  int64_t row, column;  // from one to the next
  int64_t batch;        // from one matrix to the next; not used for a list
  bool is_list;         // `address` has an array of the matrices' addresses
  bool is_conjugated;
};

// c = alpha a b + beta c, for `count` products; a is m x k, b is k x n. As in BLAS c is not read
// where beta is 0, nor a and b where alpha is. As a sum: c = alpha a + beta b, all of them m x n.
struct Product {
  Number number;
  int64_t m, n, k, count;
  Matrices a, b, c;
  Scalar alpha, beta;
};

}  // namespace pretend
