#include "direct_messages.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace mpistrat::wire {
namespace {

// Messages of a rank under way at a time. Before it begins another one, it waits for the one that
// it began so many before. That ends, since all ranks begin theirs in one order, that of the steps
// and then of the bytes: whoever is behind all others waits for messages that they have begun.
constexpr int kWindow = 64;

// Between more ranks than this, blocks of up to so many bytes on average go by a tree. Fewer
// messages, or longer ones, are better sent by the root: a tree adds steps, and sends the data
// again. Simulated with 0.5 to 5 us to start a message, us a gather of 512 B a rank at 1 Gbit/s and
// 40 us of latency: of 64 ranks, 595 by the tree and 926 directly; of 1024, 6044 and 13362.
constexpr int64_t kTreeRanks = 32, kTreeBlockBytes = 2 << 10;

const int64_t* rooted_blocks(const MpistratSpec& spec) {
  return spec.kind == MPISTRAT_GATHER ? spec.recv_bytes : spec.send_bytes;
}

}  // namespace

void Direct::begin(const MpistratSpec& spec, int64_t most_bytes) {
  most_bytes_ = std::min<int64_t>(most_bytes, INT32_MAX);  // MPI counts in int
  send_ = Pieces(spec.send, spec.num_send);
  recv_ = Pieces(spec.recv, spec.num_recv);
  schedule_.clear(tag_);
  if (spec.kind == MPISTRAT_ALLGATHER) {
    begin_allgather(spec.recv_bytes);
  } else if (is_tree(spec)) {
    begin_tree(spec);
  } else {
    begin_blocks(spec);
  }
}

// ----------------------------------------------------------------- gather, scatter, all-to-all

// In step d, a rank hears from the one d before it and sends to the one d behind it: in an
// all-to-all, nobody hears from all at once.
void Direct::begin_blocks(const MpistratSpec& spec) {
  list_blocks(spec);
  for (int step = 1; step < links_.topology.size; ++step) {
    const int from = peer(-step), to = peer(step);
    exchange(incoming_[static_cast<size_t>(from)], from, outgoing_[static_cast<size_t>(to)], to);
  }
  schedule_.call(keep_own, this, links_.topology.rank);
  schedule_.await_all();
  if (received_) schedule_.call(store, this, 0);
}

// Find what goes to whom in the caller's memory, or in copies where it lies in pieces.
void Direct::list_blocks(const MpistratSpec& spec) {
  const int64_t sent = send_.nbytes(), received = recv_.nbytes();
  uint8_t *from = send_.contiguous(0, sent), *to = recv_.contiguous(0, received);
  scratch_.reset((from ? 0 : sent) + (to ? 0 : received));
  if (!from) {
    from = scratch_.take(sent);
    send_.copy_out(0, from, sent);
  }
  received_ = to ? nullptr : scratch_.take(received);
  if (!to) to = received_;
  const bool is_root = links_.topology.rank == spec.root;
  if (spec.kind == MPISTRAT_GATHER) {
    incoming_ = is_root ? cut(to, spec.recv_bytes) : only(spec.root, to, 0);
    outgoing_ = only(spec.root, from, sent);
  } else if (spec.kind == MPISTRAT_SCATTER) {
    incoming_ = only(spec.root, to, received);
    outgoing_ = is_root ? cut(from, spec.send_bytes) : only(spec.root, from, 0);
  } else {
    incoming_ = cut(to, spec.recv_bytes);
    outgoing_ = cut(from, spec.send_bytes);
  }
}

Direct::Blocks Direct::cut(uint8_t* data, const int64_t* nbytes) const {
  Blocks blocks;
  for (int rank = 0; rank < links_.topology.size; data += nbytes[rank++])
    blocks.push_back({data, nbytes[rank]});
  return blocks;
}

Direct::Blocks Direct::only(int rank, uint8_t* data, int64_t nbytes) const {
  Blocks blocks(static_cast<size_t>(links_.topology.size), {nullptr, 0});
  blocks[static_cast<size_t>(rank)] = {data, nbytes};
  return blocks;
}

void Direct::keep_own(void* self, int rank) {
  const auto* direct = static_cast<Direct*>(self);
  const Block& in = direct->incoming_[static_cast<size_t>(rank)];
  const Block& out = direct->outgoing_[static_cast<size_t>(rank)];
  if (in.count && in.data != out.data)
    std::memcpy(in.data, out.data, static_cast<size_t>(in.count));
}

void Direct::store(void* self, int) {
  auto* direct = static_cast<Direct*>(self);
  direct->recv_.copy_in(0, direct->received_, direct->recv_.nbytes(), false);
}

// ---------------------------------------------------------- gather and scatter of short blocks

// All ranks know the lengths of all blocks, and so come to the same answer.
bool Direct::is_tree(const MpistratSpec& spec) const {
  const int64_t size = links_.topology.size;
  if (spec.kind == MPISTRAT_ALLTOALL || size <= kTreeRanks) return false;
  const int64_t* blocks = rooted_blocks(spec);
  return std::accumulate(blocks, blocks + size, int64_t{0}) <= kTreeBlockBytes * size;
}

void Direct::begin_tree(const MpistratSpec& spec) {
  const int size = links_.topology.size, me = peer(-spec.root);
  const int64_t* nbytes = rooted_blocks(spec);
  const BlockTree tree(me, size);
  root_ = spec.root;
  own_start_ = std::accumulate(nbytes, nbytes + links_.topology.rank, int64_t{0});
  starts_.assign(1, 0);
  for (int ahead = 0; ahead < tree.own.end - me; ++ahead)
    starts_.push_back(starts_.back() + nbytes[peer(ahead)]);
  scratch_.reset(starts_.back());
  received_ = scratch_.take(starts_.back());
  if (spec.kind == MPISTRAT_GATHER) {
    gather_by(tree);
  } else {
    scatter_by(tree);
  }
}

void Direct::gather_by(const BlockTree& tree) {
  send_.copy_out(0, received_, starts_[1]);
  for (const auto& child : tree.children)
    exchange(branch(child), from_root(child.first), {nullptr, 0}, 0);
  schedule_.await_all();
  if (tree.parent < 0) {
    schedule_.call(store_turned, this, 0);
  } else {
    exchange({nullptr, 0}, 0, branch(tree.own), from_root(tree.parent));
    schedule_.await_all();
  }
}

void Direct::scatter_by(const BlockTree& tree) {
  if (tree.parent < 0) {
    const int64_t after = starts_.back() - own_start_;
    send_.copy_out(own_start_, received_, after);
    send_.copy_out(0, received_ + after, own_start_);
  } else {
    exchange(branch(tree.own), from_root(tree.parent), {nullptr, 0}, 0);
    schedule_.await_all();
  }
  for (const auto& child : tree.children)
    exchange({nullptr, 0}, 0, branch(child), from_root(child.first));
  schedule_.call(store_own, this, 0);
  schedule_.await_all();
}

// The blocks of the ranks of a branch, which `received_` has from this rank's on.
Block Direct::branch(BlockTree::Branch ranks) const {
  const int me = peer(-root_);
  const int64_t start = starts_[static_cast<size_t>(ranks.first - me)];
  return {received_ + start, starts_[static_cast<size_t>(ranks.end - me)] - start};
}

int Direct::from_root(int distance) const { return (root_ + distance) % links_.topology.size; }

void Direct::store_own(void* self, int) {
  auto* direct = static_cast<Direct*>(self);
  direct->recv_.copy_in(0, direct->received_, direct->starts_[1], false);
}

// ------------------------------------------------------------------------ short all-gathers

// Each step doubles the blocks that a rank has: its own, the next one's, the next two's (Bruck).
// They lie in that order until all are there.
void Direct::begin_allgather(const int64_t* nbytes) {
  const int size = links_.topology.size;
  std::vector<int64_t> starts{0};
  for (int ahead = 0; ahead < size; ++ahead) starts.push_back(starts.back() + nbytes[peer(ahead)]);
  const auto blocks = [&](int first, int end) -> Block {
    const int64_t start = starts[static_cast<size_t>(first)];
    return {received_ + start, starts[static_cast<size_t>(end)] - start};
  };
  scratch_.reset(starts.back());
  received_ = scratch_.take(starts.back());
  own_start_ = blocks(size - links_.topology.rank, size).count;
  send_.copy_out(0, received_, nbytes[links_.topology.rank]);
  for (int have = 1; have < size; have *= 2) {
    const int more = std::min(have, size - have);
    exchange(blocks(have, have + more), peer(have), blocks(0, more), peer(-have));
    schedule_.await_all();  // what came in goes on in the next step
  }
  schedule_.call(store_turned, this, 0);
}

void Direct::store_turned(void* self, int) {
  auto* direct = static_cast<Direct*>(self);
  const int64_t start = direct->own_start_, nbytes = direct->recv_.nbytes() - start;
  direct->recv_.copy_in(start, direct->received_, nbytes, false);
  direct->recv_.copy_in(0, direct->received_ + nbytes, start, false);
}

// -------------------------------------------------------------------------------- messages

// Receive and send a block, each in as many messages as it needs. A block of no bytes needs none:
// both sides know.
void Direct::exchange(const Block& in, int from, const Block& out, int to) {
  const auto part = [&](const Block& block, int64_t start) {
    return std::min(block.count - start, most_bytes_);
  };
  for (int64_t start = 0; start < std::max(in.count, out.count); start += most_bytes_) {
    if (start < in.count) wrote(schedule_.receive(in.data + start, part(in, start), from));
    if (start < out.count) wrote(schedule_.send(out.data + start, part(out, start), to));
  }
}

void Direct::wrote(int message) {
  if (message + 1 >= kWindow) schedule_.await(message + 1 - kWindow);
}

int Direct::peer(int distance) const {
  const int size = links_.topology.size;
  return (links_.topology.rank + distance + size) % size;
}

}  // namespace mpistrat::wire
