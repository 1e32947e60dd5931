// libcuda.so.1: the part of CUDA's driver interface that CuPy uses, in the runtime's functions.
#include "cuda/forward.h"
#include "cuda/runtime/both.h"

FORWARD(cuModuleLoad, hipModuleLoad)
FORWARD(cuModuleLoadData, hipModuleLoadData)
FORWARD(cuModuleUnload, hipModuleUnload)
FORWARD(cuModuleGetFunction, hipModuleGetFunction)
FORWARD(cuModuleGetGlobal_v2, hipModuleGetGlobal)
FORWARD(cuLaunchKernel, hipModuleLaunchKernel)
FORWARD(cuFuncGetAttribute, hipFuncGetAttribute)
FORWARD(cuDevicePrimaryCtxRelease_v2, hipDevicePrimaryCtxRelease)

CUDA_API cudaError_t cudaGetDevice(int* device);

CUDA_API int cuGetErrorName(int error, const char** name) {
  *name = cudaGetErrorName(static_cast<cudaError_t>(error));
  return 0;
}
CUDA_API int cuGetErrorString(int error, const char** text) {
  *text = cudaGetErrorString(static_cast<cudaError_t>(error));
  return 0;
}
CUDA_API int cuCtxGetDevice(int* device) { return cudaGetDevice(device); }
