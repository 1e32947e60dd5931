// Streams: threads of the user's process that hand work to the device, one piece after the other.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/device.h"
#include "runtime/interface/hip_api.h"

namespace pretend {

// The end of a piece of work.
class Mark {
 public:
  void set();
  void wait();
  bool is_set();
  std::chrono::steady_clock::time_point when();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_set_ = false;
  std::chrono::steady_clock::time_point when_;
};
using MarkPtr = std::shared_ptr<Mark>;

// A piece of work; it is called in the stream's thread with the stream's connection.
using Work = std::function<void(Connection&)>;

class Stream {
 public:
  Stream(Device* device, unsigned flags, int priority);
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Queue work that begins once all of `before` is done too. Where the device is lost its work is
  // left out; what is for the host is called.
  MarkPtr push(Work work, std::function<void()> host_work, std::vector<MarkPtr> before);

  // The end of what was queued last; null if nothing was.
  MarkPtr tail();

  // Delete this once what is queued is done.
  void end();

  Device* device() const { return device_; }
  unsigned flags() const { return flags_; }
  int priority() const { return priority_; }

 private:
  struct Piece {
    Work work;
    std::function<void()> host_work;
    std::vector<MarkPtr> before;
    MarkPtr mark;
  };
  void start();
  void run();
  bool next(Piece* piece);
  void be_late();

  Device* const device_;
  const unsigned flags_;
  const int priority_;
  const std::unique_ptr<Connection> connection_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Piece> queue_;
  MarkPtr tail_;
  bool ends_ = false;
  std::minstd_rand random_;  // how late work begins
};

// The stream behind a handle: the default stream of the current device for 0 and 1, that of the
// calling thread for 2. Null for a handle of no stream, and where the device cannot be used.
Stream* stream_of(hipStream_t handle);
Stream* default_stream(int device);

// A stream's error: that of its device, or, where stream_of found none, why.
hipError_t error_of(const Stream* stream);

// Queue work in the order of HIP's rules: the default stream and blocking ones wait for each other.
MarkPtr enqueue(Stream* stream, Work work);

// The same for a function of the host, which is called even where the device is lost.
MarkPtr enqueue_host(Stream* stream, std::function<void()> work);

// Wait for all streams of a device.
void wait_for_device(int device);

hipStream_t add_stream(unsigned flags, int priority);

// Take a stream from the user. It returns at once; what is queued is done.
hipError_t remove_stream(hipStream_t handle);

}  // namespace pretend
