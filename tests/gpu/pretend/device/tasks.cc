#include "device/tasks.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

namespace pretend {
namespace {

template <typename T>
T* pointer(uint64_t address) {
  return reinterpret_cast<T*>(address);
}

void fill(const Request& request) {
  memset(pointer<void>(request.address), static_cast<int>(request.value), request.nbytes);
}

}  // namespace

void map_file(const Request& request, int file, Answer* answer) {
  void* const wanted = pointer<void>(request.address);
  void* const at = mmap(wanted, request.nbytes, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_FIXED_NOREPLACE, file, 0);
  if (at == MAP_FAILED || at != wanted) {
    answer->status = at == MAP_FAILED ? errno : EEXIST;
    return;
  }
  if (request.value) memset(at, kRubbish, request.nbytes);
}

void perform(const Request& request, int file, Answer* answer) {
  switch (request.task) {
    case Task::kMap:
      map_file(request, file, answer);
      break;
    case Task::kUnmap:
      if (munmap(pointer<void>(request.address), request.nbytes)) answer->status = errno;
      break;
    case Task::kCopy:
      memmove(pointer<void>(request.address), pointer<void>(request.source), request.nbytes);
      break;
    case Task::kFill:
      fill(request);
      break;
    case Task::kLoad:
      load_module(file, answer);
      break;
    case Task::kUnload:
      unload_module(request, answer);
      break;
    case Task::kFunction:
      find_function(request, answer);
      break;
    case Task::kShare:
      share_variables(request, file, answer);
      break;
    case Task::kVariable:
      find_variable(request, answer);
      break;
    case Task::kLaunch:
      launch(request, answer);
      break;
    case Task::kConnect:
      answer->status = EINVAL;
      break;  // not for this function
  }
  // A module's file stays open: the loader knows a library by its file.
  if (file >= 0 && request.task != Task::kLoad) close(file);
}

}  // namespace pretend
