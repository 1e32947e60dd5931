// Sums into variables on the device, and differences.
//
// TensorFlow's own kernels for any device compute these on the CPU, with the addresses of the
// device's memory: it leaves them to the plug-in. Here, too, the CPU computes, between copies.

#pragma once

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/device.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/register_types.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"

namespace device {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;

// The CPU's tensor of the same type and shape.
absl::Status allocate_on_cpu(OpKernelContext* ctx, const Tensor& like, Tensor* found) {
  tensorflow::AllocatorAttributes on_host;
  on_host.set_on_host(true);
  return ctx->allocate_temp(like.dtype(), like.shape(), found, on_host);
}

absl::Status copy_to_cpu(OpKernelContext* ctx, const Tensor& source, Tensor* target) {
  TF_RETURN_IF_ERROR(allocate_on_cpu(ctx, source, target));
  auto* const here = static_cast<tensorflow::Device*>(ctx->device());
  return ctx->op_device_context()->CopyDeviceTensorToCPUSync(&source, "", here, target);
}

// The target is memory of its own: what has read the variable may still use the old one.
absl::Status copy_from_cpu(OpKernelContext* ctx, const Tensor& source, Tensor* target) {
  TF_RETURN_IF_ERROR(ctx->allocate_temp(source.dtype(), source.shape(), target));
  auto* const here = static_cast<tensorflow::Device*>(ctx->device());
  return ctx->op_device_context()->CopyCPUTensorToDeviceSync(&source, here, target);
}

template <typename T, int sign>
class UpdateOp : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override { OP_REQUIRES_OK(ctx, update(ctx)); }

 private:
  absl::Status update(OpKernelContext* ctx) {
    tensorflow::core::RefCountPtr<tensorflow::Var> variable;
    TF_RETURN_IF_ERROR(LookupResource(ctx, tensorflow::HandleFromInput(ctx, 0), &variable));
    const tensorflow::mutex_lock lock(*variable->mu());
    const Tensor &value = *variable->tensor(), &change = ctx->input(1);
    if (!value.IsSameSize(change)) {
      return absl::InvalidArgumentError(absl::StrCat("a variable of shape ",
                                                     value.shape().DebugString(), ", a change of ",
                                                     change.shape().DebugString()));
    }
    Tensor total, term, result;
    TF_RETURN_IF_ERROR(copy_to_cpu(ctx, value, &total));
    TF_RETURN_IF_ERROR(copy_to_cpu(ctx, change, &term));
    if constexpr (sign > 0) {
      total.flat<T>() += term.flat<T>();
    } else {
      total.flat<T>() -= term.flat<T>();
    }
    TF_RETURN_IF_ERROR(copy_from_cpu(ctx, total, &result));
    *variable->tensor() = result;
    return absl::OkStatus();
  }
};

#define REGISTER_UPDATE(name, type, sign)                     \
  REGISTER_KERNEL_BUILDER(Name(name)                          \
                              .Device(tensorflow::DEVICE_GPU) \
                              .HostMemory("resource")         \
                              .TypeConstraint<type>("dtype"), \
                          UpdateOp<type, sign>);
#define REGISTER_UPDATES(type)                    \
  REGISTER_UPDATE("AssignAddVariableOp", type, 1) \
  REGISTER_UPDATE("AssignSubVariableOp", type, -1)

// Every type of which TensorFlow has such a kernel for any device.
TF_CALL_NUMBER_TYPES(REGISTER_UPDATES)
#undef REGISTER_UPDATES
#undef REGISTER_UPDATE

}  // namespace
}  // namespace device
