// Modules of kernels: shared objects, loaded where they run.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <string>

#include "device/exclusive.h"
#include "device/tasks.h"
#include "threads/launch.h"

namespace pretend {
namespace {

void* symbol(uint64_t module, const std::string& name) {
  return dlsym(reinterpret_cast<void*>(module), name.c_str());
}

// The loader knows a library by the name of its file, a number that is used again once the file is
// closed: so it is closed when the library is gone.
std::mutex files_mutex;
auto& files = *new std::map<void*, int>;

std::string path_of(int file) { return "/proc/self/fd/" + std::to_string(file); }

}  // namespace

void load_module(int file, Answer* answer) {
  void* const library = dlopen(path_of(file).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    fprintf(stderr, "[pretend GPU] a module cannot be loaded: %s\n", dlerror());
    answer->status = ENOEXEC;
    close(file);
    return;
  }
  answer->value = reinterpret_cast<uint64_t>(library);
  const std::lock_guard<std::mutex> lock(files_mutex);
  files[library] = file;
}

void unload_module(const Request& request, Answer*) {
  void* const library = reinterpret_cast<void*>(request.source);
  const std::lock_guard<std::mutex> lock(files_mutex);
  const auto found = files.find(library);
  if (found == files.end()) return;
  dlclose(library);
  if (void* const stays = dlopen(path_of(found->second).c_str(), RTLD_NOLOAD | RTLD_NOW))
    dlclose(stays);  // its thread-local variables are in use: the name has to stay, too
  else
    close(found->second);
  files.erase(found);
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
