#include "runtime/streams.h"

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <map>
#include <set>
#include <vector>

#include "runtime/settings.h"

namespace pretend {
namespace {

std::mutex streams_mutex;
// Those that users made, and the default one of each device. Never destroyed: their threads may
// sleep when the process ends.
auto& streams = *new std::set<Stream*>;
auto& ending_streams = *new std::set<Stream*>;  // those that users destroyed before all was done
auto& default_streams = *new std::map<int, Stream*>;

bool is_default(Stream* stream) {
  const auto found = default_streams.find(stream->device()->index());
  return found != default_streams.end() && found->second == stream;
}

// What work on a stream has to wait for on others.
std::vector<MarkPtr> earlier_work(Stream* stream) {
  const std::lock_guard<std::mutex> lock(streams_mutex);
  std::vector<MarkPtr> found;
  const auto add = [&](Stream* other) {
    if (MarkPtr tail = other->tail()) found.push_back(std::move(tail));
  };
  if (is_default(stream)) {
    for (const auto* some : {&streams, &ending_streams})
      for (Stream* other : *some)
        if (other->device() == stream->device() && !(other->flags() & hipStreamNonBlocking))
          add(other);
  } else if (!(stream->flags() & hipStreamNonBlocking)) {
    const auto other = default_streams.find(stream->device()->index());
    if (other != default_streams.end()) add(other->second);
  }
  return found;
}

}  // namespace

void Mark::set() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_set_ = true;
    when_ = std::chrono::steady_clock::now();
  }
  changed_.notify_all();
}

void Mark::wait() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return is_set_; });
}

bool Mark::is_set() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return is_set_;
}

std::chrono::steady_clock::time_point Mark::when() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return when_;
}

Stream::Stream(Device* device, unsigned flags, int priority)
    : device_(device), flags_(flags), priority_(priority), connection_(device->connect()) {
  static std::atomic<unsigned> count = 0;
  random_.seed(++count);
  start();
}

// Signals are for the threads of the program, as its handlers expect.
void Stream::start() {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([this] { run(); }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Stream::end() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ends_ = true;
  changed_.notify_all();
}

MarkPtr Stream::push(Work work, std::function<void()> host_work, std::vector<MarkPtr> before) {
  const auto mark = std::make_shared<Mark>();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    queue_.push_back({std::move(work), std::move(host_work), std::move(before), mark});
    tail_ = mark;
  }
  changed_.notify_all();
  return mark;
}

MarkPtr Stream::tail() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return tail_;
}

bool Stream::next(Piece* piece) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return ends_ || !queue_.empty(); });
  if (queue_.empty()) return false;
  *piece = std::move(queue_.front());
  queue_.pop_front();
  return true;
}

void Stream::be_late() {
  const auto& late_ms = settings().late_ms;
  if (!late_ms[1]) return;
  std::uniform_int_distribution<int> range(1000 * late_ms[0], 1000 * late_ms[1]);
  std::this_thread::sleep_for(std::chrono::microseconds(range(random_)));
}

void Stream::run() {
  set_current_device(device_->index());
  for (Piece piece; next(&piece); piece = {}) {
    for (const MarkPtr& other : piece.before) other->wait();
    be_late();
    if (piece.work) device_->count_work();
    // Nothing is done on a device that is lost, but who waits for it goes on.
    if (piece.work && connection_ && !device_->error()) piece.work(*connection_);
    if (piece.host_work) piece.host_work();
    piece.work = nullptr;  // what it holds is let go of before anybody hears that it is over
    piece.host_work = nullptr;
    piece.mark->set();
  }
  const std::lock_guard<std::mutex> lock(streams_mutex);
  ending_streams.erase(this);
  delete this;
}

namespace {

// The blocking streams that a thread has for itself, one for each device; they end with it.
class OwnStreams {
 public:
  hipStream_t of(int index) {
    hipStream_t& found = streams_[index];
    if (!found) found = add_stream(0, 0);
    return found;
  }
  ~OwnStreams() {
    for (const auto& one : streams_) remove_stream(one.second);
  }

 private:
  std::map<int, hipStream_t> streams_;
};
thread_local OwnStreams own_streams;
constexpr uintptr_t kPerThread = 2;  // hipStreamPerThread

}  // namespace

Stream* default_stream(int index) {
  Device* const owner = device(index);
  if (!owner) return nullptr;
  const std::lock_guard<std::mutex> lock(streams_mutex);
  Stream*& found = default_streams[index];
  if (!found) found = new Stream(owner, 0, 0);
  return found;
}

Stream* stream_of(hipStream_t handle) {
  if (is_forked()) return nullptr;
  const auto number = reinterpret_cast<uintptr_t>(handle);
  if (number < kPerThread) return default_stream(current_device());
  if (number == kPerThread) handle = own_streams.of(current_device());
  const std::lock_guard<std::mutex> lock(streams_mutex);
  Stream* const stream = reinterpret_cast<Stream*>(handle);
  return streams.count(stream) ? stream : nullptr;
}

hipError_t error_of(const Stream* stream) {
  if (stream) return stream->device()->error();
  return is_forked() ? hipErrorNotInitialized : hipErrorInvalidHandle;
}

MarkPtr enqueue(Stream* stream, Work work) {
  return stream->push(std::move(work), nullptr, earlier_work(stream));
}

MarkPtr enqueue_host(Stream* stream, std::function<void()> work) {
  return stream->push(nullptr, std::move(work), earlier_work(stream));
}

void wait_for_device(int index) {
  if (is_forked()) return;  // nobody does what the parent has queued
  std::vector<MarkPtr> tails;
  {
    const std::lock_guard<std::mutex> lock(streams_mutex);
    for (const auto* some : {&streams, &ending_streams})
      for (Stream* one : *some)
        if (one->device()->index() == index) tails.push_back(one->tail());
    const auto found = default_streams.find(index);
    if (found != default_streams.end()) tails.push_back(found->second->tail());
  }
  for (const MarkPtr& tail : tails)
    if (tail) tail->wait();
}

hipStream_t add_stream(unsigned flags, int priority) {
  Device* const owner = device(current_device());
  if (!owner) return nullptr;
  Stream* const made = new Stream(owner, flags, priority);
  const std::lock_guard<std::mutex> lock(streams_mutex);
  streams.insert(made);
  return reinterpret_cast<hipStream_t>(made);
}

hipError_t remove_stream(hipStream_t handle) {
  if (is_forked()) return hipErrorNotInitialized;
  Stream* const stream = reinterpret_cast<Stream*>(handle);
  const std::lock_guard<std::mutex> lock(streams_mutex);  // so that its thread cannot delete it yet
  if (!streams.erase(stream)) return hipErrorInvalidHandle;
  ending_streams.insert(stream);
  stream->end();
  return stream->device()->error();
}

}  // namespace pretend
