#include "nccl/work/launch.h"

#include "nccl/interface/errors.h"
#include "nccl/runtime.h"

namespace pretend {
namespace {

using Outcome = Communicator::Outcome;

Outcome run_calls(Launch& launch) {
  Communicator& communicator = *launch.communicator;
  for (const Collective& call : launch.collectives) {
    const Outcome outcome = run(communicator, call);
    if (outcome != Outcome::kDone) return outcome;
  }
  return run(communicator, launch.messages);
}

void run_in_turn(Launch& launch, uint64_t turn) {
  Communicator& c = *launch.communicator;
  const auto is_my_turn = [&] { return c.ended.load(std::memory_order_acquire) == turn; };
  ++c.running;  // before the look at `aborted`: ncclCommAbort sets that, then waits for this
  if (c.wait(is_my_turn) == Outcome::kDone) run_calls(launch);
  --c.running;
  c.ended.fetch_add(1, std::memory_order_acq_rel);
}

}  // namespace

ncclResult_t hand_over(const std::shared_ptr<Launch>& launch) {
  Communicator& c = *launch->communicator;
  hipStream_t const stream = launch->streams.front();
  int error = 0;
  for (hipStream_t other : launch->streams)
    if (other != stream && !error) error = order_after(c.device, stream, other);
  const uint64_t turn = c.launched;
  if (!error) error = enqueue(c.device, stream, [launch, turn] { run_in_turn(*launch, turn); });
  if (!error) ++c.launched;
  for (hipStream_t other : launch->streams)
    if (other != stream && !error) error = order_after(c.device, other, stream);
  if (!error) return ncclSuccess;
  return complain(ncclUnhandledCudaError,
                  text("rank %d: HIP error %d while work was put on a stream", c.rank, error));
}

}  // namespace pretend
