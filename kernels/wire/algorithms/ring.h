#ifndef MPISTRAT_WIRE_ALGORITHMS_RING_H_
#define MPISTRAT_WIRE_ALGORITHMS_RING_H_

// Reduce-scatter and all-gather around a ring of the nodes, each of which sends to the next and
// hears from the one before.
//
// (p - 1)/p of the data go out and come in, in p - 1 messages each way: the least that is possible.
// MPI libraries mostly choose other algorithms by default, for which the network is too slow. The
// order of a block's reduction is that of the ring, and ends with the node that gets it. Blocks of
// no elements are not sent.

#include <vector>

#include "../node_peers.h"
#include "../schedule.h"

namespace mpistrat::wire {

// Reduce block i of all ranks' `sources` into peer i's `into`, which may be the rank's own source.
// `spare` has room for two of the longest blocks.
void ring_reduce_scatter(Schedule& schedule, const NodePeers& peers,
                         const std::vector<Block>& sources, void* into, uint8_t* spare,
                         const Arithmetic& how);

// Copy block i of peer i into every rank's block i.
void ring_allgather(Schedule& schedule, const NodePeers& peers, const std::vector<Block>& blocks,
                    int64_t itemsize);

}  // namespace mpistrat::wire

#endif  // MPISTRAT_WIRE_ALGORITHMS_RING_H_
