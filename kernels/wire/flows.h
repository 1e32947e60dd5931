#ifndef MPISTRAT_WIRE_FLOWS_H_
#define MPISTRAT_WIRE_FLOWS_H_

// The collectives that reduce, and those that copy, turn by turn.

#include "turn.h"

namespace mpistrat::wire {

// allreduce: the ranks of a node reduce their arrays in shared memory, every rank a slice; each
// slice is reduced over its lane; the ranks of the node gather the slices. Half types are float32
// until they are rounded, once, at the end.
class Reduction : public Flow {
 public:
  Reduction(Links& links, const Arithmetic& how, Pieces send, Pieces recv)
      : Flow(links), how_(how), send_(send), recv_(recv) {}

  bool load(Turn& turn) override;
  void carry(Turn& turn) override;
  bool store(Turn& turn) override { return store_all(turn, recv_, how_.result_itemsize()); }

 protected:
  void load_alone(Turn& turn);
  void carry_whole(Turn& turn);
  void reserve(Turn& turn) const;
  void widen(Pieces& pieces, int64_t start, int64_t count, uint8_t* to) const;

  const Arithmetic how_;
  Pieces send_, recv_;
};

// reduce, reduce_scatter: the first half of that; a block goes to its owner.
class OwnReduction : public Reduction {
 public:
  using Reduction::Reduction;
  void carry(Turn& turn) override;
  bool store(Turn& turn) override;
};

// bcast, allgather: the second half. The owner's block is cut for the lanes, and goes from node to
// node.
class Copies : public Flow {
 public:
  Copies(Links& links, int64_t itemsize, Pieces send, Pieces recv, int from)
      : Flow(links), itemsize_(itemsize), from_(from), send_(send), recv_(recv) {}

  bool load(Turn& turn) override;
  void carry(Turn& turn) override;
  bool store(Turn& turn) override { return store_all(turn, recv_, itemsize_); }

 private:
  bool has_block(const Turn& turn) const {
    return !turn.segment.is_whole || places().index == from_;
  }
  void load_alone(Turn& turn);

  const int64_t itemsize_;
  const int from_;  // the node where all begins, of short arrays
  Pieces send_, recv_;
};

}  // namespace mpistrat::wire

#endif  // MPISTRAT_WIRE_FLOWS_H_
