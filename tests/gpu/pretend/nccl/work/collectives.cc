#include "nccl/work/collectives.h"

#include <algorithm>
#include <array>

#include "nccl/interface/errors.h"
#include "nccl/runtime.h"
#include "nccl/work/reductions.h"

namespace pretend {
namespace {

using Outcome = Communicator::Outcome;

constexpr const char* kNames[] = {"ncclAllReduce", "ncclReduce", "ncclBroadcast", "ncclAllGather",
                                  "ncclReduceScatter"};

// One call on one rank, step by step: each rank puts its piece into its slot, all meet, each takes
// from all slots what it needs, all meet before the next pieces are put.
class Run {
 public:
  Run(Communicator& communicator, const Collective& call)
      : c_(communicator), call_(call), element_(size_of(call.dtype)) {}

  Outcome whole() {
    c_.seat().call = {static_cast<uint32_t>(call_.kind), static_cast<uint32_t>(call_.dtype),
                      static_cast<uint32_t>(call_.op), static_cast<uint32_t>(call_.root),
                      call_.count};
    const size_t step = kSlotBytes / element_ / (scatters() ? c_.ranks : 1);
    for (size_t at = 0; at < call_.count; at += step) {
      const Outcome outcome = piece(at, std::min(step, call_.count - at));
      if (outcome != Outcome::kDone) return outcome;
    }
    return Outcome::kDone;
  }

 private:
  bool scatters() const { return call_.kind == Kind::kReduceScatter; }
  bool is_root() const { return c_.rank == call_.root; }

  Outcome piece(size_t at, size_t n) {
    if (!put(at, n)) return device_lost();
    Outcome outcome = c_.meet(&Seat::stream_meetings);
    if (outcome != Outcome::kDone) return outcome;
    if (at == 0 && !all_call_the_same()) return c_.break_all(ncclInvalidUsage, difference());
    if (!take(at, n)) return device_lost();
    return c_.meet(&Seat::stream_meetings);
  }

  bool put(size_t at, size_t n) {
    char* const slot = c_.segment.slot(c_.rank);
    if (call_.kind == Kind::kBroadcast && !is_root()) return true;
    if (!scatters()) return copy(slot, call_.send + at * element_, n);
    for (int part = 0; part < c_.ranks; ++part)
      if (!copy(slot + part * n * element_, call_.send + (part * call_.count + at) * element_, n))
        return false;
    return true;
  }

  bool take(size_t at, size_t n) {
    char* const out = call_.receive + at * element_;
    switch (call_.kind) {
      case Kind::kAllReduce:
        return reduce_into(out, n, 0);
      case Kind::kReduce:
        return !is_root() || reduce_into(out, n, 0);
      case Kind::kReduceScatter:
        return reduce_into(out, n, c_.rank * n * element_);
      case Kind::kBroadcast:
        return copy(out, c_.segment.slot(call_.root), n);
      case Kind::kAllGather:
        break;
    }
    for (int part = 0; part < c_.ranks; ++part)
      if (!copy(out + part * call_.count * element_, c_.segment.slot(part), n)) return false;
    return true;
  }

  // Reduce n elements of all slots, from `offset` bytes on.
  bool reduce_into(char* out, size_t n, size_t offset) {
    std::array<const char*, kMostRanks> inputs;
    for (int part = 0; part < c_.ranks; ++part) inputs[part] = c_.segment.slot(part) + offset;
    char* const result = c_.segment.result(c_.rank);
    reduce(call_.dtype, call_.op, inputs.data(), c_.ranks, n, result);
    return copy(out, result, n);
  }

  bool copy(void* to, const void* from, size_t n) {
    return copy_on_device(c_.device, to, from, n * element_) == 0;
  }

  Outcome device_lost() {
    c_.set_error(ncclUnhandledCudaError,
                 text("device %d failed in %s", c_.device, describe(c_.seat().call).c_str()));
    c_.seat().presence = Presence::kFailed;
    return Outcome::kFailed;
  }

  bool all_call_the_same() const {
    for (int peer = 0; peer < c_.ranks; ++peer)
      if (c_.segment.seat(peer).call != c_.segment.seat(0).call) return false;
    return true;
  }

  std::string difference() const {
    std::string all = "the ranks of a communicator call different things:";
    for (int peer = 0; peer < c_.ranks; ++peer) {
      const CallLine& line = c_.segment.seat(peer).call;
      if (peer == 0 || line != c_.segment.seat(peer - 1).call)
        all += text(" rank %d %s;", peer, describe(line).c_str());
    }
    return all + " a real GPU would hang here, or give wrong values";
  }

  Communicator& c_;
  const Collective& call_;
  const size_t element_;
};

}  // namespace

std::string describe(const CallLine& line) {
  const auto kind = static_cast<Kind>(line.kind);
  std::string all = text("%s(count %zu, %s", kNames[line.kind], static_cast<size_t>(line.count),
                         name_of(static_cast<ncclDataType_t>(line.dtype)));
  if (kind != Kind::kBroadcast && kind != Kind::kAllGather)
    all += text(", %s", name_of(static_cast<ncclRedOp_t>(line.op)));
  if (kind == Kind::kReduce || kind == Kind::kBroadcast) all += text(", root %u", line.root);
  return all + ")";
}

Outcome run(Communicator& communicator, const Collective& call) {
  return Run(communicator, call).whole();
}

}  // namespace pretend
