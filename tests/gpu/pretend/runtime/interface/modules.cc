// Modules of kernels and their launches, as HIP calls them.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "runtime/interface/errors.h"
#include "runtime/interface/module.h"
#include "runtime/memory.h"
#include "runtime/settings.h"
#include "runtime/streams.h"

namespace {

using pretend::Answer;
using pretend::Connection;
using pretend::Device;
using pretend::Module;
using pretend::remember;
using pretend::Request;
using pretend::Task;

constexpr unsigned kMaxThreads = 1024;
constexpr unsigned kMaxRows = 65536;  // of a grid, in y and z
constexpr unsigned kMaxShared = 64 << 10;

struct Function {
  Device* device;
  uint64_t entry;
  std::string name;
  std::vector<size_t> sizes;  // of the arguments
};

// The image that the run-time compiler makes (compiler/): these bytes, a length, a shared object.
constexpr char kImageMagic[] = "PRETEND:";
constexpr size_t kImageMagicBytes = sizeof kImageMagic - 1;

int file_of(const void* image) {
  const char* const bytes = static_cast<const char*>(image);
  if (std::memcmp(bytes, kImageMagic, kImageMagicBytes)) return -1;
  uint64_t length;
  std::memcpy(&length, bytes + kImageMagicBytes, sizeof length);
  const char* const content = bytes + kImageMagicBytes + sizeof length;
  const int file = memfd_create("pretend-kernels", MFD_CLOEXEC);
  for (uint64_t done = 0; file >= 0 && done < length;) {
    const ssize_t more = write(file, content + done, length - done);
    if (more <= 0) {
      close(file);
      return -1;
    }
    done += static_cast<uint64_t>(more);
  }
  return file;
}

// Copy the arguments, which are read when the call is made, as on a GPU.
bool pack(const Function& function, void** arguments, Request* request) {
  uint32_t at = 0;
  for (size_t i = 0; i < function.sizes.size(); ++i) {
    const size_t size = function.sizes[i];
    if (at + size > sizeof request->data) return false;
    request->offsets[i] = at;
    std::memcpy(request->data + at, arguments[i], size);
    at += static_cast<uint32_t>((size + 15) / 16 * 16);
  }
  request->num_arguments = static_cast<uint32_t>(function.sizes.size());
  request->data_bytes = at;
  return true;
}

}  // namespace

HIP_API hipError_t hipModuleLoadData(hipModule_t* out, const void* image) {
  Device* const device = pretend::device(pretend::current_device());
  if (!device) return remember(hipErrorNotInitialized);
  const int file = file_of(image);
  if (file < 0) return remember(hipErrorInvalidImage);
  Answer answer;
  const hipError_t error =
      device->control().perform(pretend::request_for(Task::kLoad), &answer, file);
  close(file);
  if (error) return remember(error);
  if (answer.status) return remember(pretend::from_errno(answer.status));
  *out = reinterpret_cast<hipModule_t>(new Module{device, answer.value, nullptr, 0, 0});
  return hipSuccess;
}
HIP_API hipError_t hipModuleLoad(hipModule_t* out, const char* path) {
  FILE* const file = std::fopen(path, "rb");
  if (!file) return remember(hipErrorFileNotFound);
  std::string all;
  char buffer[65536];
  for (size_t n; (n = std::fread(buffer, 1, sizeof buffer, file));) all.append(buffer, n);
  std::fclose(file);
  all.append(16, '\0');  // so that a file that is too short is not read beyond its end
  return hipModuleLoadData(out, all.data());
}
HIP_API hipError_t hipModuleUnload(hipModule_t handle) {
  Module* const module = reinterpret_cast<Module*>(handle);
  pretend::wait_for_device(module->device->index());
  Request request = pretend::request_for(Task::kUnload);
  request.source = module->number;
  if (module->variables) pretend::release(module->variables, false);
  module->device->control().perform(request);  // nothing is left to unload on a lost device
  delete module;
  return hipSuccess;
}
HIP_API hipError_t hipModuleGetFunction(hipFunction_t* out, hipModule_t handle, const char* name) {
  const Module& module = *reinterpret_cast<Module*>(handle);
  Answer answer;
  if (const hipError_t error = pretend::ask(Task::kFunction, module, name, &answer))
    return remember(error);
  auto* const function = new Function{module.device, answer.value, name, {}};
  function->sizes.assign(answer.sizes, answer.sizes + answer.num_sizes);
  *out = reinterpret_cast<hipFunction_t>(function);
  return hipSuccess;
}
HIP_API hipError_t hipModuleLaunchKernel(hipFunction_t handle, unsigned gx, unsigned gy,
                                         unsigned gz, unsigned bx, unsigned by, unsigned bz,
                                         unsigned shared, hipStream_t where, void** arguments,
                                         void** extra) {
  const Function& function = *reinterpret_cast<Function*>(handle);
  if (extra) return pretend::missing("hipModuleLaunchKernel", "packed arguments");
  const bool is_possible = gx && gy && gz && bx && by && bz && gy <= kMaxRows && gz <= kMaxRows &&
                           static_cast<uint64_t>(bx) * by * bz <= kMaxThreads &&
                           shared <= kMaxShared;
  if (!is_possible) return remember(hipErrorInvalidValue);
  pretend::Stream* const stream = pretend::stream_of(where);
  if (const hipError_t error = pretend::error_of(stream)) return remember(error);
  if (stream->device() != function.device) return remember(hipErrorInvalidHandle);
  const auto request = std::make_shared<Request>(pretend::request_for(Task::kLaunch));
  request->source = function.entry;
  request->exclusive = function.device->exclusive();
  request->nbytes = shared;
  const unsigned grid[] = {gx, gy, gz}, block[] = {bx, by, bz};
  std::memcpy(request->grid, grid, sizeof grid);
  std::memcpy(request->block, block, sizeof block);
  if (!pack(function, arguments, request.get())) return remember(hipErrorInvalidValue);
  pretend::trace("launch %s, %u x %u x %u blocks of %u x %u x %u", function.name.c_str(), gx, gy,
                 gz, bx, by, bz);
  Device* const device = function.device;
  pretend::enqueue(stream, [request, device](Connection& connection) {
    Answer answer;
    const hipError_t error = connection.perform(*request, &answer);
    if (!error && answer.status) device->fail(hipErrorLaunchFailure);
  });
  return remember(stream->device()->error());
}
HIP_API hipError_t hipFuncGetAttribute(int* value, int name, hipFunction_t) {
  *value = name == HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? static_cast<int>(kMaxThreads) : 0;
  return hipSuccess;
}

// ------------------------------------------------ AMD's machine code in the wheel (cub, thrust)

namespace {
auto& compiled = *new std::map<const void*, std::string>;
}
HIP_API void** __hipRegisterFatBinary(const void*) {
  static void* none;
  return &none;
}
HIP_API void __hipUnregisterFatBinary(void**) {}
HIP_API void __hipRegisterFunction(void**, const void* host, char*, const char* name, unsigned,
                                   void*, void*, void*, void*, int*) {
  compiled[host] = name;
}
HIP_API hipError_t __hipPushCallConfiguration(dim3, dim3, size_t, hipStream_t) {
  return hipSuccess;
}
HIP_API hipError_t __hipPopCallConfiguration(dim3* grid, dim3* block, size_t* shared,
                                             hipStream_t* stream) {
  *grid = *block = {1, 1, 1};
  *shared = 0;
  *stream = nullptr;
  return hipSuccess;
}
HIP_API hipError_t hipLaunchKernel(const void* host, dim3, dim3, void**, size_t, hipStream_t) {
  return pretend::missing("hipLaunchKernel", compiled[host].c_str());
}
