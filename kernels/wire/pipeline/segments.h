#ifndef MPISTRAT_WIRE_PIPELINE_SEGMENTS_H_
#define MPISTRAT_WIRE_PIPELINE_SEGMENTS_H_

// Cut arrays for several nodes: into segments, these into a block a node, and these into a slice a
// lane. All numbers are elements, and equal on all ranks.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "../topology.h"
#include "mpistrat/wire.h"

namespace mpistrat::wire {

// What is carried at a time.
struct Segment {
  struct Part {
    int64_t start, count;
  };

  // In the long array, the block of each node; or one block that is no node's own.
  std::vector<Part> blocks;
  bool is_whole = false;  // one block, where the wire's part is not a ring's
  int owner = 0;          // local rank whose block it is on each node, where blocks have owners
  int64_t offset = 0;     // where in the owners' own arrays the blocks begin

  // What one rank of each node carries of a block.
  Part slice(size_t block, int lane, int lanes) const {
    const auto [start, count] = blocks[block];
    const int64_t begin = count * lane / lanes;
    return {start + begin, count * (lane + 1) / lanes - begin};
  }
  int64_t lane_count(int lane, int lanes) const {
    int64_t total = 0;
    for (size_t block = 0; block < blocks.size(); ++block) total += slice(block, lane, lanes).count;
    return total;
  }
  int64_t count() const {
    int64_t total = 0;
    for (const Part& block : blocks) total += block.count;
    return total;
  }
};

// Cuts one array after the other, each from its beginning to its end.
class Segments {
 public:
  Segments(const Topology& topology, const MpistratWireTuning& tuning)
      : topology_(topology), tuning_(tuning) {}

  // Whether `count` elements are enough for a ring.
  bool is_ring(int64_t count, int64_t itemsize) const;

  // Cut an array that every rank has, and of which each node gets a block to reduce.
  void begin_shared(int64_t count, int64_t itemsize);
  // Cut an array of which the root's node has all; it goes on from node to node.
  void begin_rooted(int64_t count, int64_t itemsize, int root);
  // Cut an array that consists of a block of every rank, in rank order; `counts` has to stay.
  void begin_owned(const int64_t* counts, int64_t itemsize);

  // Cut the next piece; returns false if there is none.
  bool next(Segment* segment);

 private:
  enum class Kind { kShared, kRooted, kOwned };

  int64_t lane_elements(int64_t nbytes) const;
  void stretch(int64_t count, int64_t least, int64_t most);
  void stretch_blocks(int64_t count, int64_t blocks);
  bool next_owner();
  Segment::Part owned(size_t node) const;
  void fill(Segment* segment, int64_t count) const;

  const Topology& topology_;
  const MpistratWireTuning& tuning_;
  Kind kind_ = Kind::kShared;
  bool is_ring_ = false;
  int64_t itemsize_ = 1;
  int64_t count_ = 0, each_ = 1, at_ = 0;  // the stretch that is cut
  int root_node_ = 0, owner_ = 0;
  const int64_t* counts_ = nullptr;
  std::vector<int64_t> starts_;
};

}  // namespace mpistrat::wire

#endif  // MPISTRAT_WIRE_PIPELINE_SEGMENTS_H_
