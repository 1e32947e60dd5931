#include "runtime/device.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <string>

#include "device/messages.h"
#include "runtime/memory.h"
#include "runtime/settings.h"

extern char** environ;

namespace pretend {
namespace {

constexpr int kMaxDevices = 64;
constexpr int kSocket = 3;  // in the device's process

thread_local int current = 0;
// Never destroyed: threads of streams may use them while the process ends.
auto& devices = *new std::array<std::unique_ptr<Device>, kMaxDevices>;
std::atomic<pid_t> owner = 0;  // the process that has started devices

constexpr int kPatienceMs = 5000;  // for the end of a process that does not answer

// How a process ended: its signal, 0 if that cannot be known. One that does not end is killed.
int signal_of(pid_t process) {
  int status = 0;
  pid_t found = 0;
  for (int waited = 0; waited < kPatienceMs && !found; ++waited) {
    found = waitpid(process, &status, WNOHANG);
    if (!found) usleep(1000);
  }
  if (!found) {
    kill(process, SIGKILL);
    found = waitpid(process, &status, 0);
  }
  return found == process && WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

std::string program() {
  Dl_info info;
  dladdr(reinterpret_cast<void*>(&program), &info);
  const std::string library = info.dli_fname;
  return library.substr(0, library.rfind('/') + 1) + "pretend-device";
}

pid_t start(int socket) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, socket, kSocket);
  posix_spawn_file_actions_addclosefrom_np(&actions, kSocket + 1);
  const std::string path = program(), number = std::to_string(kSocket);
  char* words[] = {const_cast<char*>(path.c_str()), const_cast<char*>(number.c_str()), nullptr};
  pid_t process = -1;
  const int error = posix_spawn(&process, path.c_str(), &actions, nullptr, words, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error) std::fprintf(stderr, "[pretend GPU] %s: %s\n", path.c_str(), strerror(error));
  return error ? -1 : process;
}

// A socket above the numbers that the device's process uses, so that dup2 cannot hit it.
bool make_sockets(int ends[2]) {
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends)) return false;
  const int higher = fcntl(ends[1], F_DUPFD_CLOEXEC, 100);
  close(ends[1]);
  ends[1] = higher;
  return higher >= 0;
}

}  // namespace

Connection::~Connection() { close(socket_); }

hipError_t Connection::perform(const Request& request, Answer* answer, int file) {
  if (const hipError_t error = device_->error()) return error;
  Answer unwanted;
  if (!answer) answer = &unwanted;
  const std::lock_guard<std::mutex> lock(mutex_);
  const size_t nbytes = offsetof(Request, data) + request.data_bytes;
  int none;
  if (send_message(socket_, &request, nbytes, file) &&
      receive_message(socket_, answer, sizeof *answer, &none) == sizeof *answer)
    return hipSuccess;
  device_->lose();
  return device_->error();
}

Device::Device(int index) : index_(index) {
  int ends[2];
  if (!make_sockets(ends)) {
    error_ = hipErrorNotInitialized;
    return;
  }
  process_ = start(ends[1]);
  close(ends[1]);
  control_ = std::make_unique<Connection>(this, ends[0]);
  if (process_ < 0) error_ = hipErrorNotInitialized;
}

std::unique_ptr<Connection> Device::connect() {
  int ends[2];
  if (!make_sockets(ends)) {
    fail(hipErrorOutOfMemory);
    return nullptr;
  }
  const hipError_t error = control_->perform(request_for(Task::kConnect), nullptr, ends[1]);
  close(ends[1]);
  auto made = std::make_unique<Connection>(this, ends[0]);
  return error ? nullptr : std::move(made);
}

void Device::lose() {
  const std::lock_guard<std::mutex> lock(lost_mutex_);
  if (has_ended_) return;
  has_ended_ = true;
  const int number = signal_of(process_);
  const bool is_address = number == SIGSEGV || number == SIGBUS;
  fail(is_address ? hipErrorIllegalAddress : hipErrorLaunchFailure);
  trace("device %d is lost: signal %d", index_, number);
}

void Device::fail(hipError_t error) {
  hipError_t none = hipSuccess;
  error_.compare_exchange_strong(none, error);
}

void Device::count_work() {
  if (settings().lost_device != index_ || ++done_ <= settings().lost_after) return;
  const std::lock_guard<std::mutex> lock(lost_mutex_);
  if (!has_ended_) kill(process_, SIGKILL);
}

uint32_t Device::exclusive() const {
  if (!settings().is_exclusive || settings().is_separate) return 0;
  return 1 + static_cast<uint32_t>(settings().devices[static_cast<size_t>(index_)]);
}

bool is_forked() {
  const pid_t process = owner;
  return process && process != getpid();
}

std::recursive_mutex& state_mutex() {
  static std::recursive_mutex mutex;
  return mutex;
}

Device* device(int index) {
  if (index < 0 || index >= static_cast<int>(settings().devices.size()) || index >= kMaxDevices)
    return nullptr;
  if (is_forked()) return nullptr;  // the lock may be one of the parent's threads'
  const std::lock_guard<std::recursive_mutex> lock(state_mutex());
  owner = getpid();
  auto& found = devices[static_cast<size_t>(index)];
  if (!found) {
    found = std::make_unique<Device>(index);
    map_shared_memory(found.get());
  }
  return found.get();
}

Device* started_device(int index) {
  if (is_forked()) return nullptr;
  const std::lock_guard<std::recursive_mutex> lock(state_mutex());
  return index < 0 || index >= kMaxDevices ? nullptr : devices[static_cast<size_t>(index)].get();
}

hipError_t error_of(int index) {
  if (is_forked()) return hipErrorNotInitialized;
  const Device* const one = started_device(index);
  return one ? one->error() : hipSuccess;
}

int current_device() { return current; }
void set_current_device(int index) { current = index; }

Request request_for(Task task) {
  Request request = {};
  request.task = task;
  return request;
}

}  // namespace pretend
