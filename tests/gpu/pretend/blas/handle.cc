#include "blas/handle.h"

#include <dlfcn.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

// Of HIP's interface, which libamdhip64.so.7 exports.
extern "C" {
hipError_t hipFree(void* memory);
hipError_t hipMalloc(void** memory, size_t nbytes);
hipError_t hipMemcpyAsync(void* to, const void* from, size_t nbytes, hipMemcpyKind kind,
                          hipStream_t stream);
hipError_t hipModuleGetFunction(hipFunction_t* function, hipModule_t module, const char* name);
hipError_t hipModuleLaunchKernel(hipFunction_t function, unsigned gx, unsigned gy, unsigned gz,
                                 unsigned bx, unsigned by, unsigned bz, unsigned shared,
                                 hipStream_t stream, void** arguments, void** extra);
hipError_t hipModuleLoadData(hipModule_t* module, const void* image);
hipError_t hipModuleUnload(hipModule_t module);
hipError_t hipStreamSynchronize(hipStream_t stream);
}

namespace pretend {
namespace {

constexpr char kKernels[] = "pretend-blas.so";  // beside this library
constexpr size_t kScalarBytes = sizeof(Scalar::bytes);

// The kernels as the run-time compiler would give them (runtime/interface/modules.cc).
std::string image() {
  Dl_info info;
  dladdr(reinterpret_cast<void*>(&image), &info);
  const std::string library = info.dli_fname;
  std::ifstream file(library.substr(0, library.rfind('/') + 1) + kKernels, std::ios::binary);
  const std::string content{std::istreambuf_iterator<char>(file), {}};
  const uint64_t length = content.size();
  return "PRETEND:" + std::string(reinterpret_cast<const char*>(&length), sizeof length) + content;
}

hipblasStatus_t status_of(hipError_t error) {
  if (!error) return HIPBLAS_STATUS_SUCCESS;
  return error == hipErrorOutOfMemory ? HIPBLAS_STATUS_ALLOC_FAILED
                                      : HIPBLAS_STATUS_EXECUTION_FAILED;
}

template <typename T>
void put(Scalar* scalar, float value) {
  const T typed = value;
  std::memcpy(scalar->bytes, &typed, sizeof typed);
}

}  // namespace

Handle::~Handle() {
  if (module_) hipModuleUnload(module_);  // waits for what is queued
  if (result_) hipFree(result_);
}

hipblasStatus_t Handle::open() {
  hipError_t error = hipModuleLoadData(&module_, image().data());
  if (!error) error = hipModuleGetFunction(&product_, module_, "hipblas_product");
  if (!error) error = hipModuleGetFunction(&sum_, module_, "hipblas_sum");
  if (!error) error = hipMalloc(&result_, kScalarBytes);
  return error ? HIPBLAS_STATUS_NOT_INITIALIZED : HIPBLAS_STATUS_SUCCESS;
}

hipblasStatus_t Handle::launch(hipFunction_t kernel, Product product) {
  void* arguments[] = {&product};
  return status_of(hipModuleLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr));
}

hipblasStatus_t Handle::queue_for(void* result, Product product) {
  const bool is_on_host = mode == HIPBLAS_POINTER_MODE_HOST;
  product.alpha = constant(product.number, 1);
  product.beta = constant(product.number, 0);
  product.c.address = reinterpret_cast<uint64_t>(is_on_host ? result_ : result);
  const hipblasStatus_t status = queue(product);
  if (status || !is_on_host) return status;
  const size_t nbytes = size_of(product.number);
  hipError_t error = hipMemcpyAsync(result, result_, nbytes, hipMemcpyDeviceToHost, stream);
  if (!error) error = hipStreamSynchronize(stream);
  return status_of(error);
}

Scalar Handle::scalar(Number number, const void* pointer) const {
  Scalar made = {};
  if (mode == HIPBLAS_POINTER_MODE_DEVICE)
    made.address = reinterpret_cast<uint64_t>(pointer);
  else
    std::memcpy(made.bytes, pointer, number == Number::kHalf ? sizeof(float) : size_of(number));
  return made;
}

size_t size_of(Number number) {
  constexpr size_t kSizes[] = {2, sizeof(float), sizeof(double), sizeof(Complex),
                               sizeof(DoubleComplex)};
  return kSizes[static_cast<uint32_t>(number)];
}

Scalar constant(Number number, float value) {
  Scalar made = {};
  switch (number) {
    case Number::kHalf:
    case Number::kFloat:
      put<float>(&made, value);
      break;
    case Number::kDouble:
      put<double>(&made, value);
      break;
    case Number::kComplex:
      put<Complex>(&made, value);
      break;
    case Number::kDoubleComplex:
      put<DoubleComplex>(&made, value);
      break;
  }
  return made;
}

}  // namespace pretend
