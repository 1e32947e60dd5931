#include "device/exclusive.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include <mutex>
#include <string>

namespace pretend {
namespace {

std::mutex mutex;
int running = 0;  // kernels of this process
int file = -1;    // locked while there are any

// PRETEND_EXCLUSIVE is the file, or 1: one for the processes of a job. Those have PRETEND_JOB
// (run.py sets it) in common, or the session.
std::string path_for(uint32_t device) {
  const char* given = getenv("PRETEND_EXCLUSIVE");
  const std::string end = ".device" + std::to_string(device - 1);
  if (given && strcmp(given, "1")) return given + end;
  const char* job = getenv("PRETEND_JOB");
  const char* folder = getenv("TMPDIR");
  const std::string name = job && *job ? job : "session" + std::to_string(getsid(0));
  return std::string(folder && *folder ? folder : "/tmp") + "/pretended-gpu-" +
         std::to_string(getuid()) + "-" + name + end;
}

void lock(const std::string& path) {
  file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) {
    fprintf(stderr, "[pretend GPU] PRETEND_EXCLUSIVE: %s: %s\n", path.c_str(), strerror(errno));
    abort();
  }
  while (flock(file, LOCK_EX) && errno == EINTR) {
  }
}

}  // namespace

Exclusive::Exclusive(uint32_t device) : device_(device) {
  if (!device_) return;
  const std::lock_guard<std::mutex> guard(mutex);
  if (!running++) lock(path_for(device_));
}

Exclusive::~Exclusive() {
  if (!device_) return;
  const std::lock_guard<std::mutex> guard(mutex);
  if (--running) return;
  close(file);
  file = -1;
}

}  // namespace pretend
