#include "segments.h"

#include <algorithm>

namespace mpistrat::wire {
namespace {

constexpr int64_t kParts = 4;  // what is not long is cut in so many, to be under way together
constexpr int64_t kWholeBytes = 1 << 20;

}  // namespace

bool Segments::is_ring(int64_t count, int64_t itemsize) const {
  const int64_t each = std::max<int64_t>(tuning_.ring_bytes / itemsize, 1);
  return count >= each * topology_.lanes * topology_.num_nodes();
}

void Segments::begin_shared(int64_t count, int64_t itemsize) {
  kind_ = Kind::kShared;
  itemsize_ = itemsize;
  is_ring_ = is_ring(count, itemsize);
  if (is_ring_) {
    stretch_blocks(count, topology_.num_nodes());
  } else {
    stretch(count, lane_elements(tuning_.ring_bytes), lane_elements(kWholeBytes));
  }
}

void Segments::begin_rooted(int64_t count, int64_t itemsize, int root) {
  kind_ = Kind::kRooted;
  itemsize_ = itemsize;
  root_node_ = topology_.node_of[static_cast<size_t>(root)];
  owner_ = topology_.local_of[static_cast<size_t>(root)];
  is_ring_ = is_ring(count, itemsize);
  if (is_ring_) {
    stretch_blocks(count, 1);
  } else {
    stretch(count, lane_elements(tuning_.ring_bytes), lane_elements(kWholeBytes));
  }
}

void Segments::begin_owned(const int64_t* counts, int64_t itemsize) {
  kind_ = Kind::kOwned;
  itemsize_ = itemsize;
  is_ring_ = true;
  counts_ = counts;
  starts_.assign(1, 0);
  for (int rank = 0; rank < topology_.size; ++rank)
    starts_.push_back(starts_.back() + counts[rank]);
  owner_ = -1;
  at_ = count_ = 0;
}

bool Segments::next(Segment* segment) {
  while (at_ >= count_)
    if (kind_ != Kind::kOwned || !next_owner()) return false;
  const int64_t count = std::min(each_, count_ - at_);
  segment->is_whole = !is_ring_;
  segment->owner = kind_ == Kind::kShared ? 0 : owner_;
  segment->offset = kind_ == Kind::kShared ? 0 : at_;
  fill(segment, count);
  at_ += each_;
  return true;
}

void Segments::fill(Segment* segment, int64_t count) const {
  const auto p = static_cast<size_t>(topology_.num_nodes());
  segment->blocks.clear();
  if (!is_ring_) {
    segment->blocks.push_back({at_, count});
    return;
  }
  for (size_t i = 0; i < p; ++i) {
    const auto node = static_cast<int64_t>(i), nodes = static_cast<int64_t>(p);
    if (kind_ == Kind::kShared) {
      const int64_t begin = count * node / nodes, end = count * (node + 1) / nodes;
      segment->blocks.push_back({at_ + begin, end - begin});
    } else if (kind_ == Kind::kRooted) {
      segment->blocks.push_back({at_, node == root_node_ ? count : 0});
    } else {
      const Segment::Part all = owned(i);
      const int64_t most = std::min(each_, count_ - at_);
      segment->blocks.push_back({all.start + at_, std::clamp<int64_t>(all.count - at_, 0, most)});
    }
  }
}

// The block of the node's rank whose turn it is.
Segment::Part Segments::owned(size_t node) const {
  const auto& group = topology_.groups[node];
  const auto of = static_cast<size_t>(owner_);
  if (of >= group.size()) return {0, 0};
  const auto rank = static_cast<size_t>(group[of]);
  return {starts_[rank], counts_[rank]};
}

bool Segments::next_owner() {
  if (++owner_ >= topology_.most) return false;
  int64_t most = 0;
  for (size_t node = 0; node < topology_.groups.size(); ++node)
    most = std::max(most, owned(node).count);
  stretch_blocks(most, 1);
  return true;
}

// Cut `count` elements in stretches of `blocks` messages for each lane.
void Segments::stretch_blocks(int64_t count, int64_t blocks) {
  stretch(count, lane_elements(tuning_.ring_bytes) * blocks,
          lane_elements(tuning_.ring_most_bytes) * blocks);
}

void Segments::stretch(int64_t count, int64_t least, int64_t most) {
  const int64_t part = (count + kParts - 1) / kParts;
  each_ = std::max<int64_t>(std::min({std::max(part, least), most, tuning_.max_count}), 1);
  count_ = count;
  at_ = 0;
}

// How many elements make `nbytes` for each lane.
int64_t Segments::lane_elements(int64_t nbytes) const {
  return std::max<int64_t>(nbytes / itemsize_, 1) * topology_.lanes;
}

}  // namespace mpistrat::wire
