#ifndef MPISTRAT_WIRE_PIPELINE_SEGMENT_FLOW_H_
#define MPISTRAT_WIRE_PIPELINE_SEGMENT_FLOW_H_

// A segment in flight: loaded from the node, carried between the nodes, stored on the node.

#include <cstdint>
#include <memory>
#include <vector>

#include "../links.h"
#include "../schedule.h"
#include "segments.h"

namespace mpistrat::wire {

// Memory that is given out piece by piece, and taken back all at once.
class Scratch {
 public:
  // Take everything back; `nbytes` and some more will be given out.
  void reset(int64_t nbytes);
  uint8_t* take(int64_t nbytes);

 private:
  static constexpr int64_t kAlign = 64;

  std::unique_ptr<uint8_t[]> memory_;  // not initialised: what is never used costs nothing
  int64_t nbytes_ = 0, at_ = 0;
};

struct InFlight {
  Segment segment;
  Schedule schedule;
  Scratch scratch;
  std::vector<Block> sources, targets;  // this rank's slices of the blocks, before and after
};

// What happens to the segments of a call. load() and store() describe the node's calls; they return
// false where there is none to make.
class SegmentFlow {
 public:
  explicit SegmentFlow(Links& links) : links_(links) {}
  virtual ~SegmentFlow() = default;

  virtual bool load(InFlight& in_flight) = 0;
  virtual void carry(InFlight& in_flight) = 0;
  virtual bool store(InFlight& in_flight) = 0;

 protected:
  const Topology& topology() const { return links_.topology; }
  // How much each rank of this node carries of all blocks, or of the node's own.
  void list_totals(const Segment& segment, int64_t itemsize);
  int64_t list_own(const Segment& segment, int64_t itemsize);
  int64_t lane_count(const InFlight& in_flight) const;
  // Cut `data` in this rank's slices of the blocks.
  void cut(const InFlight& in_flight, uint8_t* data, int64_t itemsize,
           std::vector<Block>* blocks) const;
  // Point to this rank's slices in the caller's memory, or to copies where they lie in pieces.
  void find(InFlight& in_flight, Pieces& pieces, int64_t itemsize,
            std::vector<Block>* blocks) const;
  void copy_in(const InFlight& in_flight, Pieces& pieces, int64_t itemsize) const;
  // Describe the segment's parts of `pieces`, lane by lane, as what the node's call writes.
  void receive_all(const Segment& segment, Pieces& pieces, int64_t itemsize);
  bool store_all(InFlight& in_flight, Pieces& pieces, int64_t itemsize);

  Links& links_;
};

}  // namespace mpistrat::wire

#endif  // MPISTRAT_WIRE_PIPELINE_SEGMENT_FLOW_H_
