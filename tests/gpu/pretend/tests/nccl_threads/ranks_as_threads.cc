// Ranks as threads of one process, so that sanitizers see all that the pretended NCCL does.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "nccl/interface/nccl.h"
#include "nccl/runtime.h"
#include "runtime_double.h"

extern "C" {
ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank);
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config);
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* out,
                           ncclConfig_t* config);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error);
ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();
ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count, ncclDataType_t dtype,
                           ncclRedOp_t op, ncclComm_t comm, hipStream_t stream);
ncclResult_t ncclAllGather(const void* send, void* receive, size_t count, ncclDataType_t dtype,
                           ncclComm_t comm, hipStream_t stream);
ncclResult_t ncclSend(const void* memory, size_t count, ncclDataType_t dtype, int peer,
                      ncclComm_t comm, hipStream_t stream);
ncclResult_t ncclRecv(void* memory, size_t count, ncclDataType_t dtype, int peer, ncclComm_t comm,
                      hipStream_t stream);
}

namespace {

constexpr int kRanks = 3;
constexpr size_t kMost = 300000;  // several steps of a collective and of a message

void check(bool ok, const char* what, int line) {
  if (ok) return;
  std::fprintf(stderr, "line %d: %s\n", line, what);
  std::_Exit(1);
}
#define CHECK(condition) check(condition, #condition, __LINE__)
#define OK(call) check((call) == ncclSuccess, #call, __LINE__)

struct Rank {
  int rank;
  hipStream_t first = pretend::make_stream(), second = pretend::make_stream();
  float* x = static_cast<float*>(pretend::allocate(rank, kMost * sizeof(float)));
  float* y = static_cast<float*>(pretend::allocate(rank, kRanks * kMost * sizeof(float)));

  void synchronize() const {
    pretend::synchronize(first);
    pretend::synchronize(second);
  }
};

void exchange(const Rank& me, ncclComm_t comm, size_t count) {
  OK(ncclGroupStart());
  for (int peer = 0; peer < kRanks; ++peer) {
    OK(ncclSend(me.x, count, ncclFloat32, peer, comm, me.first));
    OK(ncclRecv(me.y + peer * count, count, ncclFloat32, peer, comm, me.second));
  }
  OK(ncclGroupEnd());
}

void sum_of_half(const Rank& me, ncclComm_t comm) {
  ncclComm_t half;
  OK(ncclCommSplit(comm, me.rank % 2, -me.rank, &half, nullptr));
  OK(ncclAllReduce(me.x, me.y, 10, ncclFloat32, ncclSum, half, me.second));
  OK(ncclCommDestroy(half));
  me.synchronize();
  CHECK(me.y[0] == (me.rank % 2 ? 1 : 2));
}

void all_calls(const Rank& me, ncclComm_t comm) {
  for (int turn = 0; turn < 20; ++turn) {
    const size_t count = turn % 5 == 0 ? kMost : 100;
    for (size_t i = 0; i < count; ++i) me.x[i] = static_cast<float>(me.rank + i);
    OK(ncclAllGather(me.x, me.y, count, ncclFloat32, comm, me.first));
    OK(ncclAllReduce(me.x, me.y, count, ncclFloat32, ncclMax, comm, me.second));
    exchange(me, comm, count);
    me.synchronize();
    for (int peer = 0; peer < kRanks; ++peer)
      CHECK(me.y[(peer + 1) * count - 1] == static_cast<float>(peer + count - 1));
    if (turn % 7 == 0) {
      me.x[0] = static_cast<float>(me.rank);
      sum_of_half(me, comm);
    }
    ncclResult_t error;
    OK(ncclCommGetAsyncError(comm, &error));
    OK(error);
  }
}

// Rank 0 leaves the others in a collective, from which each takes itself out.
void abort_alone(const Rank& me, ncclComm_t comm) {
  if (me.rank) {
    ncclAllReduce(me.x, me.y, 100, ncclFloat32, ncclSum, comm, me.first);
    usleep(30000 * me.rank);
  }
  OK(ncclCommAbort(comm));
  me.synchronize();
}

// Asks for the state while other threads make the communicator, then gives it up at any point.
void abort_start(const Rank& me, const ncclUniqueId& id) {
  ncclConfig_t config{sizeof(ncclConfig_t), pretend::kConfigMagic, pretend::kNcclVersion, 0};
  ncclComm_t comm;
  CHECK(ncclCommInitRankConfig(&comm, kRanks, id, me.rank, &config) == ncclInProgress);
  ncclResult_t error;
  for (int turn = 0; turn < 5 * me.rank; ++turn) OK(ncclCommGetAsyncError(comm, &error));
  OK(ncclCommAbort(comm));
}

void run(int rank, const std::vector<ncclUniqueId>& ids) {
  pretend::set_device(rank);
  const Rank me{rank};
  ncclComm_t comm;
  OK(ncclCommInitRank(&comm, kRanks, ids[0], rank));
  all_calls(me, comm);
  OK(ncclCommDestroy(comm));
  OK(ncclCommInitRank(&comm, kRanks, ids[1], rank));
  abort_alone(me, comm);
  abort_start(me, ids[2]);
}

}  // namespace

int main() {
  std::vector<ncclUniqueId> ids(3);
  for (ncclUniqueId& id : ids) OK(ncclGetUniqueId(&id));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) threads.emplace_back([&, rank] { run(rank, ids); });
  for (std::thread& thread : threads) thread.join();
  std::puts("all ranks are done");
  return 0;
}
