#include "segment_flow.h"

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

void SegmentFlow::list_totals(const Segment& segment, int64_t itemsize) {
  const int mates = static_cast<int>(topology().mates().size());
  for (int lane = 0; lane < mates; ++lane)
    links_.call.blocks.push_back(
        lane < topology().lanes ? segment.lane_count(lane, topology().lanes) * itemsize : 0);
}

int64_t SegmentFlow::list_own(const Segment& segment, int64_t itemsize) {
  const int mates = static_cast<int>(topology().mates().size());
  const size_t block = segment.is_whole ? 0 : static_cast<size_t>(topology().index);
  for (int lane = 0; lane < mates; ++lane)
    links_.call.blocks.push_back(lane < topology().lanes
                                     ? segment.slice(block, lane, topology().lanes).count * itemsize
                                     : 0);
  return segment.blocks[block].count * itemsize;
}

int64_t SegmentFlow::lane_count(const InFlight& in_flight) const {
  return topology().has_lane() ? in_flight.segment.lane_count(topology().local, topology().lanes)
                               : 0;
}

void SegmentFlow::cut(const InFlight& in_flight, uint8_t* data, int64_t itemsize,
                      std::vector<Block>* blocks) const {
  blocks->clear();
  if (!topology().has_lane()) return;
  for (size_t block = 0; block < in_flight.segment.blocks.size(); ++block) {
    const int64_t count = in_flight.segment.slice(block, topology().local, topology().lanes).count;
    blocks->push_back({data, count});
    data += count * itemsize;
  }
}

void SegmentFlow::find(InFlight& in_flight, Pieces& pieces, int64_t itemsize,
                       std::vector<Block>* blocks) const {
  blocks->clear();
  for (const auto [start, count] : in_flight.segment.blocks) {
    uint8_t* data = count ? pieces.contiguous(start * itemsize, count * itemsize) : nullptr;
    if (count && !data) data = in_flight.scratch.take(count * itemsize);
    blocks->push_back({data, count});
  }
}

void SegmentFlow::copy_in(const InFlight& in_flight, Pieces& pieces, int64_t itemsize) const {
  for (size_t block = 0; block < in_flight.targets.size(); ++block) {
    const auto [data, count] = in_flight.targets[block];
    const int64_t at = in_flight.segment.blocks[block].start * itemsize, nbytes = count * itemsize;
    if (count && pieces.contiguous(at, nbytes) != data) pieces.copy_in(at, data, nbytes, false);
  }
}

void SegmentFlow::receive_all(const Segment& segment, Pieces& pieces, int64_t itemsize) {
  for (int lane = 0; lane < topology().lanes; ++lane)
    for (size_t block = 0; block < segment.blocks.size(); ++block) {
      const auto [start, count] = segment.slice(block, lane, topology().lanes);
      links_.call.receive(pieces, start * itemsize, count * itemsize);
    }
}

bool SegmentFlow::store_all(InFlight& in_flight, Pieces& pieces, int64_t itemsize) {
  if (!links_.node) {
    copy_in(in_flight, pieces, itemsize);
    return false;
  }
  links_.call.clear(MPISTRAT_ALLGATHER);
  list_totals(in_flight.segment, itemsize);
  for (const Block& block : in_flight.targets) links_.call.send(block.data, block.count * itemsize);
  receive_all(in_flight.segment, pieces, itemsize);
  return true;
}

}  // namespace mpistrat::wire
