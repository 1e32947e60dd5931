#include "script.h"

#include "mpistrat/simd.h"

namespace mpistrat::wire {

Arithmetic Arithmetic::of(const MpistratSpec& spec) {
  const bool is_half = spec.dtype == MPISTRAT_FLOAT16 || spec.dtype == MPISTRAT_BFLOAT16;
  return {is_half ? MPISTRAT_FLOAT32 : spec.dtype, spec.dtype, spec.op, spec.divisor};
}

int64_t Arithmetic::itemsize() const { return static_cast<int64_t>(mpistrat_itemsize(dtype)); }

int64_t Arithmetic::result_itemsize() const {
  return static_cast<int64_t>(mpistrat_itemsize(result));
}

namespace {

void apply(void* into, const void* first, const void* second, int64_t count, const Arithmetic& how,
           int64_t divisor) {
  const void* sources[] = {first, second};
  mpistrat_reduce(&into, 1, sources, second ? 2 : 1, static_cast<size_t>(count), how.dtype, how.op,
                  divisor, 0);
}

}  // namespace

void reduce_step(void* into, const void* first, const void* second, int64_t count,
                 const Arithmetic& how) {
  apply(into, first, second, count, how, 1);
}

void finish_step(void* into, void* first, const void* second, int64_t count,
                 const Arithmetic& how) {
  apply(how.is_widened() ? first : into, first, second, count, how, how.divisor);
  if (how.is_widened()) mpistrat_narrow(into, first, static_cast<size_t>(count), how.result);
}

void Script::clear(int tag) {
  steps_.clear();
  at_ = 0;
  tag_ = tag;
  num_messages_ = 0;
}

int Script::message(Step::Kind kind, void* data, int64_t nbytes, int peer) {
  steps_.push_back({kind, num_messages_, peer, nbytes, data, nullptr, nullptr, nullptr});
  return num_messages_++;
}

int Script::send(const void* data, int64_t nbytes, int to) {
  return message(Step::kSend, const_cast<void*>(data), nbytes, to);
}

int Script::receive(void* data, int64_t nbytes, int from) {
  return message(Step::kReceive, data, nbytes, from);
}

void Script::await(int message) {
  steps_.push_back({Step::kAwait, message, 0, 0, nullptr, nullptr, nullptr, nullptr});
}

void Script::await_all() {
  for (int message = 0; message < num_messages_; ++message) await(message);
}

void Script::reduce(void* into, const void* first, const void* second, int64_t count,
                    const Arithmetic& how) {
  how_ = how;
  steps_.push_back({Step::kReduce, 0, 0, count, into, const_cast<void*>(first), second, nullptr});
}

void Script::finish(void* into, void* first, const void* second, int64_t count,
                    const Arithmetic& how) {
  how_ = how;
  steps_.push_back({Step::kFinish, 0, 0, count, into, first, second, nullptr});
}

void Script::call(Function function, void* context, int argument) {
  steps_.push_back({Step::kCall, argument, 0, 0, context, nullptr, nullptr, function});
}

bool Script::run(Messages& messages) {
  if (at_ == 0) done_.assign(static_cast<size_t>(num_messages_), 0);
  for (; at_ < steps_.size(); ++at_) {
    const Step& step = steps_[at_];
    if (step.kind == Step::kAwait && !done_[static_cast<size_t>(step.number)]) return false;
    act(step, messages);
  }
  return true;
}

void Script::act(const Step& step, Messages& messages) {
  switch (step.kind) {
    case Step::kSend:
      messages.send(step.to, step.amount, step.peer, tag_,
                    &done_[static_cast<size_t>(step.number)]);
      break;
    case Step::kReceive:
      messages.receive(step.to, step.amount, step.peer, tag_,
                       &done_[static_cast<size_t>(step.number)]);
      break;
    case Step::kReduce:
      reduce_step(step.to, step.first, step.second, step.amount, how_);
      break;
    case Step::kFinish:
      finish_step(step.to, step.first, step.second, step.amount, how_);
      break;
    case Step::kCall:
      step.function(step.to, step.number);
      break;
    case Step::kAwait:
      break;
  }
}

}  // namespace mpistrat::wire
