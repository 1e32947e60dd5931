#include "runtime_double.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "nccl/runtime.h"

namespace pretend {
namespace {

// A thread that runs a queue of work. Streams live as long as the process.
class Stream {
 public:
  Stream() {
    std::thread([this] { run(); }).detach();
  }
  uint64_t put(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
    changed_.notify_all();
    return ++put_;
  }
  uint64_t last() {
    const std::lock_guard lock(mutex_);
    return put_;
  }
  void wait_for(uint64_t number) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ >= number; });
  }

 private:
  void run() {
    for (;;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return !queue_.empty(); });
      std::function<void()> work = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      work();
      work = nullptr;  // what it holds ends before the work counts as done
      lock.lock();
      ++done_;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  uint64_t put_ = 0, done_ = 0;
};

struct Allocation {
  int device;
  std::vector<char> bytes;
};

struct Mapping {
  void* at = nullptr;
  int users = 0;
};

// Never destroyed: streams outlive main.
struct State {
  std::mutex mutex;
  std::map<const char*, std::unique_ptr<Allocation>> allocations;
  // Each file once: the ranks of one process see one memory, or a sanitizer would not see races.
  std::map<ino_t, Mapping> mappings;
};
State& state() {
  static auto* const s = new State;
  return *s;
}
thread_local int device_of_thread = 0;

Stream* stream_of(hipStream_t stream) { return reinterpret_cast<Stream*>(stream); }

}  // namespace

int current_device() { return device_of_thread; }
void set_device(int device) { device_of_thread = device; }
std::string physical_device(int device) { return std::to_string(device); }

int enqueue(int, hipStream_t stream, std::function<void()> work) {
  stream_of(stream)->put(std::move(work));
  return 0;
}

int order_after(int, hipStream_t stream, hipStream_t other) {
  Stream* const before = stream_of(other);
  stream_of(stream)->put([before, number = before->last()] { before->wait_for(number); });
  return 0;
}

int copy_on_device(int, void* to, const void* from, size_t nbytes) {
  std::memcpy(to, from, nbytes);
  return 0;
}

int share(int fd, size_t nbytes, void** address) {
  struct stat status;
  if (fstat(fd, &status)) return 1;
  const std::lock_guard lock(state().mutex);
  Mapping& mapping = state().mappings[status.st_ino];
  if (!mapping.users) mapping.at = mmap(nullptr, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ++mapping.users;
  *address = mapping.at;
  return mapping.at == MAP_FAILED;
}

void unshare(void* address, size_t nbytes) {
  const std::lock_guard lock(state().mutex);
  for (auto at = state().mappings.begin(); at != state().mappings.end(); ++at) {
    if (at->second.at != address) continue;
    if (--at->second.users) return;
    munmap(address, nbytes);
    state().mappings.erase(at);
    return;
  }
}

Place place_of(const void* pointer) {
  const auto* const at = static_cast<const char*>(pointer);
  const std::lock_guard lock(state().mutex);
  auto found = state().allocations.upper_bound(at);
  if (found == state().allocations.begin()) return {};
  --found;
  const auto offset = static_cast<size_t>(at - found->first);
  const size_t nbytes = found->second->bytes.size();
  return offset < nbytes ? Place{found->second->device, nbytes - offset} : Place{};
}

void* allocate(int device, size_t nbytes) {
  auto allocation = std::make_unique<Allocation>(Allocation{device, std::vector<char>(nbytes)});
  char* const at = allocation->bytes.data();
  const std::lock_guard lock(state().mutex);
  state().allocations[at] = std::move(allocation);
  return at;
}

hipStream_t make_stream() { return reinterpret_cast<hipStream_t>(new Stream); }

void synchronize(hipStream_t stream) { stream_of(stream)->wait_for(stream_of(stream)->last()); }

}  // namespace pretend
