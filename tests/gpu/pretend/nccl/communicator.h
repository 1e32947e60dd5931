// A communicator: one rank's seat in a segment, its state, and the registry of handles.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "nccl/interface/nccl.h"
#include "nccl/segment.h"

namespace pretend {

class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  // How a wait ended.
  enum class Outcome { kDone, kAborted, kFailed };

  Communicator(int rank, int ranks, int device, bool blocking)
      : rank(rank), ranks(ranks), device(device), blocking(blocking) {}

  int rank, ranks;  // of the child of a split: -1 until all ranks have met
  const int device;
  const bool blocking;
  Segment segment;
  std::atomic<bool> aborted{false}, finalized{false}, ready{false};
  // Work handed to streams, and ended there. NCCL runs the work of a communicator one after
  // another in the order of the calls, whatever streams it is on.
  std::atomic<uint64_t> launched{0}, ended{0};
  std::atomic<int> running{0};  // at work, or waiting for their turn
  uint64_t splits = 0;

  Seat& seat() const { return segment.seat(rank); }

  // Come to the next meeting of all ranks; `counter` says of which kind. Data that this rank wrote
  // before is seen by all after it.
  Outcome meet(std::atomic<uint64_t> Seat::* counter);

  // Wait until `done`, or until the communicator is aborted or found to be broken. A lost peer
  // becomes the asynchronous error and the wait goes on, as a kernel does on a GPU, unless
  // `until_lost`.
  Outcome wait(const std::function<bool()>& done, bool until_lost = false);
  // Wait for ncclCommAbort alone.
  Outcome hang();

  // Make the communicator invalid on all ranks because of a mistake in work on streams; or hang.
  Outcome break_all(ncclResult_t result, const std::string& message);
  // The same at once, also where mistakes hang: for host calls, which fail on hardware too.
  void tell_all(ncclResult_t result, const std::string& message);
  // Set this rank's asynchronous error, unless there is one.
  void set_error(ncclResult_t result, const std::string& message);
  ncclResult_t error_now() const { return static_cast<ncclResult_t>(error_.load()); }
  // The asynchronous error, after a look at the peers and at mistakes that they have found.
  ncclResult_t error();
  bool in_progress() const { return jobs_.load() != 0; }
  std::string message() const;

  // Run a host call: at once, or for a non-blocking communicator in a thread (ncclInProgress).
  ncclResult_t run_job(std::function<ncclResult_t()> job);

  // Whether a rank has found a mistake; its message is then this rank's error.
  bool is_broken();

 private:
  void look_at_peers();

  std::atomic<int> jobs_{0};
  std::atomic<int> error_{ncclSuccess};
  std::atomic<int64_t> next_look_ms_{0};
  mutable std::mutex mutex_;
  std::string message_;
};

using CommunicatorPtr = std::shared_ptr<Communicator>;

// Handles are valid from `add` to `remove`; others give a null pointer.
ncclComm_t add(const CommunicatorPtr& communicator);
CommunicatorPtr find(ncclComm_t handle);
void remove(ncclComm_t handle);

}  // namespace pretend
