// Global variables of modules, as HIP calls them.
//
// Kernels use them where the loader has put them in the device's process. The host has other
// addresses for the same pages, which no memory of its own can have.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <mutex>

#include "runtime/interface/errors.h"
#include "runtime/interface/module.h"
#include "runtime/memory.h"
#include "runtime/streams.h"

namespace pretend {

hipError_t ask(Task task, const Module& module, const char* name, Answer* answer) {
  Request request = request_for(task);
  request.source = module.number;
  if (std::strlen(name) >= sizeof request.name) return hipErrorNotFound;
  std::strcpy(request.name, name);
  request.data_bytes = static_cast<uint32_t>(std::strlen(name) + 1);
  const hipError_t error = module.device->control().perform(request, answer);
  return error ? error : from_errno(answer->status);
}

namespace {

// Give the host addresses for a module's variables, while no kernel uses them.
hipError_t share(Module* module) {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  if (module->variables) return hipSuccess;
  wait_for_device(module->device->index());
  const int file = memfd_create("pretend-variables", MFD_CLOEXEC);
  if (file < 0) return hipErrorOutOfMemory;
  Request request = request_for(Task::kShare);
  request.source = module->number;
  Answer answer;
  hipError_t error = module->device->control().perform(request, &answer, file);
  if (!error) error = from_errno(answer.status);
  if (error) {
    close(file);
    return error;
  }
  const int before = current_device();
  set_current_device(module->device->index());
  void* address;
  error = import_file(&address, answer.sizes[0], file, Kind::kVariables);
  set_current_device(before);
  if (error) return error;
  module->variables = static_cast<char*>(address);
  module->variables_there = answer.value;
  module->variables_bytes = answer.sizes[0];
  return hipSuccess;
}

}  // namespace
}  // namespace pretend

HIP_API hipError_t hipModuleGetGlobal(hipDeviceptr_t* address, size_t* nbytes, hipModule_t handle,
                                      const char* name) {
  pretend::Module* const module = reinterpret_cast<pretend::Module*>(handle);
  pretend::Answer answer;
  if (const hipError_t error = ask(pretend::Task::kVariable, *module, name, &answer))
    return pretend::remember(error);
  if (const hipError_t error = pretend::share(module)) return pretend::remember(error);
  const uint64_t offset = answer.value - module->variables_there;
  if (offset >= module->variables_bytes) return pretend::remember(hipErrorNotFound);
  *address = module->variables + offset;
  if (nbytes) *nbytes = answer.sizes[0];
  return hipSuccess;
}
