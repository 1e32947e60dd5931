#include "nccl/process.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace pretend {

uint64_t start_of_process(pid_t pid) {
  char path[64], text[1024];
  std::snprintf(path, sizeof path, "/proc/%d/stat", pid);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  const ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  if (n <= 0) return 0;
  text[n] = 0;
  const char* at = std::strrchr(text, ')');  // a program's name may hold spaces and brackets
  if (!at || at[1] != ' ' || at[2] == 'Z' || at[2] == 'X') return 0;
  ++at;
  for (int field = 3; field <= 22; ++field) {  // the start is field 22
    at = std::strchr(at, ' ');
    if (!at) return 0;
    ++at;
  }
  return std::strtoull(at, nullptr, 10);
}

Process Process::self() { return {getpid(), start_of_process(getpid())}; }

}  // namespace pretend
