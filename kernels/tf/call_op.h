// MpistratCall: a TensorFlow operation that hands the memory of its tensors to Python.
//
// Python (mpistrat/tensorflow/graph/native_op.py) registers two functions: `begin` gets the tensors
// and may say that it is not over, then `finish` waits for the rest. What they do is chosen by the
// attribute `key`, a number that Python gave out when the graph was traced; so a graph from a file
// holds neither code nor an address.
//
// For calls of one tensor Python may name a native function that does the same without it, where
// nothing is in the way: the way to Python and back takes 60 us, more than such a call itself.
//
// A short call begins on the thread that reached it, which saves about 50 us where the other ranks
// are there already; a long one, and what is left of a short one, gets a thread of its own
// (call.h).

#pragma once

#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <sstream>
#include <string>
#include <unordered_map>
#include <vector>

#include "call.h"
#include "xla/service/custom_call_status_internal.h"
#include "xla/service/custom_call_target_registry.h"

namespace mpistrat {
namespace {

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

int begin_call(MpistratTfCall* call) {
  call->status = kNotBegun;
  natives().begin(call);
  return call->status == 0 ? static_cast<int>(kDone) : run_step(callbacks.begin, call);
}

int finish_call(MpistratTfCall* call) { return run_step(callbacks.finish, call); }

constexpr Steps kSteps = {begin_call, finish_call};

void run_short(Call* call) {
  const int outcome = call->begin();
  if (outcome != kUnfinished) return call->end(outcome);
  run_on_own_thread([call] { call->end(call->finish()); });
}

class CallOp : public CallOpBase {
 public:
  using CallOpBase::CallOpBase;

  void ComputeAsync(OpKernelContext* ctx, DoneCallback done) override {
    OP_REQUIRES_ASYNC(ctx, callbacks.begin != nullptr, status_of(kUnknownKey, key_, ""), done);
    auto call = std::make_unique<Call>(ctx, done, key_, kSteps);
    OP_REQUIRES_OK_ASYNC(ctx, call->allocate(), done);
    Call* const begun = call.release();
    if (in_place_) return run(begun);
    if (begun->total_bytes() <= callbacks.inline_bytes) return run_short(begun);
    run_on_own_thread([begun] { run(begun); });
  }
};

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
      words[0],     last,        inputs,    outputs, nbytes,       0,
      error.data(), kErrorBytes, kNotBegun, 0,       nbytes + num, nbytes + 2 * num,
      kInterrupted, nullptr,     -1};
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
