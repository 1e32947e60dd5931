// A device as this process sees it: the process that does its work, and the sockets to it.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <memory>
#include <mutex>

#include "device/protocol.h"
#include "runtime/interface/hip_api.h"

namespace pretend {

class Device;

// Whether this process was forked from one that has started devices: its streams have no threads
// here, and its sockets are the parent's.
bool is_forked();

// A socket to a device's process; one task at a time.
class Connection {
 public:
  Connection(Device* device, int socket) : device_(device), socket_(socket) {}
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Let the device do a task and wait for it; `file` goes along. The device's error if it is lost.
  hipError_t perform(const Request& request, Answer* answer = nullptr, int file = -1);

 private:
  Device* const device_;
  const int socket_;
  std::mutex mutex_;
};

class Device {
 public:
  explicit Device(int index);

  // Another socket to the device, for one stream. Null if the device is lost.
  std::unique_ptr<Connection> connect();

  Connection& control() { return *control_; }
  int index() const { return index_; }

  // Why every call for this device fails from now on; hipSuccess as long as it works. In a child
  // that was forked nothing works.
  hipError_t error() const { return is_forked() ? hipErrorNotInitialized : error_.load(); }

  // Let every later call fail with an error; the first one stays.
  void fail(hipError_t error);

  // Find out how its process ended, and keep that as the error.
  void lose();

  // Count one more piece of work, and end the device if PRETEND_LOST says so.
  void count_work();

  // What locks out the kernels of other processes (Request::exclusive).
  uint32_t exclusive() const;

 private:
  const int index_;
  pid_t process_ = -1;
  std::unique_ptr<Connection> control_;
  std::atomic<hipError_t> error_{hipSuccess};
  std::atomic<long> done_{0};
  std::mutex lost_mutex_;
  bool has_ended_ = false;  // its process
};

// Held while devices are started, and while memory is mapped in them.
std::recursive_mutex& state_mutex();

// A device of this process, started when it is first asked for; null for a wrong number, and in a
// child that was forked after a device was started.
Device* device(int index);

// The same, only if it was started.
Device* started_device(int index);

// The error of a device; hipSuccess if it was not started yet.
hipError_t error_of(int index);

// The device that is the current one of this thread.
int current_device();
void set_current_device(int index);

Request request_for(Task task);

}  // namespace pretend
