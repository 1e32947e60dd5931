#include "node_peers.h"

namespace mpistrat::wire {

NodePeers NodePeers::of(const Topology& topology, int lane) {
  NodePeers peers{topology.index, {}};
  for (const auto& group : topology.groups) peers.ranks.push_back(group[static_cast<size_t>(lane)]);
  return peers;
}

}  // namespace mpistrat::wire
