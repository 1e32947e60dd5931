#ifndef MPISTRAT_WIRE_ALGORITHMS_TREE_H_
#define MPISTRAT_WIRE_ALGORITHMS_TREE_H_

// Broadcast between the nodes by a binomial tree, in as few steps as possible.

#include "../node_peers.h"
#include "../schedule.h"

namespace mpistrat::wire {

// Copy one peer's block to all others, which hand it on.
void tree_bcast(Schedule& schedule, const NodePeers& peers, int from, const Block& block,
                int64_t itemsize);

}  // namespace mpistrat::wire

#endif  // MPISTRAT_WIRE_ALGORITHMS_TREE_H_
