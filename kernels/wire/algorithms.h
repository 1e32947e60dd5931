#ifndef MPISTRAT_WIRE_ALGORITHMS_H_
#define MPISTRAT_WIRE_ALGORITHMS_H_

// Algorithms between the nodes, as scripts: around a ring of the nodes, each of which sends to the
// next and hears from the one before; or in as few steps as possible.
//
// On a ring (p - 1)/p of the data go out and come in, in p - 1 messages each way: the least that is
// possible. MPI libraries mostly choose other algorithms by default, for which the wire is too
// slow. The order of a block's reduction is that of the ring, and ends with the node that gets it.
// Blocks of no elements are not sent.

#include <vector>

#include "script.h"
#include "topology.h"

namespace mpistrat::wire {

// One stop of a ring or a tree for each node: the ranks of a lane, or the leaders.
struct Stops {
  int index;               // this rank's
  std::vector<int> ranks;  // by node

  static Stops of(const Topology& topology, int lane);
  int count() const { return static_cast<int>(ranks.size()); }
  // The rank that is so many stops ahead, or behind.
  int at(int distance) const { return ranks[static_cast<size_t>(wrap(index + distance))]; }
  int wrap(int stop) const { return (stop % count() + count()) % count(); }
};

// Reduce block i of all ranks' `sources` into stop i's `into`, which may be the rank's own source.
// `spare` has room for two of the longest blocks.
void ring_reduce_scatter(Script& script, const Stops& stops, const std::vector<Block>& sources,
                         void* into, uint8_t* spare, const Arithmetic& how);

// Copy block i of stop i into every rank's block i.
void ring_allgather(Script& script, const Stops& stops, const std::vector<Block>& blocks,
                    int64_t itemsize);

// Copy one stop's block to all others, which hand it on.
void tree_bcast(Script& script, const Stops& stops, int from, const Block& block, int64_t itemsize);

// Reduce `count` elements at `data` over all stops; `spare` has room for as many.
void doubling_allreduce(Script& script, const Stops& stops, uint8_t* data, uint8_t* spare,
                        int64_t count, const Arithmetic& how);

}  // namespace mpistrat::wire

#endif  // MPISTRAT_WIRE_ALGORITHMS_H_
