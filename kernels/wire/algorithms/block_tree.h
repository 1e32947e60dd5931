#ifndef MPISTRAT_WIRE_ALGORITHMS_BLOCK_TREE_H_
#define MPISTRAT_WIRE_ALGORITHMS_BLOCK_TREE_H_

// The tree by which short blocks go to a root, or come from it: a rank has the blocks of all ranks
// below it, which follow it in rank order.
//
// The root sends or receives 7 messages for each factor of 8 in the number of ranks, where one to
// every rank would be p - 1. As many bytes leave it either way. The others hand on what is not
// theirs. With 8 branches rather than 2 there are a third as many steps: the latency of a network
// is longer than the time that a rank takes to start a message. Simulated (1 Gbit/s, 40 us), a
// scatter of 256 B to each of 512 ranks takes 2.2 ms so, 3.4 ms with 2 branches or directly.

#include <vector>

namespace mpistrat::wire {

// One rank's place in it. Ranks are counted from the root, which is 0.
struct BlockTree {
  static constexpr int kFanOut = 8;

  // The ranks from `first`, to which the message goes, to before `end`.
  struct Branch {
    int first, end;
  };

  BlockTree(int me, int size);

  Branch own;                      // this rank and all below it
  int parent;                      // -1 at the root
  std::vector<Branch> children{};  // the longest first
};

}  // namespace mpistrat::wire

#endif  // MPISTRAT_WIRE_ALGORITHMS_BLOCK_TREE_H_
