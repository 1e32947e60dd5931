// Modules of kernels: shared objects, loaded where they run.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <unistd.h>

#include <string>

#include "device/tasks.h"
#include "threads/launch.h"

namespace pretend {
namespace {

void* symbol(uint64_t module, const std::string& name) {
  return dlsym(reinterpret_cast<void*>(module), name.c_str());
}

// Holds the lock by which kernels of processes that share a physical device never overlap.
class Exclusive {
 public:
  explicit Exclusive(uint32_t device) {
    if (!device) return;
    char program[4096];
    const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length < 0) return;
    const std::string path =
        std::string(program, static_cast<size_t>(length)) + ".lock" + std::to_string(device - 1);
    file_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    while (file_ >= 0 && flock(file_, LOCK_EX) && errno == EINTR) {
    }
  }
  ~Exclusive() {
    if (file_ >= 0) close(file_);
  }
  Exclusive(const Exclusive&) = delete;
  Exclusive& operator=(const Exclusive&) = delete;

 private:
  int file_ = -1;
};

}  // namespace

void load_module(int file, Answer* answer) {
  const std::string path = "/proc/self/fd/" + std::to_string(file);
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    fprintf(stderr, "[pretend GPU] a module cannot be loaded: %s\n", dlerror());
    answer->status = ENOEXEC;
    close(file);
    return;
  }
  answer->value = reinterpret_cast<uint64_t>(library);
}

void unload_module(const Request& request, Answer*) {
  dlclose(reinterpret_cast<void*>(request.source));
}

void find_function(const Request& request, Answer* answer) {
  const std::string name = request.name;
  using Sizes = const size_t* (*)();
  void* const entry = symbol(request.source, "pretend_entry_" + name);
  const auto sizes =
      reinterpret_cast<Sizes>(symbol(request.source, "pretend_argument_sizes_" + name));
  if (!entry || !sizes) {
    answer->status = ENOENT;
    return;
  }
  answer->value = reinterpret_cast<uint64_t>(entry);
  for (const size_t* size = sizes(); *size; ++size) {
    if (answer->num_sizes == kMaxArguments) {
      answer->status = E2BIG;
      return;
    }
    answer->sizes[answer->num_sizes++] = *size;
  }
}

void launch(const Request& request, Answer* answer) {
  void* arguments[kMaxArguments];
  for (uint32_t i = 0; i < request.num_arguments; ++i)
    arguments[i] = const_cast<char*>(request.data) + request.offsets[i];
  Grid grid = {{request.grid[0], request.grid[1], request.grid[2]},
               {request.block[0], request.block[1], request.block[2]},
               request.nbytes};
  const Exclusive alone(request.exclusive);
  answer->status = run_grid(reinterpret_cast<KernelEntry>(request.source), grid, arguments);
}

}  // namespace pretend
