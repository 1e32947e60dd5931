// The exported functions that ask.
#include "nccl/communicator.h"
#include "nccl/interface/errors.h"
#include "nccl/interface/nccl.h"

namespace pretend {
namespace {

ncclResult_t ask(const char* function, ncclComm_t handle, int* out, int (*value)(Communicator&)) {
  const CommunicatorPtr c = find(handle);
  if (c && c->ready && out) {
    *out = value(*c);
    return ncclSuccess;
  }
  return complain(ncclInvalidArgument,
                  text("%s: no communicator, or one that is not ready, or no place", function));
}

}  // namespace
}  // namespace pretend

using pretend::ask;
using pretend::Communicator;

NCCL_API ncclResult_t ncclGetVersion(int* version) {
  if (!version) return pretend::complain(ncclInvalidArgument, "ncclGetVersion: null");
  *version = pretend::kNcclVersion;
  return ncclSuccess;
}

NCCL_API const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error";
    case ncclSystemError:
      return "unhandled system error";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
  }
  return "unknown result code";
}

NCCL_API const char* ncclGetLastError(ncclComm_t) { return pretend::last_message(); }

NCCL_API ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  return ask(__func__, comm, count, [](Communicator& c) { return c.ranks; });
}

NCCL_API ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  return ask(__func__, comm, device, [](Communicator& c) { return c.device; });
}

NCCL_API ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  return ask(__func__, comm, rank, [](Communicator& c) { return c.rank; });
}

NCCL_API ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  const auto c = pretend::find(comm);
  if (!c || !error)
    return pretend::complain(ncclInvalidArgument, "ncclCommGetAsyncError: no communicator");
  // In this order: a job sets its error before it ends.
  const bool in_progress = c->in_progress();
  const ncclResult_t now = c->error();
  *error = now == ncclSuccess && in_progress ? ncclInProgress : now;
  return ncclSuccess;
}
