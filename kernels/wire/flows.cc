#include "flows.h"

#include <algorithm>
#include <cstring>

#include "mpistrat/simd.h"

namespace mpistrat::wire {
namespace {

constexpr int64_t kPadding = 64;  // at most, of each block in a turn's memory

int64_t longest(const std::vector<Block>& blocks) {
  int64_t count = 0;
  for (const Block& block : blocks) count = std::max(count, block.count);
  return count;
}

int64_t padding(const Turn& turn) {
  return 4 * static_cast<int64_t>(turn.segment.blocks.size()) * kPadding;
}

}  // namespace

// ------------------------------------------------------------------------------- reductions

// Sources, two blocks on their way, results, and what is widened for the node.
void Reduction::reserve(Turn& turn) const {
  const int64_t all = turn.segment.count();
  const int64_t mine = links_.node ? lane_count(turn) : all;
  const int64_t wide = how_.is_widened() ? all : 0;
  turn.scratch.reset((3 * mine + wide) * how_.itemsize() + mine * how_.result_itemsize() +
                     padding(turn));
}

bool Reduction::load(Turn& turn) {
  reserve(turn);
  if (!links_.node) {
    load_alone(turn);
    return false;
  }
  uint8_t* slices = turn.scratch.take(lane_count(turn) * how_.itemsize());
  cut(turn, slices, how_.itemsize(), &turn.sources);
  links_.call.clear(MPISTRAT_REDUCE_SCATTER);
  links_.call.spec.op = how_.op;
  links_.call.spec.dtype = how_.dtype;
  list_totals(turn.segment, how_.itemsize());
  links_.call.receive(slices, lane_count(turn) * how_.itemsize());
  uint8_t* wide =
      how_.is_widened() ? turn.scratch.take(turn.segment.count() * how_.itemsize()) : nullptr;
  for (int lane = 0; lane < places().lanes; ++lane)
    for (size_t block = 0; block < turn.segment.blocks.size(); ++block) {
      const auto [start, count] = turn.segment.slice(block, lane, places().lanes);
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

void Reduction::load_alone(Turn& turn) {
  find(turn, send_, how_.result_itemsize(), &turn.sources);
  for (size_t i = 0; i < turn.sources.size(); ++i) {
    const auto [start, count] = turn.segment.blocks[i];
    uint8_t*& data = turn.sources[i].data;
    const int64_t at = start * how_.result_itemsize(), nbytes = count * how_.result_itemsize();
    if (!count) continue;
    if (how_.is_widened()) {
      data = turn.scratch.take(count * how_.itemsize());
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

void Reduction::carry(Turn& turn) {
  const auto me = static_cast<size_t>(places().index);
  if (!links_.node) {
    find(turn, recv_, how_.result_itemsize(), &turn.targets);
  } else if (how_.is_widened()) {
    uint8_t* out = turn.scratch.take(lane_count(turn) * how_.result_itemsize());
    cut(turn, out, how_.result_itemsize(), &turn.targets);
  } else {
    turn.targets = turn.sources;
  }
  if (!places().has_lane()) return;
  if (turn.segment.is_whole) {
    carry_whole(turn);
    return;
  }
  uint8_t* spare = turn.scratch.take(2 * longest(turn.sources) * how_.itemsize());
  ring_reduce_scatter(turn.script, links_.lane, turn.sources, turn.targets[me].data, spare, how_);
  ring_allgather(turn.script, links_.lane, turn.targets, how_.result_itemsize());
}

void Reduction::carry_whole(Turn& turn) {
  const auto [target, count] = turn.targets[0];
  const int64_t nbytes = count * how_.itemsize();
  uint8_t* total = turn.sources[0].data;
  if (!links_.node && !how_.is_widened()) {
    if (total != target) std::memcpy(target, total, static_cast<size_t>(nbytes));
    total = target;
  }
  doubling_allreduce(turn.script, links_.lane, total, turn.scratch.take(nbytes), count, how_);
  if (count && (how_.is_widened() || how_.divisor > 1 || total != target))
    turn.script.finish(target, total, nullptr, count, how_);
}

void OwnReduction::carry(Turn& turn) {
  turn.targets.clear();
  if (!places().has_lane()) return;
  const auto me = static_cast<size_t>(places().index);
  const int64_t count = turn.sources[me].count;
  turn.targets.push_back({turn.scratch.take(count * how_.result_itemsize()), count});
  uint8_t* spare = turn.scratch.take(2 * longest(turn.sources) * how_.itemsize());
  ring_reduce_scatter(turn.script, links_.lane, turn.sources, turn.targets[0].data, spare, how_);
}

bool OwnReduction::store(Turn& turn) {
  const Segment& segment = turn.segment;
  const int64_t each = how_.result_itemsize();
  links_.call.clear(MPISTRAT_GATHER);
  const int64_t nbytes = list_own(segment, each);
  const bool is_owner = places().local == segment.owner;
  if (nbytes == 0) return false;
  if (!links_.node) {
    recv_.copy_in(segment.offset * each, turn.targets[0].data, nbytes, false);
    return false;
  }
  links_.call.spec.root = segment.owner;
  for (const Block& block : turn.targets) links_.call.send(block.data, block.count * each);
  if (is_owner) links_.call.receive(recv_, segment.offset * each, nbytes);
  return true;
}

// ----------------------------------------------------------------------------------- copies

bool Copies::load(Turn& turn) {
  const int64_t all = turn.segment.count();
  turn.scratch.reset((links_.node ? lane_count(turn) : all) * itemsize_ + padding(turn));
  if (!links_.node) {
    load_alone(turn);
    return false;
  }
  cut(turn, turn.scratch.take(lane_count(turn) * itemsize_), itemsize_, &turn.targets);
  links_.call.clear(MPISTRAT_SCATTER);
  const int64_t nbytes = list_own(turn.segment, itemsize_);
  if (nbytes == 0 || !has_block(turn)) return false;
  links_.call.spec.root = turn.segment.owner;
  if (places().local == turn.segment.owner)
    links_.call.send(send_, turn.segment.offset * itemsize_, nbytes);
  if (places().has_lane()) {
    const size_t mine = turn.segment.is_whole ? 0 : static_cast<size_t>(places().index);
    const auto [data, count] = turn.targets[mine];
    links_.call.receive(data, count * itemsize_);
  }
  return true;
}

void Copies::load_alone(Turn& turn) {
  find(turn, recv_, itemsize_, &turn.targets);
  const size_t mine = turn.segment.is_whole ? 0 : static_cast<size_t>(places().index);
  const auto [data, count] = turn.targets[mine];
  const int64_t at = turn.segment.offset * itemsize_, nbytes = count * itemsize_;
  if (count && has_block(turn) && send_.contiguous(at, nbytes) != data)
    send_.copy_out(at, data, nbytes);
}

void Copies::carry(Turn& turn) {
  if (!places().has_lane()) return;
  if (turn.segment.is_whole) {
    tree_bcast(turn.script, links_.lane, from_, turn.targets[0], itemsize_);
  } else {
    ring_allgather(turn.script, links_.lane, turn.targets, itemsize_);
  }
}

}  // namespace mpistrat::wire
