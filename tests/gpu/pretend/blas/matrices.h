// Matrices as callers of BLAS have them: column by column, `leading` elements from one to the next.
#pragma once

#include "blas/hipblas.h"
#include "blas/product.h"

namespace pretend {

inline bool is_known(hipblasOperation_t op) { return op >= HIPBLAS_OP_N && op <= HIPBLAS_OP_C; }

// op of matrices that lie `stride` elements apart, or whose addresses a list has.
inline Matrices by_columns(hipblasOperation_t op, const void* data, int leading,
                           long long stride = 0, bool is_list = false) {
  const bool is_plain = op == HIPBLAS_OP_N;
  return {reinterpret_cast<uint64_t>(data),
          is_plain ? 1 : leading,
          is_plain ? leading : 1,
          stride,
          is_list,
          op == HIPBLAS_OP_C};
}

}  // namespace pretend
