// hipBLAS' documented interface as far as CuPy's matrix products ask for it: our own declarations.
#pragma once

#include <complex>

#include "runtime/interface/hip_api.h"

#define HIPBLAS_API extern "C" __attribute__((visibility("default")))

typedef int hipblasStatus_t;
enum {
  HIPBLAS_STATUS_SUCCESS = 0,
  HIPBLAS_STATUS_NOT_INITIALIZED = 1,
  HIPBLAS_STATUS_ALLOC_FAILED = 2,
  HIPBLAS_STATUS_INVALID_VALUE = 3,
  HIPBLAS_STATUS_EXECUTION_FAILED = 5,
  HIPBLAS_STATUS_NOT_SUPPORTED = 7,
  HIPBLAS_STATUS_INVALID_ENUM = 10,
};
typedef int hipblasOperation_t;
enum { HIPBLAS_OP_N = 111, HIPBLAS_OP_T = 112, HIPBLAS_OP_C = 113 };
typedef int hipblasPointerMode_t;
enum { HIPBLAS_POINTER_MODE_HOST = 0, HIPBLAS_POINTER_MODE_DEVICE = 1 };
typedef int hipDataType;
enum { HIP_R_32F = 0, HIP_R_64F = 1, HIP_R_16F = 2, HIP_C_32F = 4, HIP_C_64F = 5 };
typedef int hipblasComputeType_t;
enum { HIPBLAS_COMPUTE_32F = 2, HIPBLAS_COMPUTE_64F = 7 };
typedef int hipblasGemmAlgo_t;
enum { HIPBLAS_GEMM_DEFAULT = 160 };
namespace pretend {
class Handle;
using Complex = std::complex<float>;
using DoubleComplex = std::complex<double>;
}  // namespace pretend
typedef pretend::Handle* hipblasHandle_t;
