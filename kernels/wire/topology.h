#ifndef MPISTRAT_WIRE_TOPOLOGY_H_
#define MPISTRAT_WIRE_TOPOLOGY_H_

// The topology: which ranks share a machine, and how machines and their ranks are numbered.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace mpistrat::wire {

struct Topology {
  Topology(int rank, int size, const int32_t* node_of);

  int rank, size;
  // The ranks of each node in ascending order; nodes are in the order of their lowest ranks.
  std::vector<std::vector<int>> groups;
  std::vector<int> node_of, local_of;  // by rank
  int index, local;                    // of this rank's node; of this rank on it
  int lanes;  // ranks of each node that carry data over the wire: as many as the least node has
  int most;   // ranks of the largest node

  int num_nodes() const { return static_cast<int>(groups.size()); }
  const std::vector<int>& mates() const { return groups[static_cast<size_t>(index)]; }
  bool is_leader() const { return local == 0; }
  bool has_lane() const { return local < lanes; }

  // The rank of `node` on this rank's lane, and the one that short messages go through.
  int lane_peer(int node) const { return peer(node, local); }
  int leader(int node) const { return peer(node, 0); }

 private:
  int peer(int node, int of) const {
    return groups[static_cast<size_t>(node)][static_cast<size_t>(of)];
  }
};

}  // namespace mpistrat::wire

#endif  // MPISTRAT_WIRE_TOPOLOGY_H_
