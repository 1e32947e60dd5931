// Streams and host functions, as HIP calls them.
#include "runtime/streams.h"

#include "runtime/interface/errors.h"

using pretend::enqueue_host;
using pretend::MarkPtr;
using pretend::remember;
using pretend::Stream;
using pretend::stream_of;

namespace {

hipError_t check(const Stream* stream) { return remember(pretend::error_of(stream)); }

}  // namespace

HIP_API hipError_t hipStreamCreateWithPriority(hipStream_t* stream, unsigned flags, int priority) {
  *stream = pretend::add_stream(flags, priority);
  return remember(*stream ? pretend::error_of(pretend::current_device()) : hipErrorNotInitialized);
}
HIP_API hipError_t hipStreamCreateWithFlags(hipStream_t* stream, unsigned flags) {
  return hipStreamCreateWithPriority(stream, flags, 0);
}
HIP_API hipError_t hipStreamCreate(hipStream_t* stream) {
  return hipStreamCreateWithPriority(stream, 0, 0);
}
HIP_API hipError_t hipStreamDestroy(hipStream_t stream) {
  return remember(pretend::remove_stream(stream));
}
HIP_API hipError_t hipStreamGetFlags(hipStream_t handle, unsigned* flags) {
  Stream* const stream = stream_of(handle);
  if (stream) *flags = stream->flags();
  return check(stream);
}
HIP_API hipError_t hipStreamGetPriority(hipStream_t handle, int* priority) {
  Stream* const stream = stream_of(handle);
  if (stream) *priority = stream->priority();
  return check(stream);
}
HIP_API hipError_t hipStreamSynchronize(hipStream_t handle) {
  Stream* const stream = stream_of(handle);
  if (const hipError_t error = check(stream)) return error;
  // An empty piece of work: on the default stream it waits for the blocking streams, too.
  enqueue_host(stream, [] {})->wait();
  return check(stream);
}
HIP_API hipError_t hipStreamQuery(hipStream_t handle) {
  Stream* const stream = stream_of(handle);
  if (const hipError_t error = check(stream)) return error;
  const MarkPtr tail = stream->tail();
  return !tail || tail->is_set() ? check(stream) : hipErrorNotReady;
}
HIP_API hipError_t hipStreamIsCapturing(hipStream_t, int* state) {
  *state = hipStreamCaptureStatusNone;
  return hipSuccess;
}
HIP_API int hipGetStreamDeviceId(hipStream_t handle) {
  Stream* const stream = stream_of(handle);
  return stream ? stream->device()->index() : -1;
}
HIP_API hipError_t hipLaunchHostFunc(hipStream_t handle, hipHostFn_t function, void* data) {
  Stream* const stream = stream_of(handle);
  if (const hipError_t error = check(stream)) return error;
  enqueue_host(stream, [=] { function(data); });
  return hipSuccess;
}
HIP_API hipError_t hipStreamAddCallback(hipStream_t handle, hipStreamCallback_t function,
                                        void* data, unsigned) {
  Stream* const stream = stream_of(handle);
  if (const hipError_t error = check(stream)) return error;
  enqueue_host(stream, [=] { function(handle, stream->device()->error(), data); });
  return hipSuccess;
}
