#include "direct_messages.h"

#include <algorithm>
#include <cstring>

namespace mpistrat::wire {
namespace {

// Messages of a rank under way at a time. Before it begins another one, it waits for the one that
// it began so many before. That ends, since all ranks begin theirs in one order, that of the steps
// and then of the bytes: whoever is behind all others waits for messages that they have begun.
constexpr int kWindow = 64;

}  // namespace

void Direct::begin(const MpistratSpec& spec, int64_t most_bytes) {
  most_bytes_ = std::min<int64_t>(most_bytes, INT32_MAX);  // MPI counts in int
  send_ = Pieces(spec.send, spec.num_send);
  recv_ = Pieces(spec.recv, spec.num_recv);
  schedule_.clear(tag_);
  if (spec.kind == MPISTRAT_ALLGATHER) {
    begin_allgather(spec.recv_bytes);
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
