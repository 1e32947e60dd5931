// Events, of one process and of several, as HIP calls them.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>

#include "runtime/interface/errors.h"
#include "runtime/streams.h"

namespace {

using pretend::enqueue_host;
using pretend::MarkPtr;
using pretend::remember;
using pretend::Stream;
using pretend::stream_of;

// A record of an event: the number of the last one here that is over, and who makes the next one.
struct Record {
  std::atomic<uint64_t> over;
  std::atomic<pid_t> recorder;
};

// What processes share of an event. Its records have numbers from 1, and places in turn: they may
// end in any order, since streams do not wait for one another.
constexpr uint64_t kRecords = 256;
struct Shared {
  std::atomic<uint64_t> begun, recorded;  // the highest number; that of the last complete record
  Record records[kRecords];
};

struct Event {
  int device;
  unsigned flags;
  std::mutex mutex;
  MarkPtr mark;  // of the last record; null before
  std::shared_ptr<Shared> shared;
  int file = -1;
  pid_t owner = 0;  // of the process that made it
  ~Event() {
    if (file >= 0) close(file);
  }
};

struct EventHandle {
  char magic[8];
  pid_t process;
  int file;
  ino_t inode;
};
constexpr char kEventMagic[8] = "p-event";

std::mutex events_mutex;
auto& events = *new std::map<const void*, std::shared_ptr<Event>>;

// The event of a handle; null for a handle of none.
std::shared_ptr<Event> of(hipEvent_t handle) {
  const std::lock_guard<std::mutex> lock(events_mutex);
  const auto found = events.find(handle);
  return found == events.end() ? nullptr : found->second;
}

hipEvent_t keep(std::shared_ptr<Event> event) {
  const std::lock_guard<std::mutex> lock(events_mutex);
  const auto handle = reinterpret_cast<hipEvent_t>(event.get());
  events[handle] = std::move(event);
  return handle;
}

MarkPtr mark_of(const std::shared_ptr<Event>& event) {
  const std::lock_guard<std::mutex> lock(event->mutex);
  return event->mark;
}

std::shared_ptr<Shared> map_shared(int file) {
  void* const at = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (at == MAP_FAILED) return nullptr;
  return {static_cast<Shared*>(at), [](Shared* one) { munmap(one, sizeof *one); }};
}

// Whether a process runs: one that has ended may still have a number, as a zombie.
bool is_running(pid_t process) {
  char path[64], state = 'Z';
  std::snprintf(path, sizeof path, "/proc/%d/stat", process);
  std::FILE* const file = std::fopen(path, "r");
  if (!file) return false;
  const bool is_read = std::fscanf(file, "%*d (%*[^)]) %c", &state) == 1;
  std::fclose(file);
  return is_read && state != 'Z' && state != 'X';
}

Record& record_of(const std::shared_ptr<Shared>& shared, uint64_t number) {
  return shared->records[number % kRecords];
}

bool is_over(const std::shared_ptr<Shared>& shared, uint64_t number) {
  return !number || record_of(shared, number).over >= number;
}

// Wait until a record is over. False where the process that made it has ended before.
bool wait_for_record(const std::shared_ptr<Shared>& shared, uint64_t number) {
  while (!is_over(shared, number)) {
    if (!is_running(record_of(shared, number).recorder) && !is_over(shared, number)) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return true;
}

// The number of a new record, once its place is free. 0 where that is another process's, which has
// ended.
uint64_t new_record(const std::shared_ptr<Shared>& shared) {
  const uint64_t number = ++shared->begun;
  if (number > kRecords && !wait_for_record(shared, number - kRecords)) return 0;
  record_of(shared, number).recorder = getpid();
  uint64_t last = shared->recorded;
  while (last < number && !shared->recorded.compare_exchange_weak(last, number)) {
  }
  return number;
}

hipError_t check(const std::shared_ptr<Event>& event) {
  return remember(event ? pretend::error_of(event->device) : hipErrorInvalidHandle);
}

}  // namespace

HIP_API hipError_t hipEventCreateWithFlags(hipEvent_t* handle, unsigned flags) {
  const bool is_shared = flags & hipEventInterprocess;
  if (is_shared && !(flags & hipEventDisableTiming)) return remember(hipErrorInvalidValue);
  auto event = std::make_shared<Event>();
  event->device = pretend::current_device();
  event->flags = flags;
  if (const hipError_t error = check(event)) return error;
  if (is_shared) {
    event->file = memfd_create("pretend-event", MFD_CLOEXEC);
    if (event->file < 0 || ftruncate(event->file, sizeof(Shared)))
      return remember(hipErrorOutOfMemory);
    event->shared = map_shared(event->file);
    event->owner = getpid();
  }
  *handle = keep(event);
  return hipSuccess;
}
HIP_API hipError_t hipEventCreate(hipEvent_t* handle) { return hipEventCreateWithFlags(handle, 0); }
HIP_API hipError_t hipEventDestroy(hipEvent_t handle) {
  const std::lock_guard<std::mutex> lock(events_mutex);
  return events.erase(handle) ? hipSuccess : remember(hipErrorInvalidHandle);
}
HIP_API hipError_t hipEventRecord(hipEvent_t handle, hipStream_t where) {
  const auto event = of(handle);
  if (const hipError_t error = check(event)) return error;
  Stream* const stream = stream_of(where);
  if (const hipError_t error = pretend::error_of(stream)) return remember(error);
  if (stream->device()->index() != event->device) return remember(hipErrorInvalidHandle);
  const std::shared_ptr<Shared> shared = event->shared;
  const uint64_t number = shared ? new_record(shared) : 0;
  if (shared && !number) return remember(hipErrorLaunchFailure);
  const MarkPtr mark = enqueue_host(stream, [shared, number] {
    if (shared) record_of(shared, number).over = number;
  });
  const std::lock_guard<std::mutex> lock(event->mutex);
  event->mark = mark;
  return check(event);
}
HIP_API hipError_t hipEventSynchronize(hipEvent_t handle) {
  const auto event = of(handle);
  if (const hipError_t error = check(event)) return error;
  if (event->shared && !wait_for_record(event->shared, event->shared->recorded))
    return remember(hipErrorLaunchFailure);
  if (const MarkPtr mark = mark_of(event)) mark->wait();
  return check(event);
}
HIP_API hipError_t hipEventQuery(hipEvent_t handle) {
  const auto event = of(handle);
  if (const hipError_t error = check(event)) return error;
  if (event->shared && !is_over(event->shared, event->shared->recorded)) return hipErrorNotReady;
  const MarkPtr mark = mark_of(event);
  return !mark || mark->is_set() ? check(event) : hipErrorNotReady;
}
HIP_API hipError_t hipEventElapsedTime(float* milliseconds, hipEvent_t from, hipEvent_t to) {
  const auto one = of(from), other = of(to);
  if (!one || !other) return remember(hipErrorInvalidHandle);
  const unsigned flags = one->flags | other->flags;
  const MarkPtr first = mark_of(one), last = mark_of(other);
  if (!first || !last || (flags & hipEventDisableTiming)) return remember(hipErrorInvalidHandle);
  if (!first->is_set() || !last->is_set()) return hipErrorNotReady;
  const std::chrono::duration<float, std::milli> passed = last->when() - first->when();
  *milliseconds = passed.count();
  return hipSuccess;
}
HIP_API hipError_t hipStreamWaitEvent(hipStream_t where, hipEvent_t handle, unsigned) {
  Stream* const stream = stream_of(where);
  if (const hipError_t error = pretend::error_of(stream)) return remember(error);
  const auto event = of(handle);
  if (const hipError_t error = check(event)) return error;
  if (const std::shared_ptr<Shared> shared = event->shared) {
    const uint64_t number = shared->recorded;
    enqueue_host(stream, [=] {
      if (!wait_for_record(shared, number)) stream->device()->fail(hipErrorLaunchFailure);
    });
  } else if (const MarkPtr mark = mark_of(event)) {
    enqueue_host(stream, [mark] { mark->wait(); });
  }
  return remember(stream->device()->error());
}
HIP_API hipError_t hipIpcGetEventHandle(hipIpcEventHandle_t* out, hipEvent_t handle) {
  const auto event = of(handle);
  if (!event || !event->shared || event->owner != getpid()) return remember(hipErrorInvalidHandle);
  EventHandle found = {};
  std::memcpy(found.magic, kEventMagic, sizeof kEventMagic);
  found.process = getpid();
  found.file = event->file;
  struct stat status;
  if (fstat(event->file, &status)) return remember(hipErrorInvalidHandle);
  found.inode = status.st_ino;
  static_assert(sizeof found <= sizeof *out);
  std::memset(out, 0, sizeof *out);
  std::memcpy(out, &found, sizeof found);
  return hipSuccess;
}
HIP_API hipError_t hipIpcOpenEventHandle(hipEvent_t* out, hipIpcEventHandle_t handle) {
  EventHandle found;
  std::memcpy(&found, &handle, sizeof found);
  if (std::memcmp(found.magic, kEventMagic, sizeof kEventMagic))
    return remember(hipErrorInvalidValue);
  if (found.process == getpid()) return remember(hipErrorInvalidContext);
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/fd/%d", found.process, found.file);
  auto event = std::make_shared<Event>();
  event->device = pretend::current_device();
  event->flags = hipEventInterprocess | hipEventDisableTiming;
  event->file = open(path, O_RDWR | O_CLOEXEC);
  event->owner = found.process;
  struct stat status;
  const bool is_same = event->file >= 0 && !fstat(event->file, &status) &&
                       status.st_ino == found.inode;  // else it was destroyed since
  if (!is_same || !(event->shared = map_shared(event->file))) return remember(hipErrorMapFailed);
  *out = keep(std::move(event));
  return hipSuccess;
}
