// Products of two matrices: gemm, its batches, and those whose types are arguments.
#include <algorithm>

#include "blas/handle.h"
#include "blas/matrices.h"

namespace pretend {
namespace {

struct Given {
  const void* data;
  int leading;
  long long stride = 0;  // from one matrix to the next
};

struct Gemm {
  Number number;
  hipblasOperation_t op_a, op_b;
  int m, n, k;
  const void* alpha;
  Given a, b;
  const void* beta;
  Given c;
  int count = 1;
  bool is_list = false;  // `data` has an array of addresses, on the device
};

bool is_valid(const Gemm& g) {
  const int rows_a = g.op_a == HIPBLAS_OP_N ? g.m : g.k;
  const int rows_b = g.op_b == HIPBLAS_OP_N ? g.k : g.n;
  return std::min({g.m, g.n, g.k, g.count}) >= 0 && g.a.leading >= std::max(1, rows_a) &&
         g.b.leading >= std::max(1, rows_b) && g.c.leading >= std::max(1, g.m);
}

hipblasStatus_t run(Handle* handle, const Gemm& g) {
  if (!handle) return HIPBLAS_STATUS_NOT_INITIALIZED;
  if (!is_known(g.op_a) || !is_known(g.op_b)) return HIPBLAS_STATUS_INVALID_ENUM;
  if (!is_valid(g)) return HIPBLAS_STATUS_INVALID_VALUE;
  if (!g.m || !g.n || !g.count) return HIPBLAS_STATUS_SUCCESS;
  const bool has_operands = !g.k || (g.a.data && g.b.data);
  if (!g.alpha || !g.beta || !g.c.data || !has_operands) return HIPBLAS_STATUS_INVALID_VALUE;
  return handle->queue({g.number, g.m, g.n, g.k, g.count,
                        by_columns(g.op_a, g.a.data, g.a.leading, g.a.stride, g.is_list),
                        by_columns(g.op_b, g.b.data, g.b.leading, g.b.stride, g.is_list),
                        by_columns(HIPBLAS_OP_N, g.c.data, g.c.leading, g.c.stride, g.is_list),
                        handle->scalar(g.number, g.alpha), handle->scalar(g.number, g.beta)});
}

// All matrices of one type, and the sums of that type: what CuPy asks for.
bool find_number(const hipDataType (&types)[3], hipblasComputeType_t compute, Number* number) {
  if (types[0] != types[1] || types[0] != types[2]) return false;
  const bool is_double = types[0] == HIP_R_64F || types[0] == HIP_C_64F;
  if (compute != (is_double ? HIPBLAS_COMPUTE_64F : HIPBLAS_COMPUTE_32F)) return false;
  constexpr struct {
    hipDataType type;
    Number number;
  } kNumbers[] = {{HIP_R_16F, Number::kHalf},
                  {HIP_R_32F, Number::kFloat},
                  {HIP_R_64F, Number::kDouble},
                  {HIP_C_32F, Number::kComplex},
                  {HIP_C_64F, Number::kDoubleComplex}};
  for (const auto& [type, found] : kNumbers) {
    *number = found;
    if (type == types[0]) return true;
  }
  return false;
}

}  // namespace
}  // namespace pretend

using pretend::Complex;
using pretend::DoubleComplex;
using pretend::Number;

#define GEMM(letter, T, number)                                                                    \
  HIPBLAS_API hipblasStatus_t hipblas##letter##gemm(                                               \
      hipblasHandle_t handle, hipblasOperation_t op_a, hipblasOperation_t op_b, int m, int n,      \
      int k, const T* alpha, const T* a, int lda, const T* b, int ldb, const T* beta, T* c,        \
      int ldc) {                                                                                   \
    return pretend::run(handle,                                                                    \
                        {number, op_a, op_b, m, n, k, alpha, {a, lda}, {b, ldb}, beta, {c, ldc}}); \
  }                                                                                                \
  HIPBLAS_API hipblasStatus_t hipblas##letter##gemmBatched(                                        \
      hipblasHandle_t handle, hipblasOperation_t op_a, hipblasOperation_t op_b, int m, int n,      \
      int k, const T* alpha, const T* const* a, int lda, const T* const* b, int ldb,               \
      const T* beta, T* const* c, int ldc, int count) {                                            \
    return pretend::run(                                                                           \
        handle,                                                                                    \
        {number, op_a, op_b, m, n, k, alpha, {a, lda}, {b, ldb}, beta, {c, ldc}, count, true});    \
  }                                                                                                \
  HIPBLAS_API hipblasStatus_t hipblas##letter##gemmStridedBatched(                                 \
      hipblasHandle_t handle, hipblasOperation_t op_a, hipblasOperation_t op_b, int m, int n,      \
      int k, const T* alpha, const T* a, int lda, long long stride_a, const T* b, int ldb,         \
      long long stride_b, const T* beta, T* c, int ldc, long long stride_c, int count) {           \
    return pretend::run(handle, {number,                                                           \
                                 op_a,                                                             \
                                 op_b,                                                             \
                                 m,                                                                \
                                 n,                                                                \
                                 k,                                                                \
                                 alpha,                                                            \
                                 {a, lda, stride_a},                                               \
                                 {b, ldb, stride_b},                                               \
                                 beta,                                                             \
                                 {c, ldc, stride_c},                                               \
                                 count});                                                          \
  }
GEMM(S, float, Number::kFloat)
GEMM(D, double, Number::kDouble)
GEMM(C, Complex, Number::kComplex)
GEMM(Z, DoubleComplex, Number::kDoubleComplex)

HIPBLAS_API hipblasStatus_t hipblasGemmStridedBatchedEx(
    hipblasHandle_t handle, hipblasOperation_t op_a, hipblasOperation_t op_b, int m, int n, int k,
    const void* alpha, const void* a, hipDataType type_a, int lda, long long stride_a,
    const void* b, hipDataType type_b, int ldb, long long stride_b, const void* beta, void* c,
    hipDataType type_c, int ldc, long long stride_c, int count, hipblasComputeType_t compute,
    hipblasGemmAlgo_t algorithm) {
  Number number;
  if (algorithm != HIPBLAS_GEMM_DEFAULT ||
      !pretend::find_number({type_a, type_b, type_c}, compute, &number))
    return HIPBLAS_STATUS_NOT_SUPPORTED;
  return pretend::run(handle, {number,
                               op_a,
                               op_b,
                               m,
                               n,
                               k,
                               alpha,
                               {a, lda, stride_a},
                               {b, ldb, stride_b},
                               beta,
                               {c, ldc, stride_c},
                               count});
}
HIPBLAS_API hipblasStatus_t hipblasGemmEx(hipblasHandle_t handle, hipblasOperation_t op_a,
                                          hipblasOperation_t op_b, int m, int n, int k,
                                          const void* alpha, const void* a, hipDataType type_a,
                                          int lda, const void* b, hipDataType type_b, int ldb,
                                          const void* beta, void* c, hipDataType type_c, int ldc,
                                          hipblasComputeType_t compute,
                                          hipblasGemmAlgo_t algorithm) {
  return hipblasGemmStridedBatchedEx(handle, op_a, op_b, m, n, k, alpha, a, type_a, lda, 0, b,
                                     type_b, ldb, 0, beta, c, type_c, ldc, 0, 1, compute,
                                     algorithm);
}
