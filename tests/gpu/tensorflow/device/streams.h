// The device's streams and events. TensorFlow's handles are HIP's own.

#pragma once

#include <mutex>
#include <unordered_map>

#include "hip.h"

namespace device {
namespace {

// The devices of streams: an event is recorded by streams of its own device only.
class Places {
 public:
  void add(SP_Stream stream, const SP_Device* device) {
    const std::lock_guard lock(mutex_);
    devices_[stream] = device;
  }

  void remove(SP_Stream stream) {
    const std::lock_guard lock(mutex_);
    devices_.erase(stream);
  }

  const SP_Device* of(SP_Stream stream) {
    const std::lock_guard lock(mutex_);
    return devices_.at(stream);
  }

 private:
  std::mutex mutex_;
  std::unordered_map<SP_Stream, const SP_Device*> devices_;
};

Places& places() {
  static auto* all = new Places;  // never destroyed: streams are, at exit
  return *all;
}

void create_stream(const SP_Device* device, SP_Stream* stream, TF_Status* status) {
  const Current current(device);
  auto** const handle = reinterpret_cast<void**>(stream);
  tell(status, hipStreamCreateWithFlags(handle, kNonBlocking), "a stream");
  places().add(*stream, device);
}

void destroy_stream(const SP_Device*, SP_Stream stream) {
  places().remove(stream);
  hipStreamDestroy(stream);
}

void check_stream(const SP_Device*, SP_Stream stream, TF_Status* status) {
  const int error = hipStreamQuery(stream);
  tell(status, error == kNotReady ? kSuccess : error, "the state of a stream");
}

void wait_for_stream(const SP_Device*, SP_Stream stream, TF_Status* status) {
  tell(status, hipStreamSynchronize(stream), "the end of a stream's work");
}

void create_event(const SP_Device* device, SP_Event* event, TF_Status* status) {
  const Current current(device);
  tell(status, hipEventCreateWithFlags(reinterpret_cast<void**>(event), kNoTiming), "an event");
}

void destroy_event(const SP_Device*, SP_Event event) { hipEventDestroy(event); }

SE_EventStatus state_of(const SP_Device*, SP_Event event) {
  const int error = hipEventQuery(event);
  if (error == kSuccess) return SE_EVENT_COMPLETE;
  return error == kNotReady ? SE_EVENT_PENDING : SE_EVENT_ERROR;
}

void record_event(const SP_Device* device, SP_Stream stream, SP_Event event, TF_Status* status) {
  const Current current(device);
  tell(status, hipEventRecord(event, stream), "an event in a stream");
}

void let_stream_wait(const SP_Device* const device, SP_Stream stream, SP_Event event,
                     TF_Status* const status) {
  const Current current(device);
  tell(status, hipStreamWaitEvent(stream, event, 0), "a wait in a stream");
}

void wait_for_event(const SP_Device*, SP_Event event, TF_Status* status) {
  tell(status, hipEventSynchronize(event), "an event");
}

void put_behind(const SP_Device* device, SP_Stream later, SP_Stream earlier, TF_Status* status) {
  const SP_Device* const before = places().of(earlier);
  SP_Event event = nullptr;
  create_event(before, &event, status);
  if (TF_GetCode(status) == TF_OK) record_event(before, earlier, event, status);
  if (TF_GetCode(status) == TF_OK) let_stream_wait(device, later, event, status);
  if (event != nullptr) destroy_event(before, event);
}

void wait_for_all(const SP_Device* device, TF_Status* status) {
  const Current current(device);
  tell(status, hipDeviceSynchronize(), "the end of the device's work");
}

struct Callback {
  SE_StatusCallbackFn function;
  void* argument;
};

void run_callback(void* given) {
  auto* const callback = static_cast<Callback*>(given);
  TF_Status* const status = TF_NewStatus();
  callback->function(callback->argument, status);
  TF_DeleteStatus(status);
  delete callback;
}

TF_Bool call_host(const SP_Device* device, SP_Stream stream, SE_StatusCallbackFn function,
                  void* argument) {
  const Current current(device);
  auto* const callback = new Callback{function, argument};
  return hipLaunchHostFunc(stream, run_callback, callback) == kSuccess;
}

void create_timer(const SP_Device*, SP_Timer*, TF_Status* status) {
  TF_SetStatus(status, TF_UNIMPLEMENTED, "timers");
}

void destroy_timer(const SP_Device*, SP_Timer) {}

void use_timer(const SP_Device*, SP_Stream, SP_Timer, TF_Status* status) {
  TF_SetStatus(status, TF_UNIMPLEMENTED, "timers");
}

void add_streams(SP_StreamExecutor* executor) {
  executor->create_stream = create_stream;
  executor->destroy_stream = destroy_stream;
  executor->create_stream_dependency = put_behind;
  executor->get_stream_status = check_stream;
  executor->block_host_until_done = wait_for_stream;
  executor->create_event = create_event;
  executor->destroy_event = destroy_event;
  executor->get_event_status = state_of;
  executor->record_event = record_event;
  executor->wait_for_event = let_stream_wait;
  executor->block_host_for_event = wait_for_event;
  executor->synchronize_all_activity = wait_for_all;
  executor->host_callback = call_host;
  executor->create_timer = create_timer;
  executor->destroy_timer = destroy_timer;
  executor->start_timer = use_timer;
  executor->stop_timer = use_timer;
}

}  // namespace
}  // namespace device
