#include "topology.h"

#include <algorithm>
#include <map>

namespace mpistrat::wire {

Topology::Topology(int rank_, int size_, const int32_t* names) : rank(rank_), size(size_) {
  std::map<int32_t, int> known;
  for (int of = 0; of < size; ++of) {
    const int node = known.emplace(names[of], num_nodes()).first->second;
    if (node == num_nodes()) groups.emplace_back();
    auto& group = groups[static_cast<size_t>(node)];
    node_of.push_back(node);
    local_of.push_back(static_cast<int>(group.size()));
    group.push_back(of);
  }
  index = node_of[static_cast<size_t>(rank)];
  local = local_of[static_cast<size_t>(rank)];
  lanes = most = static_cast<int>(groups[0].size());
  for (const auto& group : groups) {
    lanes = std::min(lanes, static_cast<int>(group.size()));
    most = std::max(most, static_cast<int>(group.size()));
  }
}

}  // namespace mpistrat::wire
