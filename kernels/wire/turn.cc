#include "turn.h"

#include <cstring>

namespace mpistrat::wire {

void Scratch::reset(int64_t nbytes) {
  const int64_t needed = nbytes + 16 * kAlign;
  if (nbytes_ < needed) {
    memory_.reset(new uint8_t[static_cast<size_t>(needed)]);
    nbytes_ = needed;
  }
  at_ = -reinterpret_cast<intptr_t>(memory_.get()) & (kAlign - 1);
}

uint8_t* Scratch::take(int64_t nbytes) {
  uint8_t* taken = memory_.get() + at_;
  at_ += (nbytes + kAlign - 1) / kAlign * kAlign;
  return taken;
}

void Flow::list_totals(const Segment& segment, int64_t itemsize) {
  const int mates = static_cast<int>(places().mates().size());
  for (int lane = 0; lane < mates; ++lane)
    links_.call.blocks.push_back(
        lane < places().lanes ? segment.lane_count(lane, places().lanes) * itemsize : 0);
}

int64_t Flow::list_own(const Segment& segment, int64_t itemsize) {
  const int mates = static_cast<int>(places().mates().size());
  const size_t block = segment.is_whole ? 0 : static_cast<size_t>(places().index);
  for (int lane = 0; lane < mates; ++lane)
    links_.call.blocks.push_back(
        lane < places().lanes ? segment.slice(block, lane, places().lanes).count * itemsize : 0);
  return segment.blocks[block].count * itemsize;
}

int64_t Flow::lane_count(const Turn& turn) const {
  return places().has_lane() ? turn.segment.lane_count(places().local, places().lanes) : 0;
}

void Flow::cut(const Turn& turn, uint8_t* data, int64_t itemsize,
               std::vector<Block>* blocks) const {
  blocks->clear();
  if (!places().has_lane()) return;
  for (size_t block = 0; block < turn.segment.blocks.size(); ++block) {
    const int64_t count = turn.segment.slice(block, places().local, places().lanes).count;
    blocks->push_back({data, count});
    data += count * itemsize;
  }
}

void Flow::find(Turn& turn, Pieces& pieces, int64_t itemsize, std::vector<Block>* blocks) const {
  blocks->clear();
  for (const auto [start, count] : turn.segment.blocks) {
    uint8_t* data = count ? pieces.contiguous(start * itemsize, count * itemsize) : nullptr;
    if (count && !data) data = turn.scratch.take(count * itemsize);
    blocks->push_back({data, count});
  }
}

void Flow::copy_in(const Turn& turn, Pieces& pieces, int64_t itemsize) const {
  for (size_t block = 0; block < turn.targets.size(); ++block) {
    const auto [data, count] = turn.targets[block];
    const int64_t at = turn.segment.blocks[block].start * itemsize, nbytes = count * itemsize;
    if (count && pieces.contiguous(at, nbytes) != data) pieces.copy_in(at, data, nbytes, false);
  }
}

void Flow::receive_all(const Segment& segment, Pieces& pieces, int64_t itemsize) {
  for (int lane = 0; lane < places().lanes; ++lane)
    for (size_t block = 0; block < segment.blocks.size(); ++block) {
      const auto [start, count] = segment.slice(block, lane, places().lanes);
      links_.call.receive(pieces, start * itemsize, count * itemsize);
    }
}

bool Flow::store_all(Turn& turn, Pieces& pieces, int64_t itemsize) {
  if (!links_.node) {
    copy_in(turn, pieces, itemsize);
    return false;
  }
  links_.call.clear(MPISTRAT_ALLGATHER);
  list_totals(turn.segment, itemsize);
  for (const Block& block : turn.targets) links_.call.send(block.data, block.count * itemsize);
  receive_all(turn.segment, pieces, itemsize);
  return true;
}

}  // namespace mpistrat::wire
