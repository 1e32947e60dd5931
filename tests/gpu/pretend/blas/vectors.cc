// Products with vectors: gemv, ger and dot.
#include <algorithm>

#include "blas/handle.h"
#include "blas/matrices.h"

namespace pretend {
namespace {

// A vector of n elements; with a negative step it is read from its end, as in BLAS.
template <typename T>
uint64_t start(T* vector, int n, int step) {
  return reinterpret_cast<uint64_t>(vector + (step < 0 ? int64_t{1 - n} * step : 0));
}

template <typename T>
Matrices row(T* vector, int n, int step, bool is_conjugated = false) {
  return {start(vector, n, step), 0, step, 0, false, is_conjugated};
}
template <typename T>
Matrices column(T* vector, int n, int step) {
  return {start(vector, n, step), step, 0, 0, false, false};
}

template <typename T>
hipblasStatus_t gemv(Handle* handle, Number number, hipblasOperation_t op, int m, int n,
                     const T* alpha, const T* a, int lda, const T* x, int step_x, const T* beta,
                     T* y, int step_y) {
  if (!handle) return HIPBLAS_STATUS_NOT_INITIALIZED;
  if (!is_known(op)) return HIPBLAS_STATUS_INVALID_ENUM;
  if (m < 0 || n < 0 || lda < std::max(1, m) || !step_x || !step_y)
    return HIPBLAS_STATUS_INVALID_VALUE;
  if (!m || !n) return HIPBLAS_STATUS_SUCCESS;
  if (!alpha || !a || !x || !beta || !y) return HIPBLAS_STATUS_INVALID_VALUE;
  const bool is_plain = op == HIPBLAS_OP_N;
  const int rows = is_plain ? m : n, inner = is_plain ? n : m;
  return handle->queue({number, rows, 1, inner, 1, by_columns(op, a, lda), column(x, inner, step_x),
                        column(y, rows, step_y), handle->scalar(number, alpha),
                        handle->scalar(number, beta)});
}

template <typename T>
hipblasStatus_t ger(Handle* handle, Number number, int m, int n, const T* alpha, const T* x,
                    int step_x, const T* y, int step_y, T* a, int lda, bool is_conjugated) {
  if (!handle) return HIPBLAS_STATUS_NOT_INITIALIZED;
  if (m < 0 || n < 0 || lda < std::max(1, m) || !step_x || !step_y)
    return HIPBLAS_STATUS_INVALID_VALUE;
  if (!m || !n) return HIPBLAS_STATUS_SUCCESS;
  if (!alpha || !x || !y || !a) return HIPBLAS_STATUS_INVALID_VALUE;
  return handle->queue({number, m, n, 1, 1, column(x, m, step_x), row(y, n, step_y, is_conjugated),
                        by_columns(HIPBLAS_OP_N, a, lda), handle->scalar(number, alpha),
                        constant(number, 1)});
}

template <typename T>
hipblasStatus_t dot(Handle* handle, Number number, int n, const T* x, int step_x, const T* y,
                    int step_y, T* result, bool is_conjugated) {
  if (!handle) return HIPBLAS_STATUS_NOT_INITIALIZED;
  n = std::max(0, n);
  if (!result || (n && (!x || !y))) return HIPBLAS_STATUS_INVALID_VALUE;
  Product product = {number, 1,  1, n, 1, row(x, n, step_x, is_conjugated), column(y, n, step_y),
                     {},     {}, {}};
  return handle->queue_for(result, product);
}

}  // namespace
}  // namespace pretend

using pretend::Complex;
using pretend::DoubleComplex;
using pretend::Number;

#define GEMV(letter, T, number)                                                                \
  HIPBLAS_API hipblasStatus_t hipblas##letter##gemv(                                           \
      hipblasHandle_t handle, hipblasOperation_t op, int m, int n, const T* alpha, const T* a, \
      int lda, const T* x, int step_x, const T* beta, T* y, int step_y) {                      \
    return pretend::gemv(handle, number, op, m, n, alpha, a, lda, x, step_x, beta, y, step_y); \
  }
GEMV(S, float, Number::kFloat)
GEMV(D, double, Number::kDouble)
GEMV(C, Complex, Number::kComplex)
GEMV(Z, DoubleComplex, Number::kDoubleComplex)

#define GER(name, T, number, is_conjugated)                                                        \
  HIPBLAS_API hipblasStatus_t hipblas##name(hipblasHandle_t handle, int m, int n, const T* alpha,  \
                                            const T* x, int step_x, const T* y, int step_y, T* a,  \
                                            int lda) {                                             \
    return pretend::ger(handle, number, m, n, alpha, x, step_x, y, step_y, a, lda, is_conjugated); \
  }
GER(Sger, float, Number::kFloat, false)
GER(Dger, double, Number::kDouble, false)
GER(Cgeru, Complex, Number::kComplex, false)
GER(Cgerc, Complex, Number::kComplex, true)
GER(Zgeru, DoubleComplex, Number::kDoubleComplex, false)
GER(Zgerc, DoubleComplex, Number::kDoubleComplex, true)

#define DOT(name, T, number, is_conjugated)                                                        \
  HIPBLAS_API hipblasStatus_t hipblas##name(hipblasHandle_t handle, int n, const T* x, int step_x, \
                                            const T* y, int step_y, T* result) {                   \
    return pretend::dot(handle, number, n, x, step_x, y, step_y, result, is_conjugated);           \
  }
DOT(Sdot, float, Number::kFloat, false)
DOT(Ddot, double, Number::kDouble, false)
DOT(Cdotu, Complex, Number::kComplex, false)
DOT(Cdotc, Complex, Number::kComplex, true)
DOT(Zdotu, DoubleComplex, Number::kDoubleComplex, false)
DOT(Zdotc, DoubleComplex, Number::kDoubleComplex, true)
