// geam, the sum of two matrices: CuPy copies matrices by it, from rows to columns.
#include <algorithm>

#include "blas/handle.h"
#include "blas/matrices.h"

namespace pretend {
namespace {

template <typename T>
hipblasStatus_t geam(Handle* handle, Number number, hipblasOperation_t op_a,
                     hipblasOperation_t op_b, int m, int n, const T* alpha, const T* a, int lda,
                     const T* beta, const T* b, int ldb, T* c, int ldc) {
  if (!handle) return HIPBLAS_STATUS_NOT_INITIALIZED;
  if (!is_known(op_a) || !is_known(op_b)) return HIPBLAS_STATUS_INVALID_ENUM;
  const auto rows = [&](hipblasOperation_t op) { return std::max(1, op == HIPBLAS_OP_N ? m : n); };
  if (m < 0 || n < 0 || lda < rows(op_a) || ldb < rows(op_b) || ldc < rows(HIPBLAS_OP_N))
    return HIPBLAS_STATUS_INVALID_VALUE;
  if (!m || !n) return HIPBLAS_STATUS_SUCCESS;
  if (!alpha || !a || !beta || !b || !c) return HIPBLAS_STATUS_INVALID_VALUE;
  return handle->queue_sum({number, m, n, 0, 1, by_columns(op_a, a, lda), by_columns(op_b, b, ldb),
                            by_columns(HIPBLAS_OP_N, c, ldc), handle->scalar(number, alpha),
                            handle->scalar(number, beta)});
}

}  // namespace
}  // namespace pretend

#define GEAM(letter, T, number)                                                                  \
  HIPBLAS_API hipblasStatus_t hipblas##letter##geam(                                             \
      hipblasHandle_t handle, hipblasOperation_t op_a, hipblasOperation_t op_b, int m, int n,    \
      const T* alpha, const T* a, int lda, const T* beta, const T* b, int ldb, T* c, int ldc) {  \
    return pretend::geam(handle, number, op_a, op_b, m, n, alpha, a, lda, beta, b, ldb, c, ldc); \
  }
GEAM(S, float, pretend::Number::kFloat)
GEAM(D, double, pretend::Number::kDouble)
GEAM(C, pretend::Complex, pretend::Number::kComplex)
GEAM(Z, pretend::DoubleComplex, pretend::Number::kDoubleComplex)
