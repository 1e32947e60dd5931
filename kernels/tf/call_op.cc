// MpistratCall: a TensorFlow operation that hands the memory of its tensors to Python.
//
// Python compiles and loads this file (mpistrat/tensorflow/graph/native_op.py) and registers two
// functions: `begin` gets the tensors and may say that it is not over, then `finish` waits for the
// rest. What they do is chosen by the attribute `key`, a number that Python gave out when the graph
// was traced; so a graph from a file holds neither code nor an address.
//
// For calls of one tensor Python may name a native function that does the same without it, where
// nothing is in the way: the way to Python and back takes 60 us, more than such a call itself.
//
// A call waits for other ranks, and they for those of this rank that TensorFlow has yet to run. So
// nothing that may wait runs on TensorFlow's own threads: there may be one of them only. A short
// call begins on the thread that reached it, which saves about 50 us where the other ranks are
// there already; a long one, and what is left of a short one, gets a thread of its own, of a pool
// that grows. One thread for all would not do: two functions may run at once, and the ranks may
// begin them in different orders. Operations of one function follow each other, as they are
// stateful. With `in_place`, all is done on the calling thread: eager code has to wait anyway.

#include <cstdint>
#include <cstring>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <sstream>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/platform/env.h"
#include "tensorflow/core/platform/unbounded_work_queue.h"
#include "xla/service/custom_call_status_internal.h"
#include "xla/service/custom_call_target_registry.h"

namespace mpistrat {
namespace {

using tensorflow::AsyncOpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

// How begin and finish end; native_op.py has the same numbers.
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

// What Python sees of a call; native_op.py has the same members.
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
};

extern "C" typedef void (*MpistratTfStep)(MpistratTfCall* call);

// A tensor, as native functions see it (kernels/calls/fast_path.h).
struct MpistratTfArray {
  const void* input;
  void* output;
  int64_t nbytes, ndim;
  const int64_t* shape;
};

// Begins a call of one tensor. Returns 0 if it is over, kNotBegun, or a status that `begin` is to
// be told, with the call's number.
extern "C" typedef int (*MpistratTfNative)(void* state, int64_t kind, const MpistratTfArray* array,
                                           int64_t* sequence);

// The native functions, by key.
class Natives {
 public:
  struct Native {
    MpistratTfNative function;
    void* state;
    int64_t kind;
  };

  void add(int64_t key, const Native& native) {
    const std::unique_lock lock(mutex_);
    known_[key] = native;
  }

  // Returns once the function of this key does not run any more.
  void remove(int64_t key) {
    const std::unique_lock lock(mutex_);
    known_.erase(key);
  }

  void begin(MpistratTfCall* call) {
    const std::shared_lock lock(mutex_);
    const auto found = known_.find(call->key);
    if (call->num != 1 || found == known_.end()) return;
    const Native& native = found->second;
    const MpistratTfArray array = {call->inputs[0], call->outputs[0], call->nbytes[0],
                                   call->ndims[0], call->shapes};
    call->status = native.function(native.state, native.kind, &array, &call->sequence);
  }

 private:
  std::shared_mutex mutex_;
  std::unordered_map<int64_t, Native> known_;
};

struct Callbacks {
  MpistratTfStep begin = nullptr, finish = nullptr;
  int64_t inline_bytes = 0;  // calls of up to so many bytes begin on TensorFlow's threads
};

Callbacks callbacks;  // set once, before the first operation can be made

Natives& natives() {
  static auto* all = new Natives;  // never destroyed: at exit, calls may be under way
  return *all;
}

// In Python's main thread a handler of Ctrl-C may run as the first thing, and raise; ctypes ignores
// that, and the step has done nothing. It is done now, and ends early (interrupts.py).
int run_step(MpistratTfStep step, MpistratTfCall* call) {
  call->outcome = kInterrupted;
  step(call);
  if (call->outcome == kInterrupted) step(call);
  return static_cast<int>(call->outcome);
}

int begin_call(MpistratTfCall* call) {
  call->status = kNotBegun;
  natives().begin(call);
  return call->status == 0 ? static_cast<int>(kDone) : run_step(callbacks.begin, call);
}

int finish_call(MpistratTfCall* call) { return run_step(callbacks.finish, call); }

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
  Call(OpKernelContext* ctx, AsyncOpKernel::DoneCallback done, int64_t key)
      : ctx_(ctx), done_(std::move(done)), key_(key) {
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

  bool is_short() const { return total_bytes_ <= callbacks.inline_bytes; }

  int begin() {
    shown_ = {key_,           ctx_->num_inputs(),
              inputs_.data(), outputs_.data(),
              nbytes_.data(), 0,
              error_,         kErrorBytes,
              kNotBegun,      0,
              ndims_.data(),  shapes_.data(),
              kInterrupted};
    return begin_call(&shown_);
  }

  int finish() { return finish_call(&shown_); }

  void end(int outcome) {
    ctx_->SetStatus(status_of(outcome, key_, error_));
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

void run_short(Call* call) {
  const int outcome = call->begin();
  if (outcome != kUnfinished) return call->end(outcome);
  run_on_own_thread([call] { call->end(call->finish()); });
}

class CallOp : public AsyncOpKernel {
 public:
  explicit CallOp(OpKernelConstruction* ctx) : AsyncOpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("key", &key_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("in_place", &in_place_));
    for (int i = 0; i < ctx->num_inputs(); ++i) {
      const tensorflow::DataType dtype = ctx->input_type(i);
      OP_REQUIRES(ctx, tensorflow::DataTypeCanUseMemcpy(dtype),
                  absl::InvalidArgumentError(absl::StrCat(
                      "MpistratCall: input ", i, " has dtype ", tensorflow::DataTypeString(dtype),
                      ", which is no plain memory; expected numbers or bool")));
    }
  }

  // To begin is cheap, and to begin early lets the wait pass while other operations compute.
  bool IsExpensive() override { return false; }

  void ComputeAsync(OpKernelContext* ctx, DoneCallback done) override {
    OP_REQUIRES_ASYNC(ctx, callbacks.begin != nullptr, status_of(kUnknownKey, key_, ""), done);
    auto call = std::make_unique<Call>(ctx, done, key_);
    OP_REQUIRES_OK_ASYNC(ctx, call->allocate(), done);
    Call* const begun = call.release();
    if (in_place_) return run(begun);
    if (begun->is_short()) return run_short(begun);
    run_on_own_thread([begun] { run(begun); });
  }

 private:
  int64_t key_ = 0;
  bool in_place_ = false;
};

absl::Status shapes_of_inputs(tensorflow::shape_inference::InferenceContext* ctx) {
  for (int i = 0; i < ctx->num_inputs(); ++i) ctx->set_output(i, ctx->input(i));
  return absl::OkStatus();
}

REGISTER_OP("MpistratCall")
    .Input("inputs: dtypes")
    .Output("outputs: dtypes")
    .Attr("dtypes: list(type) >= 0")
    .Attr("key: int")
    .Attr("in_place: bool")
    .SetIsStateful()
    .SetShapeFn(shapes_of_inputs);

REGISTER_KERNEL_BUILDER(Name("MpistratCall").Device(tensorflow::DEVICE_CPU), CallOp);

// ----------------------------------------------------- in functions that XLA compiles

// The numbers in a text: those that a custom call carries.
std::vector<int64_t> numbers_in(const char* text, size_t length) {
  std::istringstream stream(std::string(text, length));
  return {std::istream_iterator<int64_t>(stream), std::istream_iterator<int64_t>()};
}

// The custom call (mpistrat/tensorflow/graph/xla_call.py): `text` has the key and the number of
// tensors, then each tensor's bytes, each one's number of dimensions, and all dimensions. The last
// tensor is handed through. All is done on the calling thread, as XLA wants it.
void run_in_xla(void* results, const void** inputs, const char* text, size_t length,
                XlaCustomCallStatus* status) {
  std::vector<int64_t> words = numbers_in(text, length);
  auto** outputs = static_cast<void**>(results);
  const int64_t num = words[1], last = num - 1;
  const int64_t* const nbytes = words.data() + 2;
  std::memcpy(outputs[last], inputs[last], static_cast<size_t>(nbytes[last]));
  std::vector<char> error(kErrorBytes);
  MpistratTfCall call = {
      words[0],    last,      inputs, outputs,      nbytes,           0,           error.data(),
      kErrorBytes, kNotBegun, 0,      nbytes + num, nbytes + 2 * num, kInterrupted};
  int outcome = begin_call(&call);
  if (outcome == kUnfinished) outcome = finish_call(&call);
  if (outcome != kDone) status->message = status_of(outcome, call.key, error.data()).message();
}

}  // namespace
}  // namespace mpistrat

extern "C" void mpistrat_tf_register(mpistrat::MpistratTfStep begin,
                                     mpistrat::MpistratTfStep finish, int64_t inline_bytes) {
  mpistrat::callbacks = {begin, finish, inline_bytes};
  xla::CustomCallTargetRegistry::Global()->Register(
      "mpistrat_call", reinterpret_cast<void*>(mpistrat::run_in_xla), "Host");
}

// Name the function that begins the calls of `key`, as far as it can.
extern "C" void mpistrat_tf_add_native(int64_t key, mpistrat::MpistratTfNative function,
                                       void* state, int64_t kind) {
  mpistrat::natives().add(key, {function, state, kind});
}

// Forget it; it is not called any more once this returns.
extern "C" void mpistrat_tf_remove_native(int64_t key) { mpistrat::natives().remove(key); }
