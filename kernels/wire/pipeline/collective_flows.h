#ifndef MPISTRAT_WIRE_PIPELINE_COLLECTIVE_FLOWS_H_
#define MPISTRAT_WIRE_PIPELINE_COLLECTIVE_FLOWS_H_

// The collectives as flows of segments: those that reduce, and those that copy.

#include "segment_flow.h"

namespace mpistrat::wire {

// allreduce: the ranks of a node reduce their arrays in shared memory, every rank a slice; each
// slice is reduced over its lane; the ranks of the node gather the slices. Half types are float32
// until they are rounded, once, at the end.
class Reduction : public SegmentFlow {
 public:
  Reduction(Links& links, const Arithmetic& how, Pieces send, Pieces recv)
      : SegmentFlow(links), how_(how), send_(send), recv_(recv) {}

  bool load(InFlight& in_flight) override;
  void carry(InFlight& in_flight) override;
  bool store(InFlight& in_flight) override {
    return store_all(in_flight, recv_, how_.result_itemsize());
  }

 protected:
  void load_alone(InFlight& in_flight);
  void carry_whole(InFlight& in_flight);
  void reserve(InFlight& in_flight) const;
  void widen(Pieces& pieces, int64_t start, int64_t count, uint8_t* to) const;

  const Arithmetic how_;
  Pieces send_, recv_;
};

// reduce, reduce_scatter: the first half of that; a block goes to its owner.
class OwnReduction : public Reduction {
 public:
  using Reduction::Reduction;
  void carry(InFlight& in_flight) override;
  bool store(InFlight& in_flight) override;
};

// bcast, allgather: the second half. The owner's block is cut for the lanes, and goes from node to
// node.
class Copies : public SegmentFlow {
 public:
  Copies(Links& links, int64_t itemsize, Pieces send, Pieces recv, int from)
      : SegmentFlow(links), itemsize_(itemsize), from_(from), send_(send), recv_(recv) {}

  bool load(InFlight& in_flight) override;
  void carry(InFlight& in_flight) override;
  bool store(InFlight& in_flight) override { return store_all(in_flight, recv_, itemsize_); }

 private:
  bool has_block(const InFlight& in_flight) const {
    return !in_flight.segment.is_whole || topology().index == from_;
  }
  void load_alone(InFlight& in_flight);

  const int64_t itemsize_;
  const int from_;  // the node where all begins, of short arrays
  Pieces send_, recv_;
};

}  // namespace mpistrat::wire

#endif  // MPISTRAT_WIRE_PIPELINE_COLLECTIVE_FLOWS_H_
