// What the operations that hand their tensors' memory to Python have in common: the call as Python
// sees it, its two steps, its errors, its threads.
//
// A call waits for other ranks, and they for those of this rank that TensorFlow has yet to run. So
// nothing that may wait runs on TensorFlow's own threads: there may be one of them only. What may
// wait gets a thread of its own, of a pool that grows. One thread for all would not do: two
// functions may run at once, and the ranks may begin them in different orders. Operations of one
// function follow each other, as they are stateful. With `in_place`, all is done on the calling
// thread: eager code has to wait anyway.

#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/platform/env.h"
#include "tensorflow/core/platform/unbounded_work_queue.h"

namespace mpistrat {
namespace {

using tensorflow::AsyncOpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

// How begin and finish end; call_steps.py has the same numbers.
enum Outcome : int {
  kDone = 0,
  kInvalidArgument = 1,
  kAborted = 2,
  kInternal = 3,
  kUnknownKey = 4,
  kCancelled = 5,
  kUnfinished = 6,   // of begin only: finish is to be called
  kInterrupted = 7,  // a handler of Ctrl-C has raised before they did anything
};

constexpr int kErrorBytes = 16 << 10;
constexpr int kNotBegun = -1;  // of a native function: it has done nothing

// What Python sees of a call; call_steps.py has the same members.
struct MpistratTfCall {
  int64_t key, num;
  const void** inputs;
  void** outputs;
  const int64_t* nbytes;
  int64_t rest;  // a number that begin leaves for finish
  char* error;   // text that goes with an outcome other than kDone
  int64_t error_bytes;
  int64_t status, sequence;  // of what a native function has begun, or kNotBegun
  const int64_t* ndims;
  const int64_t* shapes;  // of all tensors, one after the other
  int64_t outcome;
  void* stream;    // of a GPU: what was queued before the operation is done before it
  int64_t device;  // index of the GPU that has the tensors
};

extern "C" typedef void (*MpistratTfStep)(MpistratTfCall* call);

// What a call consists of: `begin`, which may say that it is not over, then `finish`.
struct Steps {
  int (*begin)(MpistratTfCall* call);
  int (*finish)(MpistratTfCall* call);
};

// In Python's main thread a handler of Ctrl-C may run as the first thing, and raise; ctypes ignores
// that, and the step has done nothing. It is done now, and ends early (interrupts.py).
int run_step(MpistratTfStep step, MpistratTfCall* call) {
  call->outcome = kInterrupted;
  step(call);
  if (call->outcome == kInterrupted) step(call);
  return static_cast<int>(call->outcome);
}

absl::Status status_of(int outcome, int64_t key, const char* error) {
  switch (outcome) {
    case kDone:
      return absl::OkStatus();
    case kInvalidArgument:
      return absl::InvalidArgumentError(error);
    // Not Unavailable: from operations of others, executors turn that into Internal.
    case kAborted:
      return absl::AbortedError(error);
    case kCancelled:
    case kInterrupted:
      return absl::CancelledError(error);
    case kUnknownKey:
      return absl::FailedPreconditionError(
          absl::StrCat("MpistratCall: nothing in this process has the key ", key,
                       ": the graph was traced in another process. A SavedModel holds a number"
                       " only; trace the tf.function again in the process that runs it"));
    default:
      return absl::InternalError(error);
  }
}

// One run of the operation; it is deleted once `done` was called.
class Call {
 public:
  Call(OpKernelContext* ctx, AsyncOpKernel::DoneCallback done, int64_t key, const Steps& steps)
      : ctx_(ctx), done_(std::move(done)), key_(key), steps_(steps) {
    error_[0] = '\0';
  }

  absl::Status allocate() {
    for (int i = 0; i < ctx_->num_inputs(); ++i) {
      const Tensor& input = ctx_->input(i);
      Tensor* output = nullptr;
      // Never the input's memory: `begin` may read the one after it has written to the other.
      TF_RETURN_IF_ERROR(ctx_->allocate_output(i, input.shape(), &output));
      inputs_.push_back(input.data());
      outputs_.push_back(output->data());
      nbytes_.push_back(input.TotalBytes());
      ndims_.push_back(input.dims());
      for (int axis = 0; axis < input.dims(); ++axis) shapes_.push_back(input.dim_size(axis));
      total_bytes_ += nbytes_.back();
    }
    return absl::OkStatus();
  }

  int64_t total_bytes() const { return total_bytes_; }

  // The tensors are on a GPU. `leave` is called when the call has ended, well or not.
  void set_device(void* stream, int64_t device, std::function<absl::Status()> leave) {
    stream_ = stream;
    device_ = device;
    leave_ = std::move(leave);
  }

  int begin() {
    shown_ = {key_,           ctx_->num_inputs(),
              inputs_.data(), outputs_.data(),
              nbytes_.data(), 0,
              error_,         kErrorBytes,
              kNotBegun,      0,
              ndims_.data(),  shapes_.data(),
              kInterrupted,   stream_,
              device_};
    return steps_.begin(&shown_);
  }

  int finish() { return steps_.finish(&shown_); }

  void end(int outcome) {
    absl::Status status = status_of(outcome, key_, error_);
    if (leave_) status.Update(leave_());
    ctx_->SetStatus(status);
    // `done` may run what follows and so last; nothing of this call is needed meanwhile.
    const AsyncOpKernel::DoneCallback done = std::move(done_);
    delete this;
    done();
  }

 private:
  OpKernelContext* ctx_;
  AsyncOpKernel::DoneCallback done_;
  int64_t key_, total_bytes_ = 0;
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
  std::vector<int64_t> nbytes_, ndims_, shapes_;
  const Steps& steps_;
  void* stream_ = nullptr;
  int64_t device_ = -1;
  std::function<absl::Status()> leave_;
  MpistratTfCall shown_ = {};
  char error_[kErrorBytes];
};

void run_on_own_thread(std::function<void()> work) {
  // Never destroyed: at exit its threads may be waiting for ranks that never come.
  static auto* threads =
      new tensorflow::UnboundedWorkQueue(tensorflow::Env::Default(), "mpistrat_call");
  threads->Schedule(std::move(work));
}

void run(Call* call) {
  const int outcome = call->begin();
  call->end(outcome == kUnfinished ? call->finish() : outcome);
}

class CallOpBase : public AsyncOpKernel {
 public:
  explicit CallOpBase(OpKernelConstruction* ctx) : AsyncOpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("key", &key_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("in_place", &in_place_));
    for (int i = 0; i < ctx->num_inputs(); ++i) {
      const tensorflow::DataType dtype = ctx->input_type(i);
      OP_REQUIRES(
          ctx, tensorflow::DataTypeCanUseMemcpy(dtype),
          absl::InvalidArgumentError(absl::StrCat(
              type_string(), ": input ", i, " has dtype ", tensorflow::DataTypeString(dtype),
              ", which is no plain memory; expected numbers or bool")));
    }
  }

  // To begin is cheap, and to begin early lets the wait pass while other operations compute.
  bool IsExpensive() override { return false; }

 protected:
  int64_t key_ = 0;
  bool in_place_ = false;
};

absl::Status shapes_of_inputs(tensorflow::shape_inference::InferenceContext* ctx) {
  for (int i = 0; i < ctx->num_inputs(); ++i) ctx->set_output(i, ctx->input(i));
  return absl::OkStatus();
}

}  // namespace
}  // namespace mpistrat
