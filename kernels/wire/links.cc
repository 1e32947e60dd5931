#include "links.h"

namespace mpistrat::wire {

void NodeCall::clear(int kind) {
  spec = {};
  spec.kind = kind;
  sends_.clear();
  recvs_.clear();
  blocks.clear();
}

void NodeCall::add(std::vector<MpistratPiece>* list, const void* data, int64_t nbytes) {
  if (nbytes > 0) list->push_back({const_cast<void*>(data), nbytes});
}

void NodeCall::add(std::vector<MpistratPiece>* list, Pieces& pieces, int64_t offset,
                   int64_t nbytes) {
  pieces.for_each(offset, nbytes, [&](uint8_t* data, int64_t n) { add(list, data, n); });
}

void NodeCall::begin(MpistratCalls* node) {
  spec.send = sends_.data();
  spec.num_send = static_cast<int32_t>(sends_.size());
  spec.recv = recvs_.data();
  spec.num_recv = static_cast<int32_t>(recvs_.size());
  spec.send_bytes = spec.recv_bytes = blocks.data();
  for (int64_t nbytes : blocks) spec.most_bytes = std::max(spec.most_bytes, nbytes);
  mpistrat_begin(node, &spec);
}

Links::Links(const MpistratMpi& mpi, MpistratNode* node_of, const Topology& topology_of)
    : topology(topology_of),
      node(node_of ? mpistrat_node_calls(node_of) : nullptr),
      lane(topology.has_lane() ? NodePeers::of(topology, topology.local)
                               : NodePeers{topology.index, {}}),
      leaders(NodePeers::of(topology, 0)),
      messages(mpi) {}

void Links::begin_node_call() {
  call.begin(node);
  node_status_ = MPISTRAT_WAITING;
}

bool Links::advance_node(uint64_t budget_ns) {
  if (node_status_ != MPISTRAT_WAITING) return true;
  node_status_ = mpistrat_wait(node, budget_ns);
  if (node_status_ == MPISTRAT_WAITING) return false;
  ++num_node_calls_;
  return true;
}

}  // namespace mpistrat::wire
