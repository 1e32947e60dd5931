#include "collective_flows.h"

#include <algorithm>
#include <cstring>

#include "../algorithms/recursive_doubling.h"
#include "../algorithms/ring.h"
#include "../algorithms/tree.h"
#include "mpistrat/simd.h"

namespace mpistrat::wire {
namespace {

constexpr int64_t kPadding = 64;  // at most, of each block in a segment's memory

int64_t longest(const std::vector<Block>& blocks) {
  int64_t count = 0;
  for (const Block& block : blocks) count = std::max(count, block.count);
  return count;
}

int64_t padding(const InFlight& in_flight) {
  return 4 * static_cast<int64_t>(in_flight.segment.blocks.size()) * kPadding;
}

}  // namespace

// ------------------------------------------------------------------------------- reductions

// Sources, two blocks in flight, results, and what is widened for the node.
void Reduction::reserve(InFlight& in_flight) const {
  const int64_t all = in_flight.segment.count();
  const int64_t mine = links_.node ? lane_count(in_flight) : all;
  const int64_t wide = how_.is_widened() ? all : 0;
  in_flight.scratch.reset((3 * mine + wide) * how_.itemsize() + mine * how_.result_itemsize() +
                          padding(in_flight));
}

bool Reduction::load(InFlight& in_flight) {
  reserve(in_flight);
  if (!links_.node) {
    load_alone(in_flight);
    return false;
  }
  uint8_t* slices = in_flight.scratch.take(lane_count(in_flight) * how_.itemsize());
  cut(in_flight, slices, how_.itemsize(), &in_flight.sources);
  links_.call.clear(MPISTRAT_REDUCE_SCATTER);
  links_.call.spec.op = how_.op;
  links_.call.spec.dtype = how_.dtype;
  list_totals(in_flight.segment, how_.itemsize());
  links_.call.receive(slices, lane_count(in_flight) * how_.itemsize());
  uint8_t* wide = how_.is_widened()
                      ? in_flight.scratch.take(in_flight.segment.count() * how_.itemsize())
                      : nullptr;
  for (int lane = 0; lane < topology().lanes; ++lane)
    for (size_t block = 0; block < in_flight.segment.blocks.size(); ++block) {
      const auto [start, count] = in_flight.segment.slice(block, lane, topology().lanes);
      if (wide) {
        widen(send_, start, count, wide);
        links_.call.send(wide, count * how_.itemsize());
        wide += count * how_.itemsize();
      } else {
        links_.call.send(send_, start * how_.itemsize(), count * how_.itemsize());
      }
    }
  return true;
}

void Reduction::load_alone(InFlight& in_flight) {
  find(in_flight, send_, how_.result_itemsize(), &in_flight.sources);
  for (size_t i = 0; i < in_flight.sources.size(); ++i) {
    const auto [start, count] = in_flight.segment.blocks[i];
    uint8_t*& data = in_flight.sources[i].data;
    const int64_t at = start * how_.result_itemsize(), nbytes = count * how_.result_itemsize();
    if (!count) continue;
    if (how_.is_widened()) {
      data = in_flight.scratch.take(count * how_.itemsize());
      widen(send_, start, count, data);
    } else if (data != send_.contiguous(at, nbytes)) {
      send_.copy_out(at, data, nbytes);
    }
  }
}

void Reduction::widen(Pieces& pieces, int64_t start, int64_t count, uint8_t* to) const {
  const int64_t each = how_.result_itemsize();
  pieces.for_each(start * each, count * each, [&](const uint8_t* data, int64_t nbytes) {
    mpistrat_widen(to, data, static_cast<size_t>(nbytes / each), how_.result);
    to += nbytes / each * how_.itemsize();
  });
}

void Reduction::carry(InFlight& in_flight) {
  const auto me = static_cast<size_t>(topology().index);
  if (!links_.node) {
    find(in_flight, recv_, how_.result_itemsize(), &in_flight.targets);
  } else if (how_.is_widened()) {
    uint8_t* out = in_flight.scratch.take(lane_count(in_flight) * how_.result_itemsize());
    cut(in_flight, out, how_.result_itemsize(), &in_flight.targets);
  } else {
    in_flight.targets = in_flight.sources;
  }
  if (!topology().has_lane()) return;
  if (in_flight.segment.is_whole) {
    carry_whole(in_flight);
    return;
  }
  uint8_t* spare = in_flight.scratch.take(2 * longest(in_flight.sources) * how_.itemsize());
  ring_reduce_scatter(in_flight.schedule, links_.lane, in_flight.sources,
                      in_flight.targets[me].data, spare, how_);
  ring_allgather(in_flight.schedule, links_.lane, in_flight.targets, how_.result_itemsize());
}

void Reduction::carry_whole(InFlight& in_flight) {
  const auto [target, count] = in_flight.targets[0];
  const int64_t nbytes = count * how_.itemsize();
  uint8_t* total = in_flight.sources[0].data;
  if (!links_.node && !how_.is_widened()) {
    if (total != target) std::memcpy(target, total, static_cast<size_t>(nbytes));
    total = target;
  }
  doubling_allreduce(in_flight.schedule, links_.lane, total, in_flight.scratch.take(nbytes), count,
                     how_);
  if (count && (how_.is_widened() || how_.divisor > 1 || total != target))
    in_flight.schedule.finish(target, total, nullptr, count, how_);
}

void OwnReduction::carry(InFlight& in_flight) {
  in_flight.targets.clear();
  if (!topology().has_lane()) return;
  const auto me = static_cast<size_t>(topology().index);
  const int64_t count = in_flight.sources[me].count;
  in_flight.targets.push_back({in_flight.scratch.take(count * how_.result_itemsize()), count});
  uint8_t* spare = in_flight.scratch.take(2 * longest(in_flight.sources) * how_.itemsize());
  ring_reduce_scatter(in_flight.schedule, links_.lane, in_flight.sources, in_flight.targets[0].data,
                      spare, how_);
}

bool OwnReduction::store(InFlight& in_flight) {
  const Segment& segment = in_flight.segment;
  const int64_t each = how_.result_itemsize();
  links_.call.clear(MPISTRAT_GATHER);
  const int64_t nbytes = list_own(segment, each);
  const bool is_owner = topology().local == segment.owner;
  if (nbytes == 0) return false;
  if (!links_.node) {
    recv_.copy_in(segment.offset * each, in_flight.targets[0].data, nbytes, false);
    return false;
  }
  links_.call.spec.root = segment.owner;
  for (const Block& block : in_flight.targets) links_.call.send(block.data, block.count * each);
  if (is_owner) links_.call.receive(recv_, segment.offset * each, nbytes);
  return true;
}

// ----------------------------------------------------------------------------------- copies

bool Copies::load(InFlight& in_flight) {
  const int64_t all = in_flight.segment.count();
  in_flight.scratch.reset((links_.node ? lane_count(in_flight) : all) * itemsize_ +
                          padding(in_flight));
  if (!links_.node) {
    load_alone(in_flight);
    return false;
  }
  cut(in_flight, in_flight.scratch.take(lane_count(in_flight) * itemsize_), itemsize_,
      &in_flight.targets);
  links_.call.clear(MPISTRAT_SCATTER);
  const int64_t nbytes = list_own(in_flight.segment, itemsize_);
  if (nbytes == 0 || !has_block(in_flight)) return false;
  links_.call.spec.root = in_flight.segment.owner;
  if (topology().local == in_flight.segment.owner)
    links_.call.send(send_, in_flight.segment.offset * itemsize_, nbytes);
  if (topology().has_lane()) {
    const size_t mine = in_flight.segment.is_whole ? 0 : static_cast<size_t>(topology().index);
    const auto [data, count] = in_flight.targets[mine];
    links_.call.receive(data, count * itemsize_);
  }
  return true;
}

void Copies::load_alone(InFlight& in_flight) {
  find(in_flight, recv_, itemsize_, &in_flight.targets);
  const size_t mine = in_flight.segment.is_whole ? 0 : static_cast<size_t>(topology().index);
  const auto [data, count] = in_flight.targets[mine];
  const int64_t at = in_flight.segment.offset * itemsize_, nbytes = count * itemsize_;
  if (count && has_block(in_flight) && send_.contiguous(at, nbytes) != data)
    send_.copy_out(at, data, nbytes);
}

void Copies::carry(InFlight& in_flight) {
  if (!topology().has_lane()) return;
  if (in_flight.segment.is_whole) {
    tree_bcast(in_flight.schedule, links_.lane, from_, in_flight.targets[0], itemsize_);
  } else {
    ring_allgather(in_flight.schedule, links_.lane, in_flight.targets, itemsize_);
  }
}

}  // namespace mpistrat::wire
