// The exported functions that make and end communicators.
#include <cstdlib>
#include <thread>
#include <vector>

#include "nccl/interface/checks.h"
#include "nccl/interface/errors.h"
#include "nccl/interface/nccl.h"
#include "nccl/membership.h"
#include "nccl/runtime.h"
#include "nccl/work/groups.h"

namespace pretend {
namespace {

// Whether a communicator of this configuration blocks; NCCL_COMM_BLOCKING goes before it.
bool blocks(const ncclConfig_t* config, bool by_default) {
  const char* variable = std::getenv("NCCL_COMM_BLOCKING");
  if (variable && *variable) return std::atoi(variable) != 0;
  return !config || config->blocking == kUndefined ? by_default : config->blocking != 0;
}

ncclResult_t check_config(const char* function, const ncclConfig_t* config) {
  if (!config ||
      (config->size >= sizeof *config && config->magic == kConfigMagic &&
       (config->blocking == kUndefined || config->blocking == 0 || config->blocking == 1)))
    return ncclSuccess;
  return complain(ncclInvalidArgument,
                  text("%s: the configuration was not made by NCCL_CONFIG_INITIALIZER, or its "
                       "`blocking` is not 0 or 1",
                       function));
}

// Run a call that makes `c`; where that fails there is no handle.
ncclResult_t make(const CommunicatorPtr& owner, const CommunicatorPtr& c, ncclComm_t* out,
                  std::function<ncclResult_t()> job) {
  *out = c ? add(c) : nullptr;
  const bool keeps = c && !c->blocking;
  return host_call(owner, [=, job = std::move(job)] {
    const ncclResult_t result = job();
    if (result != ncclSuccess && c && !keeps) {
      remove(*out);
      *out = nullptr;
    }
    return result;
  });
}

ncclResult_t init_rank(const char* function, ncclComm_t* out, int ranks, const ncclUniqueId& id,
                       int rank, const ncclConfig_t* config, int device) {
  if (!out) return note(complain(ncclInvalidArgument, text("%s: no place for it", function)));
  *out = nullptr;
  if (ranks < 1 || ranks > kMostRanks || rank < 0 || rank >= ranks)
    return note(complain(ncclInvalidArgument, text("%s: rank %d of %d ranks (%d are possible here)",
                                                   function, rank, ranks, kMostRanks)));
  const ncclResult_t result = check_config(function, config);
  if (result != ncclSuccess) return note(result);
  const auto c = std::make_shared<Communicator>(rank, ranks, device, blocks(config, true));
  return make(c, c, out, [c, id] { return join(*c, id); });
}

}  // namespace
}  // namespace pretend

using namespace pretend;  // NOLINT: this file is only its exported functions

NCCL_API ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  return id ? Segment::make_id(id) : complain(ncclInvalidArgument, "ncclGetUniqueId: null");
}

NCCL_API ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  return init_rank(__func__, comm, ranks, id, rank, nullptr, current_device());
}

NCCL_API ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                             ncclConfig_t* config) {
  return init_rank(__func__, comm, ranks, id, rank, config, current_device());
}

NCCL_API ncclResult_t ncclCommInitAll(ncclComm_t* comms, int ranks, const int* devices) {
  ncclUniqueId id;
  if (!comms || ranks < 1 || ranks > kMostRanks)
    return complain(ncclInvalidArgument, text("ncclCommInitAll: %d devices", ranks));
  ncclResult_t result = Segment::make_id(&id);
  if (result != ncclSuccess) return result;
  start_group();
  for (int rank = 0; rank < ranks; ++rank)
    init_rank(__func__, &comms[rank], ranks, id, rank, nullptr, devices ? devices[rank] : rank);
  return end_group();
}

NCCL_API ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* out,
                                    ncclConfig_t* config) {
  CommunicatorPtr parent;
  ncclResult_t result = usable(__func__, comm, &parent);
  if (result == ncclSuccess) result = check_config(__func__, config);
  if (result == ncclSuccess && (!out || color < kNoColor))
    result = complain(ncclInvalidArgument, text("%s: color %d", __func__, color));
  if (result != ncclSuccess) return note(result);
  CommunicatorPtr child;
  if (color != kNoColor)
    child = std::make_shared<Communicator>(-1, 0, parent->device, blocks(config, parent->blocking));
  return make(parent, child, out, [=] { return split(*parent, color, key, child); });
}

NCCL_API ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  CommunicatorPtr c;
  const ncclResult_t result = usable(__func__, comm, &c);
  if (result != ncclSuccess) return note(result);
  return host_call(c, [c] { return finalize(*c); });
}

NCCL_API ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (!comm) return ncclSuccess;
  const CommunicatorPtr c = find(comm);
  if (!c || c->in_progress())
    return note(complain(ncclInvalidArgument,
                         text("ncclCommDestroy: %s", c ? "a call is in progress"
                                                       : "no communicator, or destroyed before")));
  remove(comm);
  if (!c->ready || c->finalized) return ncclSuccess;
  const ncclResult_t result = host_call(c, [c] { return finalize(*c); });
  return result == ncclInProgress ? ncclSuccess : result;
}

NCCL_API ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (!comm) return ncclSuccess;
  const CommunicatorPtr c = find(comm);
  if (!c)
    return complain(ncclInvalidArgument, "ncclCommAbort: no communicator, or destroyed before");
  pretend::abort(*c);
  remove(comm);
  return ncclSuccess;
}
