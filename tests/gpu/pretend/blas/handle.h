// A handle: the device, the stream and the kernels.
#pragma once

#include "blas/hipblas.h"
#include "blas/product.h"

namespace pretend {

class Handle {
 public:
  Handle() = default;
  ~Handle();
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  // Load the kernels on the current device, which is the handle's from now on.
  hipblasStatus_t open();

  // Queue a product, or a sum, on the stream.
  hipblasStatus_t queue(const Product& product) { return launch(product_, product); }
  hipblasStatus_t queue_sum(const Product& sum) { return launch(sum_, sum); }

  // Queue a product of one element, alpha 1 and beta 0, that is written where the pointer mode
  // says; on the host it is there when this returns.
  hipblasStatus_t queue_for(void* result, Product product);

  // What the pointer mode says that a pointer leads to.
  Scalar scalar(Number number, const void* pointer) const;

  hipStream_t stream = nullptr;
  hipblasPointerMode_t mode = HIPBLAS_POINTER_MODE_HOST;

 private:
  hipblasStatus_t launch(hipFunction_t kernel, Product product);

  hipModule_t module_ = nullptr;
  hipFunction_t product_ = nullptr, sum_ = nullptr;
  void* result_ = nullptr;  // memory of the device for one scalar
};

size_t size_of(Number number);  // of an element
Scalar constant(Number number, float value);

}  // namespace pretend
