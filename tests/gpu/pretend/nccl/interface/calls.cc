// The exported functions that put work on a stream.
#include "nccl/interface/checks.h"
#include "nccl/interface/nccl.h"
#include "nccl/work/groups.h"

namespace pretend {
namespace {

ncclResult_t begin(const char* function, ncclComm_t handle, hipStream_t stream,
                   const Collective& collective) {
  CommunicatorPtr communicator;
  ncclResult_t result = usable(function, handle, &communicator);
  if (result == ncclSuccess) result = check(function, *communicator, collective);
  if (result != ncclSuccess) return note(result);
  if (collective.count == 0) return ncclSuccess;  // NCCL discards empty collectives, too
  return call(communicator, stream, collective);
}

ncclResult_t begin(const char* function, ncclComm_t handle, hipStream_t stream,
                   const Message& message) {
  CommunicatorPtr communicator;
  ncclResult_t result = usable(function, handle, &communicator);
  if (result == ncclSuccess) result = check(function, *communicator, message);
  if (result != ncclSuccess) return note(result);
  return call(communicator, stream, message);
}

const char* in(const void* p) { return static_cast<const char*>(p); }
char* out(void* p) { return static_cast<char*>(p); }

}  // namespace
}  // namespace pretend

using pretend::begin;
using pretend::in;
using pretend::Kind;
using pretend::out;

NCCL_API ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count,
                                    ncclDataType_t dtype, ncclRedOp_t op, ncclComm_t comm,
                                    hipStream_t stream) {
  return begin(__func__, comm, stream,
               {Kind::kAllReduce, in(send), out(receive), count, dtype, op});
}

NCCL_API ncclResult_t ncclReduce(const void* send, void* receive, size_t count,
                                 ncclDataType_t dtype, ncclRedOp_t op, int root, ncclComm_t comm,
                                 hipStream_t stream) {
  return begin(__func__, comm, stream,
               {Kind::kReduce, in(send), out(receive), count, dtype, op, root});
}

NCCL_API ncclResult_t ncclBroadcast(const void* send, void* receive, size_t count,
                                    ncclDataType_t dtype, int root, ncclComm_t comm,
                                    hipStream_t stream) {
  return begin(__func__, comm, stream,
               {Kind::kBroadcast, in(send), out(receive), count, dtype, ncclSum, root});
}

NCCL_API ncclResult_t ncclBcast(void* memory, size_t count, ncclDataType_t dtype, int root,
                                ncclComm_t comm, hipStream_t stream) {
  return begin(__func__, comm, stream,
               {Kind::kBroadcast, in(memory), out(memory), count, dtype, ncclSum, root});
}

NCCL_API ncclResult_t ncclAllGather(const void* send, void* receive, size_t count,
                                    ncclDataType_t dtype, ncclComm_t comm, hipStream_t stream) {
  return begin(__func__, comm, stream, {Kind::kAllGather, in(send), out(receive), count, dtype});
}

NCCL_API ncclResult_t ncclReduceScatter(const void* send, void* receive, size_t count,
                                        ncclDataType_t dtype, ncclRedOp_t op, ncclComm_t comm,
                                        hipStream_t stream) {
  return begin(__func__, comm, stream,
               {Kind::kReduceScatter, in(send), out(receive), count, dtype, op});
}

NCCL_API ncclResult_t ncclSend(const void* memory, size_t count, ncclDataType_t dtype, int peer,
                               ncclComm_t comm, hipStream_t stream) {
  return begin(__func__, comm, stream,
               pretend::Message{true, peer, const_cast<char*>(in(memory)), count, dtype});
}

NCCL_API ncclResult_t ncclRecv(void* memory, size_t count, ncclDataType_t dtype, int peer,
                               ncclComm_t comm, hipStream_t stream) {
  return begin(__func__, comm, stream, pretend::Message{false, peer, out(memory), count, dtype});
}

NCCL_API ncclResult_t ncclGroupStart() { return pretend::start_group(); }

NCCL_API ncclResult_t ncclGroupEnd() { return pretend::end_group(); }
