#include "nccl/work/groups.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "nccl/interface/errors.h"
#include "nccl/work/launch.h"

namespace pretend {
namespace {

struct Group {
  int depth = 0;
  ncclResult_t error = ncclSuccess;
  std::vector<std::pair<CommunicatorPtr, std::function<ncclResult_t()>>> host_calls;
  std::vector<std::shared_ptr<Launch>> launches;  // one for each communicator
};
thread_local Group group;

Launch& launch_of(const CommunicatorPtr& communicator, hipStream_t stream) {
  auto at = std::find_if(group.launches.begin(), group.launches.end(),
                         [&](const auto& launch) { return launch->communicator == communicator; });
  if (at == group.launches.end())
    at = group.launches.insert(at, std::make_shared<Launch>(Launch{communicator, {}, {}, {}}));
  Launch& launch = **at;
  if (std::find(launch.streams.begin(), launch.streams.end(), stream) == launch.streams.end())
    launch.streams.push_back(stream);
  return launch;
}

// A message to oneself needs its other half in the same group.
ncclResult_t check_own_messages(const Launch& launch) {
  int balance = 0;
  for (const Message& message : launch.messages)
    if (message.peer == launch.communicator->rank) balance += message.sends ? 1 : -1;
  if (balance == 0) return ncclSuccess;
  return complain(ncclInvalidUsage, text("rank %d: a message to oneself needs its ncclSend and its "
                                         "ncclRecv in one group",
                                         launch.communicator->rank));
}

ncclResult_t check_kinds(const Group& all) {
  int blocking = 0, others = 0;
  for (const auto& launch : all.launches) ++(launch->communicator->blocking ? blocking : others);
  for (const auto& [communicator, job] : all.host_calls)
    ++(communicator->blocking ? blocking : others);
  if (!blocking || !others) return ncclSuccess;
  return complain(ncclInvalidArgument, "a group mixes blocking and non-blocking communicators");
}

// The first error among results, else ncclInProgress if that is one.
ncclResult_t worse(ncclResult_t a, ncclResult_t b) {
  return a == ncclSuccess || (a == ncclInProgress && b != ncclSuccess) ? b : a;
}

ncclResult_t run_host_calls(const Group& all) {
  if (all.host_calls.size() == 1) {
    const auto& [communicator, job] = all.host_calls.front();
    return communicator->run_job(job);
  }
  std::vector<ncclResult_t> results(all.host_calls.size(), ncclSuccess);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < results.size(); ++i)
    threads.emplace_back([&, i] {
      const auto& [communicator, job] = all.host_calls[i];
      results[i] = communicator->run_job(job);
    });
  for (std::thread& thread : threads) thread.join();
  ncclResult_t result = ncclSuccess;
  for (ncclResult_t one : results) result = worse(result, one);
  return result;
}

ncclResult_t run_group(const Group& all) {
  ncclResult_t result = all.error;
  if (result == ncclSuccess) result = check_kinds(all);
  for (const auto& launch : all.launches)
    if (result == ncclSuccess) result = check_own_messages(*launch);
  if (result == ncclSuccess) result = run_host_calls(all);
  for (const auto& launch : all.launches) {
    if (result != ncclSuccess && result != ncclInProgress) break;
    result = worse(result, launch->communicator->run_job([launch] { return hand_over(launch); }));
  }
  return result;
}

// Make one call a group, unless it is in one.
template <class Add>
ncclResult_t as_group(Add add) {
  start_group();
  add();
  return end_group();
}

}  // namespace

ncclResult_t start_group() {
  ++group.depth;
  return ncclSuccess;
}

ncclResult_t end_group() {
  if (group.depth == 0) return complain(ncclInvalidUsage, "ncclGroupEnd: not in a group");
  if (--group.depth > 0) return ncclSuccess;
  const Group all = std::exchange(group, Group{});
  return run_group(all);
}

ncclResult_t call(const CommunicatorPtr& communicator, hipStream_t stream, const Collective& c) {
  return as_group([&] { launch_of(communicator, stream).collectives.push_back(c); });
}

ncclResult_t call(const CommunicatorPtr& communicator, hipStream_t stream, const Message& m) {
  return as_group([&] { launch_of(communicator, stream).messages.push_back(m); });
}

ncclResult_t host_call(const CommunicatorPtr& communicator, std::function<ncclResult_t()> job) {
  return as_group([&] { group.host_calls.emplace_back(communicator, std::move(job)); });
}

ncclResult_t note(ncclResult_t result) {
  if (group.depth && group.error == ncclSuccess) group.error = result;
  return result;
}

}  // namespace pretend
