#include "nccl/communicator.h"

#include <algorithm>
#include <thread>
#include <unordered_map>
#include <vector>

#include "nccl/backoff.h"
#include "nccl/interface/errors.h"
#include "nccl/work/deadlock.h"

namespace pretend {
namespace {

constexpr int64_t kLookEveryMs = 20;

// Never destroyed: streams and jobs may still run while the process ends.
struct Registry {
  std::mutex mutex;
  std::unordered_map<ncclComm_t, CommunicatorPtr> all;
};
Registry& registry() {
  static auto* const r = new Registry;
  return *r;
}

// The work of streams would otherwise wait for ever while the runtime ends.
__attribute__((destructor)) void abort_all() {
  const std::lock_guard lock(registry().mutex);
  for (const auto& [handle, communicator] : registry().all) communicator->aborted = true;
}

}  // namespace

Communicator::Outcome Communicator::meet(std::atomic<uint64_t> Seat::* counter) {
  const bool is_host_call = counter == &Seat::host_meetings;
  const uint64_t meeting = (seat().*counter).load(std::memory_order_relaxed) + 1;
  // Publishes what this rank wrote into its seat and its slot before.
  (seat().*counter).store(meeting, std::memory_order_release);
  const auto is_here = [&](int peer) {
    return (segment.seat(peer).*counter).load(std::memory_order_acquire) >= meeting;
  };
  DeadlockSearch search(*this);
  int next = 0;
  const Outcome outcome = wait(
      [&] {
        while (next < ranks && is_here(next)) ++next;
        return next == ranks || search.finds({.meets = bit(next)}, is_host_call);
      },
      is_host_call);
  if (outcome != Outcome::kDone || next == ranks) return outcome;
  return break_all(ncclInvalidUsage, search.message());
}

Communicator::Outcome Communicator::wait(const std::function<bool()>& done, bool until_lost) {
  Backoff backoff;
  for (;;) {
    if (aborted) return Outcome::kAborted;
    if (done()) return Outcome::kDone;
    if (is_broken()) return Outcome::kFailed;
    if (backoff.sleeps()) look_at_peers();
    if (until_lost && error_ != ncclSuccess) return Outcome::kFailed;
    backoff.pause();
  }
}

Communicator::Outcome Communicator::hang() {
  Backoff backoff;
  while (!aborted) backoff.pause();
  return Outcome::kAborted;
}

Communicator::Outcome Communicator::break_all(ncclResult_t result, const std::string& message) {
  if (hangs_as_hardware()) return hang();
  tell_all(result, message);
  return wait([] { return false; });  // until the first finder has written its message
}

void Communicator::tell_all(ncclResult_t result, const std::string& message) {
  Failure& failure = segment.header().failure;
  uint32_t nobody = 0;
  if (!failure.state.compare_exchange_strong(nobody, 1)) return;
  failure.result = result;
  failure.message[message.copy(failure.message, sizeof failure.message - 1)] = 0;
  failure.state.store(2, std::memory_order_release);
}

bool Communicator::is_broken() {
  const Failure& failure = segment.header().failure;
  if (failure.state.load(std::memory_order_acquire) != 2) return false;
  set_error(failure.result, failure.message);
  return true;
}

void Communicator::look_at_peers() {
  int64_t due = next_look_ms_.load();
  const int64_t now = now_ms();
  if (now < due || !next_look_ms_.compare_exchange_strong(due, now + kLookEveryMs)) return;
  if (hangs_as_hardware() || error_ != ncclSuccess) return;
  for (int peer = 0; peer < ranks; ++peer) {
    const Seat& other = segment.seat(peer);
    const Presence presence = other.presence.load(std::memory_order_acquire);
    const char* what = presence == Presence::kAborted  ? "aborted the communicator"
                       : presence == Presence::kFailed ? "lost its device"
                       : presence == Presence::kJoined && other.process.has_ended() ? "has ended"
                                                                                    : nullptr;
    // It may have finalized or aborted just before it ended.
    if (what && peer != rank && other.presence.load() == presence)
      return set_error(ncclRemoteError, text("rank %d (process %d) %s; rank %d has to abort", peer,
                                             other.process.pid, what, rank));
  }
}

void Communicator::set_error(ncclResult_t result, const std::string& message) {
  const std::lock_guard lock(mutex_);
  if (error_ != ncclSuccess) return;
  message_ = text("rank %d of %d: %s", rank, ranks, message.c_str());
  complain(result, message_);
  error_ = result;
}

ncclResult_t Communicator::error() {
  if (ready && !finalized && !is_broken()) look_at_peers();
  return error_now();
}

std::string Communicator::message() const {
  const std::lock_guard lock(mutex_);
  return message_;
}

ncclResult_t Communicator::run_job(std::function<ncclResult_t()> job) {
  if (blocking) return job();
  ++jobs_;
  std::thread([self = shared_from_this(), job = std::move(job)] {
    const ncclResult_t result = job();
    if (result != ncclSuccess) self->set_error(result, last_message());
    --self->jobs_;
  }).detach();
  return ncclInProgress;
}

ncclComm_t add(const CommunicatorPtr& communicator) {
  const auto handle = reinterpret_cast<ncclComm_t>(communicator.get());
  const std::lock_guard lock(registry().mutex);
  registry().all[handle] = communicator;
  return handle;
}

CommunicatorPtr find(ncclComm_t handle) {
  const std::lock_guard lock(registry().mutex);
  const auto found = registry().all.find(handle);
  return found == registry().all.end() ? nullptr : found->second;
}

void remove(ncclComm_t handle) {
  const std::lock_guard lock(registry().mutex);
  registry().all.erase(handle);
}

}  // namespace pretend
