// MpistratGpuCall: MpistratCall (call_op.h) for tensors that are on a GPU.
//
// Python compiles and loads this file where TensorFlow has GPUs
// (mpistrat/tensorflow/graph/gpu_op.py). It gets addresses of the GPU, the GPU's index, and a
// stream beside the one on which TensorFlow computes. That stream begins behind what TensorFlow has
// queued when the operation runs, which is what its inputs need and no more: kernels that
// TensorFlow queues later, of the rest of a backpropagation, run side by side with the transfer.
// When the call has ended, TensorFlow's stream waits for that stream, so that what follows the
// operation finds its results; the inputs and the results stay allocated until then.

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "call.h"
#include "tensorflow/c/experimental/stream_executor/stream_executor_internal.h"
#include "tensorflow/core/framework/device_base.h"
#include "xla/stream_executor/platform.h"
#include "xla/stream_executor/stream.h"
#include "xla/stream_executor/stream_executor.h"

namespace mpistrat {
namespace {

namespace se = stream_executor;

// Set once, before the first call.
MpistratTfStep begin_on_gpu = nullptr, finish_on_gpu = nullptr;
std::string* platform = nullptr;  // TensorFlow's name of the one that CuPy is for

int begin_call(MpistratTfCall* call) { return run_step(begin_on_gpu, call); }

int finish_call(MpistratTfCall* call) { return run_step(finish_on_gpu, call); }

constexpr Steps kSteps = {begin_call, finish_call};

// The vendor's stream: a CUstream or a hipStream_t. A device of a plug-in has no other way to it.
void* handle_of(se::Stream* stream, bool is_of_plugin) {
  if (is_of_plugin) return static_cast<se::CStream*>(stream)->Handle();
  return stream->platform_specific_handle().stream;
}

// Streams and addresses of another platform mean nothing to CuPy.
absl::Status check_platform(se::Stream* stream) {
  const std::string& found = stream->parent()->GetPlatform()->Name();
  if (found == *platform) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat("MpistratGpuCall: this GPU is one of ", found,
                                               ", but CuPy is installed for ", *platform));
}

// The vendor's number of the GPU, among those that this process can see.
int index_of(OpKernelContext* ctx, se::Stream* compute) {
  const int ordinal = compute->parent()->device_ordinal();
  if (ordinal >= 0) return ordinal;
  return ctx->device()->tensorflow_accelerator_device_info()->gpu_id;  // a plug-in's has no ordinal
}

// Gives `call` a stream that begins behind all that TensorFlow's has to do now.
absl::Status put_beside(Call* call, OpKernelContext* ctx) {
  tensorflow::DeviceContext* const device = ctx->op_device_context();
  se::Stream* const compute = device->stream();
  TF_ASSIGN_OR_RETURN(se::Stream* const beside, compute->GetOrCreateSubStream());
  const absl::Status ordered = beside->WaitFor(compute);
  if (!ordered.ok()) {
    compute->ReturnSubStream(beside);
    return ordered;
  }
  call->set_device(handle_of(beside, device->IsPluggableDevice()), index_of(ctx, compute),
                   [compute, beside] {
                     const absl::Status joined = compute->WaitFor(beside);
                     compute->ReturnSubStream(beside);
                     return joined;
                   });
  return absl::OkStatus();
}

class GpuCallOp : public CallOpBase {
 public:
  using CallOpBase::CallOpBase;

  // On a thread of its own, however short it is: Python and CuPy take 100 us and more to begin.
  void ComputeAsync(OpKernelContext* ctx, DoneCallback done) override {
    OP_REQUIRES_ASYNC(ctx, begin_on_gpu != nullptr, status_of(kUnknownKey, key_, ""), done);
    tensorflow::DeviceContext* const device = ctx->op_device_context();
    OP_REQUIRES_ASYNC(ctx, device != nullptr && device->stream() != nullptr,
                      absl::InternalError("MpistratGpuCall: this device has no stream"), done);
    OP_REQUIRES_OK_ASYNC(ctx, check_platform(device->stream()), done);
    auto call = std::make_unique<Call>(ctx, done, key_, kSteps);
    // The results' memory may be used by what is queued already: allocate, then begin behind it.
    OP_REQUIRES_OK_ASYNC(ctx, call->allocate(), done);
    OP_REQUIRES_OK_ASYNC(ctx, put_beside(call.get(), ctx), done);
    Call* const begun = call.release();
    if (in_place_) return run(begun);
    run_on_own_thread([begun] { run(begun); });
  }
};

REGISTER_OP("MpistratGpuCall")
    .Input("inputs: dtypes")
    .Output("outputs: dtypes")
    .Attr("dtypes: list(type) >= 0")
    .Attr("key: int")
    .Attr("in_place: bool")
    .SetIsStateful()
    .SetShapeFn(shapes_of_inputs);

REGISTER_KERNEL_BUILDER(Name("MpistratGpuCall").Device(tensorflow::DEVICE_GPU), GpuCallOp);

}  // namespace
}  // namespace mpistrat

extern "C" void mpistrat_tf_register_on_gpu(mpistrat::MpistratTfStep begin,
                                            mpistrat::MpistratTfStep finish, const char* platform) {
  mpistrat::platform = new std::string(platform);  // never destroyed: calls may run at exit
  mpistrat::begin_on_gpu = begin;
  mpistrat::finish_on_gpu = finish;
}
