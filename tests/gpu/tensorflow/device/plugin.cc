// A GPU for TensorFlow's build without GPUs: a plug-in (PluggableDevice) over HIP.
//
// TensorFlow then has devices "GPU:0" and so on, whose memory, streams and events are HIP's: here
// those of tests/gpu/pretend. Its kernels are those that TensorFlow has for any device, and updates
// of variables (updates.h); what has none runs on the CPU, with copies. The platform is called as
// that of TensorFlow's build for AMD, since its streams are HIP's.

#include "memory.h"
#include "streams.h"
#include "updates.h"

namespace device {
namespace {

void count_devices(const SP_Platform*, int* count, TF_Status* status) {
  tell(status, hipGetDeviceCount(count), "the number of devices");
}

void create_device(const SP_Platform*, SE_CreateDeviceParams* params, TF_Status* status) {
  SP_Device* const device = params->device;
  device->struct_size = SP_DEVICE_STRUCT_SIZE;
  device->ordinal = params->ordinal;
  device->hardware_name = "any that HIP has";
  device->device_vendor = "";
  device->pci_bus_id = "";
  TF_SetStatus(status, TF_OK, "");
}

void destroy_device(const SP_Platform*, SP_Device*) {}

int32_t numa_node(const SP_Device*) { return -1; }
int64_t bandwidth(const SP_Device*) { return -1; }
double gflops(const SP_Device*) { return -1; }

void create_device_functions(const SP_Platform*, SE_CreateDeviceFnsParams* params,
                             TF_Status* status) {
  *params->device_fns = {SP_DEVICE_FNS_STRUCT_SIZE, nullptr, numa_node, bandwidth, gflops};
  TF_SetStatus(status, TF_OK, "");
}

void destroy_device_functions(const SP_Platform*, SP_DeviceFns*) {}

void create_executor(const SP_Platform*, SE_CreateStreamExecutorParams* params, TF_Status* status) {
  *params->stream_executor = {};
  params->stream_executor->struct_size = SP_STREAMEXECUTOR_STRUCT_SIZE;
  add_memory(params->stream_executor);
  add_streams(params->stream_executor);
  TF_SetStatus(status, TF_OK, "");
}

void destroy_executor(const SP_Platform*, SP_StreamExecutor*) {}

uint64_t no_time(SP_Timer) { return 0; }

void create_timer_functions(const SP_Platform*, SP_TimerFns* functions, TF_Status* status) {
  *functions = {SP_TIMER_FNS_STRUCT_SIZE, nullptr, no_time};
  TF_SetStatus(status, TF_OK, "");
}

void destroy_timer_functions(const SP_Platform*, SP_TimerFns*) {}
void destroy_platform(SP_Platform*) {}
void destroy_platform_functions(SP_PlatformFns*) {}

}  // namespace
}  // namespace device

// TensorFlow calls it when the library is loaded.
extern "C" void SE_InitPlugin(SE_PlatformRegistrationParams* params, TF_Status* status) {
  params->platform->struct_size = SP_PLATFORM_STRUCT_SIZE;
  params->platform->name = "ROCM";
  params->platform->type = "GPU";
  params->platform->use_bfc_allocator = 1;
  params->platform->force_memory_growth = 1;
  SP_PlatformFns* const functions = params->platform_fns;
  functions->struct_size = SP_PLATFORM_FNS_STRUCT_SIZE;
  functions->get_device_count = device::count_devices;
  functions->create_device = device::create_device;
  functions->destroy_device = device::destroy_device;
  functions->create_device_fns = device::create_device_functions;
  functions->destroy_device_fns = device::destroy_device_functions;
  functions->create_stream_executor = device::create_executor;
  functions->destroy_stream_executor = device::destroy_executor;
  functions->create_timer_fns = device::create_timer_functions;
  functions->destroy_timer_fns = device::destroy_timer_functions;
  params->destroy_platform = device::destroy_platform;
  params->destroy_platform_fns = device::destroy_platform_functions;
  TF_SetStatus(status, TF_OK, "");
}

// The same for kernels; those of updates.h are registered by the library's initialization.
extern "C" void TF_InitKernel() {}
