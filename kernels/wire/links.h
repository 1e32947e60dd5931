#ifndef MPISTRAT_WIRE_LINKS_H_
#define MPISTRAT_WIRE_LINKS_H_

// A rank's connections: the shared memory of its node, and messages to the other nodes.

#include <cstdint>
#include <vector>

#include "../common/pieces.h"
#include "../mpi/messages.h"
#include "mpistrat/shm.h"
#include "node_peers.h"
#include "topology.h"

namespace mpistrat::wire {

// A call of the node, being described; it keeps its memory for the next one.
class NodeCall {
 public:
  MpistratSpec spec = {};

  void clear(int kind);
  void send(const void* data, int64_t nbytes) { add(&sends_, data, nbytes); }
  void receive(void* data, int64_t nbytes) { add(&recvs_, data, nbytes); }
  // The same for a range of a list of pieces.
  void send(Pieces& pieces, int64_t offset, int64_t nbytes) {
    add(&sends_, pieces, offset, nbytes);
  }
  void receive(Pieces& pieces, int64_t offset, int64_t nbytes) {
    add(&recvs_, pieces, offset, nbytes);
  }
  // Bytes of the blocks of this node's ranks, in their order.
  std::vector<int64_t> blocks;

  void begin(MpistratCalls* node);

 private:
  static void add(std::vector<MpistratPiece>* list, const void* data, int64_t nbytes);
  static void add(std::vector<MpistratPiece>* list, Pieces& pieces, int64_t offset, int64_t nbytes);

  std::vector<MpistratPiece> sends_, recvs_;
};

class Links {
 public:
  Links(const MpistratMpi& mpi, MpistratNode* node_of, const Topology& topology_of);

  const Topology& topology;
  MpistratCalls* const node;      // null if this rank is alone on its machine
  const NodePeers lane, leaders;  // `lane` has no ranks where this rank has no lane
  Messages messages;
  NodeCall call;

  // Begin the call that was described; the one before must be over.
  void begin_node_call();
  // Go on with the node's call; returns whether none is under way.
  bool advance_node(uint64_t budget_ns = 0);
  bool is_node_busy() const { return node_status_ == MPISTRAT_WAITING; }
  // How the last one has ended.
  int node_status() const { return node_status_; }
  // How often a message, or a call of the node, has been completed.
  int64_t num_events() const { return num_node_calls_ + messages.num_completed(); }

 private:
  int64_t num_node_calls_ = 0;
  int node_status_ = MPISTRAT_DONE;
};

}  // namespace mpistrat::wire

#endif  // MPISTRAT_WIRE_LINKS_H_
