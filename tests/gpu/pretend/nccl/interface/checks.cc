#include "nccl/interface/checks.h"

#include <cstdint>

#include "nccl/interface/errors.h"
#include "nccl/runtime.h"
#include "nccl/work/reductions.h"

namespace pretend {
namespace {

// A range of bytes that a call reads or writes.
struct Range {
  const char* name;
  const char* at;
  size_t nbytes;
};

bool overlap(const Range& a, const Range& b) {
  return a.nbytes && b.nbytes && a.at < b.at + b.nbytes && b.at < a.at + a.nbytes;
}

ncclResult_t check_range(const char* function, const Communicator& c, const Range& range) {
  if (range.nbytes == 0) return ncclSuccess;
  const void* const at = range.at;
  const Place place = place_of(at);
  if (place.device < 0)
    return complain(ncclInvalidArgument,
                    text("%s: %s %p is not memory of a device", function, range.name, at));
  if (place.device != c.device)
    return complain(ncclInvalidArgument,
                    text("%s: %s %p is memory of device %d, the communicator's device is %d",
                         function, range.name, at, place.device, c.device));
  if (place.left < range.nbytes)
    return complain(ncclInvalidArgument,
                    text("%s: %s %p has %zu bytes to the end of its allocation, the call needs %zu",
                         function, range.name, at, place.left, range.nbytes));
  return ncclSuccess;
}

ncclResult_t check_numbers(const char* function, const Communicator& c, size_t count,
                           ncclDataType_t dtype, int other) {
  if (static_cast<unsigned>(dtype) >= ncclNumTypes)
    return complain(ncclInvalidArgument, text("%s: %d is no data type", function, dtype));
  if (other < 0 || other >= c.ranks)
    return complain(ncclInvalidArgument,
                    text("%s: rank %d is not in 0 ... %d", function, other, c.ranks - 1));
  if (count > SIZE_MAX / 8 / kMostRanks)
    return complain(ncclInvalidArgument, text("%s: count %zu is too large", function, count));
  return ncclSuccess;
}

// How many of the ranks' parts each of the two buffers holds.
size_t parts_sent(const Communicator& c, const Collective& call) {
  if (call.kind == Kind::kBroadcast && c.rank != call.root) return 0;
  return call.kind == Kind::kReduceScatter ? c.ranks : 1;
}
size_t parts_received(const Communicator& c, const Collective& call) {
  if (call.kind == Kind::kReduce && c.rank != call.root) return 0;
  return call.kind == Kind::kAllGather ? c.ranks : 1;
}

bool is_in_place(const Communicator& c, const Collective& call, size_t part_bytes) {
  if (call.kind == Kind::kAllGather) return call.send == call.receive + c.rank * part_bytes;
  if (call.kind == Kind::kReduceScatter) return call.receive == call.send + c.rank * part_bytes;
  return call.send == call.receive;
}

}  // namespace

ncclResult_t usable(const char* function, ncclComm_t handle, CommunicatorPtr* communicator) {
  *communicator = find(handle);
  Communicator* const c = communicator->get();
  if (!c)
    return complain(ncclInvalidArgument,
                    text("%s: %p is no communicator, or was destroyed or aborted", function,
                         static_cast<void*>(handle)));
  if (c->in_progress())
    return complain(ncclInvalidArgument,
                    text("%s: attempt to use a communicator before its previous call has ended: "
                         "ask ncclCommGetAsyncError until it gives no ncclInProgress",
                         function));
  const ncclResult_t error = c->error();
  if (error != ncclSuccess)
    return complain(
        error, text("%s: the communicator has failed before: %s", function, c->message().c_str()));
  if (c->finalized || !c->ready)
    return complain(ncclInvalidUsage, text("%s: the communicator %s", function,
                                           c->ready ? "was finalized" : "has no ranks yet"));
  return ncclSuccess;
}

ncclResult_t check(const char* function, const Communicator& c, const Collective& call) {
  ncclResult_t result = check_numbers(function, c, call.count, call.dtype, call.root);
  if (result != ncclSuccess) return result;
  if (static_cast<unsigned>(call.op) >= ncclNumOps)
    return complain(ncclInvalidArgument, text("%s: %d is no reduction", function, call.op));
  const size_t part = call.count * size_of(call.dtype);
  const Range sent{"the send buffer", call.send, parts_sent(c, call) * part};
  const Range received{"the receive buffer", call.receive, parts_received(c, call) * part};
  result = check_range(function, c, sent);
  if (result == ncclSuccess) result = check_range(function, c, received);
  if (result == ncclSuccess && overlap(sent, received) && !is_in_place(c, call, part))
    result =
        complain(ncclInvalidArgument,
                 text("%s: the buffers overlap and are not in place as NCCL defines it", function));
  return result;
}

ncclResult_t check(const char* function, const Communicator& c, const Message& call) {
  const ncclResult_t result = check_numbers(function, c, call.count, call.dtype, call.peer);
  if (result != ncclSuccess) return result;
  return check_range(function, c, {"the buffer", call.memory, call.count * size_of(call.dtype)});
}

}  // namespace pretend
