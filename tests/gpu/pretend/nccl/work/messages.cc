#include "nccl/work/messages.h"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "nccl/interface/errors.h"
#include "nccl/runtime.h"
#include "nccl/work/deadlock.h"
#include "nccl/work/reductions.h"

namespace pretend {
namespace {

using Outcome = Communicator::Outcome;

class Exchange {
 public:
  explicit Exchange(Communicator& communicator, std::vector<Message>& messages)
      : c_(communicator), search_(communicator) {
    for (Message& message : messages) queues_[{message.sends, message.peer}].push_back(&message);
  }

  Outcome whole() {
    const Outcome outcome = c_.wait([this] { return step(); });
    if (outcome != Outcome::kDone) return outcome;
    if (lost_) return device_lost();
    return mistake_.empty() ? outcome : c_.break_all(ncclInvalidUsage, mistake_);
  }

 private:
  // Move what can be moved, until it is all done or has failed, or nothing can be moved now.
  bool step() {
    Waits waits;
    for (bool moved = true; moved;) {
      moved = false;
      waits = {};
      for (auto at = queues_.begin(); at != queues_.end();) {
        Message& message = *at->second.front();
        const bool one = message.sends ? send_step(message) : receive_step(message);
        if (lost_ || !mistake_.empty()) return true;
        (message.sends ? waits.sends : waits.receives) |= one ? 0 : bit(message.peer);
        moved |= one;
        if (message.done) at->second.pop_front();
        at = at->second.empty() ? queues_.erase(at) : std::next(at);
      }
      if (c_.aborted) return true;
    }
    if (!queues_.empty() && search_.finds(waits)) mistake_ = search_.message();
    return queues_.empty() || !mistake_.empty();
  }

  // A message has been sent when its receiver has taken all of it: a program must not rely on the
  // small ones that a real NCCL may keep.
  bool send_step(Message& message) {
    Channel& channel = c_.segment.channel(c_.rank, message.peer);
    const uint64_t sent = channel.sent.load(std::memory_order_relaxed);
    if (channel.taken.load(std::memory_order_acquire) != sent) return false;
    const size_t whole = message.count * size_of(message.dtype);
    if (message.begun && message.at == whole) return message.done = true;
    const size_t n = std::min(kMessageBytes, whole - message.at);
    if (!copy(c_.segment.message(c_.rank, message.peer), message.memory + message.at, n))
      return false;
    channel.count = message.count;
    channel.dtype = message.dtype;
    channel.nbytes = n;
    channel.sent.store(sent + 1, std::memory_order_release);  // publishes the step
    message.begun = true;
    message.at += n;
    return true;
  }

  bool receive_step(Message& message) {
    Channel& channel = c_.segment.channel(message.peer, c_.rank);
    const uint64_t taken = channel.taken.load(std::memory_order_relaxed);
    if (channel.sent.load(std::memory_order_acquire) == taken) return false;
    if (channel.count != message.count || channel.dtype != static_cast<uint32_t>(message.dtype)) {
      mistake_ = difference(channel, message);
      return false;
    }
    if (!copy(message.memory + message.at, c_.segment.message(message.peer, c_.rank),
              channel.nbytes))
      return false;
    message.at += channel.nbytes;
    message.done = message.at == message.count * size_of(message.dtype);
    channel.taken.store(taken + 1, std::memory_order_release);  // the sender may write again
    return true;
  }

  bool copy(void* to, const void* from, size_t n) {
    if (n && copy_on_device(c_.device, to, from, n)) lost_ = true;
    return !lost_;
  }

  std::string difference(const Channel& channel, const Message& message) const {
    return text(
        "messages that do not fit: rank %d calls ncclSend(count %zu, %s) to rank %d, which calls "
        "ncclRecv(count %zu, %s): a "
        "real GPU would hang here, or give wrong values",
        message.peer, static_cast<size_t>(channel.count),
        name_of(static_cast<ncclDataType_t>(channel.dtype)), c_.rank, message.count,
        name_of(message.dtype));
  }

  Outcome device_lost() {
    c_.set_error(ncclUnhandledCudaError, text("device %d failed in a message", c_.device));
    c_.seat().presence = Presence::kFailed;
    return Outcome::kFailed;
  }

  Communicator& c_;
  std::map<std::pair<bool, int>, std::deque<Message*>> queues_;
  DeadlockSearch search_;
  std::string mistake_;
  bool lost_ = false;
};

}  // namespace

Outcome run(Communicator& communicator, std::vector<Message>& messages) {
  return Exchange(communicator, messages).whole();
}

}  // namespace pretend
