// The process in which a device's work is done: pretend-device SOCKET, started by the runtime.
//
// Each user process has one for each device that it uses. Memory of the device is mapped here and
// nowhere else, so that the host cannot touch it. The process ends with the one that started it.
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <memory>
#include <thread>

#include "device/messages.h"
#include "device/tasks.h"
#include "threads/launch.h"

namespace {

using pretend::Answer;
using pretend::Request;
using pretend::Task;

void serve(int socket) {
  const auto request = std::make_unique<Request>();
  for (;;) {
    int file;
    if (!pretend::receive_message(socket, request.get(), sizeof *request, &file)) break;
    Answer answer = {};
    if (request->task == Task::kConnect)
      std::thread(serve, file).detach();
    else
      pretend::perform(*request, file, &answer);
    if (!pretend::send_message(socket, &answer, sizeof answer)) break;
  }
  close(socket);
}

// End with the process that started this one, even if a fork of it keeps the sockets open.
void watch_parent() {
  const int parent = static_cast<int>(syscall(SYS_pidfd_open, getppid(), 0));
  if (parent < 0) _exit(0);  // it has ended already
  pollfd one = {parent, POLLIN, 0};
  while (poll(&one, 1, -1) < 0 && errno == EINTR) {
  }
  _exit(0);
}

}  // namespace

int main(int count, char** words) {
  if (count != 2) return EINVAL;
  // Not as the thread of the user happened to have it: faults have to be reported, and their core
  // files would be of a process that the user has never started.
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const rlimit no_file = {0, 0};
  setrlimit(RLIMIT_CORE, &no_file);
  std::thread(watch_parent).detach();
  // Signals to all processes of a job are for the user's one, with which this one ends.
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2})
    signal(number, SIG_IGN);
  pretend::report_faults();
  serve(atoi(words[1]));
  _exit(0);  // the threads of other sockets may be in a kernel
}
