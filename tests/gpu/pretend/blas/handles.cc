// Handles, as hipBLAS calls them.
#include <memory>

#include "blas/handle.h"

using pretend::Handle;

HIPBLAS_API hipblasStatus_t hipblasCreate(hipblasHandle_t* out) {
  if (!out) return HIPBLAS_STATUS_INVALID_VALUE;
  auto made = std::make_unique<Handle>();
  const hipblasStatus_t status = made->open();
  if (!status) *out = made.release();
  return status;
}
HIPBLAS_API hipblasStatus_t hipblasDestroy(hipblasHandle_t handle) {
  delete handle;
  return handle ? HIPBLAS_STATUS_SUCCESS : HIPBLAS_STATUS_NOT_INITIALIZED;
}
HIPBLAS_API hipblasStatus_t hipblasSetStream(hipblasHandle_t handle, hipStream_t stream) {
  if (!handle) return HIPBLAS_STATUS_NOT_INITIALIZED;
  handle->stream = stream;
  return HIPBLAS_STATUS_SUCCESS;
}
HIPBLAS_API hipblasStatus_t hipblasGetStream(hipblasHandle_t handle, hipStream_t* stream) {
  if (!handle) return HIPBLAS_STATUS_NOT_INITIALIZED;
  *stream = handle->stream;
  return HIPBLAS_STATUS_SUCCESS;
}
HIPBLAS_API hipblasStatus_t hipblasSetPointerMode(hipblasHandle_t handle,
                                                  hipblasPointerMode_t mode) {
  if (!handle) return HIPBLAS_STATUS_NOT_INITIALIZED;
  if (mode != HIPBLAS_POINTER_MODE_HOST && mode != HIPBLAS_POINTER_MODE_DEVICE)
    return HIPBLAS_STATUS_INVALID_ENUM;
  handle->mode = mode;
  return HIPBLAS_STATUS_SUCCESS;
}
HIPBLAS_API hipblasStatus_t hipblasGetPointerMode(hipblasHandle_t handle,
                                                  hipblasPointerMode_t* mode) {
  if (!handle) return HIPBLAS_STATUS_NOT_INITIALIZED;
  *mode = handle->mode;
  return HIPBLAS_STATUS_SUCCESS;
}
