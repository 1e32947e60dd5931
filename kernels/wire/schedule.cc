#include "schedule.h"

namespace mpistrat::wire {

void Schedule::clear(int tag) {
  steps_.clear();
  at_ = 0;
  tag_ = tag;
  num_messages_ = 0;
}

int Schedule::message(Step::Kind kind, void* data, int64_t nbytes, int peer) {
  steps_.push_back({kind, num_messages_, peer, nbytes, data, nullptr, nullptr, nullptr});
  return num_messages_++;
}

int Schedule::send(const void* data, int64_t nbytes, int to) {
  return message(Step::kSend, const_cast<void*>(data), nbytes, to);
}

int Schedule::receive(void* data, int64_t nbytes, int from) {
  return message(Step::kReceive, data, nbytes, from);
}

void Schedule::await(int message) {
  steps_.push_back({Step::kAwait, message, 0, 0, nullptr, nullptr, nullptr, nullptr});
}

void Schedule::await_all() {
  for (int message = 0; message < num_messages_; ++message) await(message);
}

void Schedule::reduce(void* into, const void* first, const void* second, int64_t count,
                      const Arithmetic& how) {
  how_ = how;
  steps_.push_back({Step::kReduce, 0, 0, count, into, const_cast<void*>(first), second, nullptr});
}

void Schedule::finish(void* into, void* first, const void* second, int64_t count,
                      const Arithmetic& how) {
  how_ = how;
  steps_.push_back({Step::kFinish, 0, 0, count, into, first, second, nullptr});
}

void Schedule::call(Function function, void* context, int argument) {
  steps_.push_back({Step::kCall, argument, 0, 0, context, nullptr, nullptr, function});
}

bool Schedule::run(Messages& messages) {
  if (at_ == 0) done_.assign(static_cast<size_t>(num_messages_), 0);
  for (; at_ < steps_.size(); ++at_) {
    const Step& step = steps_[at_];
    if (step.kind == Step::kAwait && !done_[static_cast<size_t>(step.number)]) return false;
    act(step, messages);
  }
  return true;
}

void Schedule::act(const Step& step, Messages& messages) {
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
