#include "nccl/runtime.h"

#include <memory>

#include "runtime/internal.h"

// Of HIP's interface, which libamdhip64.so.7 exports.
extern "C" {
hipError_t hipGetDevice(int* device);
hipError_t hipSetDevice(int device);
hipError_t hipDeviceGetPCIBusId(char* text, int size, int device);
hipError_t hipEventCreateWithFlags(hipEvent_t* event, unsigned flags);
hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream);
hipError_t hipEventDestroy(hipEvent_t event);
hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned flags);
}

namespace pretend {
namespace {

using Function = std::function<void()>;

// Makes a device the current one as long as it lives.
class OnDevice {
 public:
  explicit OnDevice(int device) : before_(current_device()) { hipSetDevice(device); }
  ~OnDevice() { hipSetDevice(before_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  const int before_;
};

void call(void* function) {
  const std::unique_ptr<Function> work(static_cast<Function*>(function));
  (*work)();
}

}  // namespace

int current_device() {
  int device = 0;
  hipGetDevice(&device);
  return device;
}

void set_device(int device) { hipSetDevice(device); }

std::string physical_device(int device) {
  char text[64];
  return hipDeviceGetPCIBusId(text, sizeof text, device) ? "" : text;
}

int enqueue(int device, hipStream_t stream, Function work) {
  auto held = std::make_unique<Function>(std::move(work));
  const int error = pretend_enqueue(device, stream, call, held.get());
  if (!error) held.release();
  return error;
}

int order_after(int device, hipStream_t stream, hipStream_t other) {
  const OnDevice here(device);
  hipEvent_t event;
  if (const int error = hipEventCreateWithFlags(&event, hipEventDisableTiming)) return error;
  int error = hipEventRecord(event, other);
  if (!error) error = hipStreamWaitEvent(stream, event, 0);
  hipEventDestroy(event);
  return error;
}

int copy_on_device(int device, void* to, const void* from, size_t nbytes) {
  return pretend_copy(device, to, from, nbytes);
}

int share(int fd, size_t nbytes, void** address) { return pretend_share(fd, nbytes, address); }

void unshare(void* address, size_t) { pretend_unshare(address); }

Place place_of(const void* pointer) {
  Place place;
  pretend_place(pointer, &place.device, &place.left);
  return place;
}

}  // namespace pretend
