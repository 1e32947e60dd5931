#ifndef MPISTRAT_WIRE_NODE_PEERS_H_
#define MPISTRAT_WIRE_NODE_PEERS_H_

// The peers of a ring or a tree between the nodes: one rank of each node, those of a lane or the
// leaders.

#include <cstddef>
#include <vector>

#include "topology.h"

namespace mpistrat::wire {

struct NodePeers {
  int index;               // this rank's
  std::vector<int> ranks;  // by node

  static NodePeers of(const Topology& topology, int lane);
  int count() const { return static_cast<int>(ranks.size()); }
  // The rank that is so many peers ahead, or behind.
  int at(int distance) const { return ranks[static_cast<size_t>(wrap(index + distance))]; }
  int wrap(int peer) const { return (peer % count() + count()) % count(); }
};

}  // namespace mpistrat::wire

#endif  // MPISTRAT_WIRE_NODE_PEERS_H_
