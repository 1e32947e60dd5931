// The collectives by direct messages, with threads as ranks: every kind and root on placements of
// one to 35 ranks, blocks of unequal lengths and of none, in one piece and in several, messages
// that are cut, sends that wait for their receivers, random delays, and calls that differ.

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <random>
#include <utility>

#include "../wire/algorithms/block_tree.h"
#include "helpers/values.h"
#include "helpers/wire_ranks.h"

namespace {

using mpistrat_test::append;
using mpistrat_test::cut;
using mpistrat_test::finish;
using mpistrat_test::is_same;
using mpistrat_test::on_ranks;
using mpistrat_test::Rank;
using mpistrat_test::Setting;
using mpistrat_test::show;
using Bytes = std::vector<uint8_t>;
using Counts = std::vector<int64_t>;

constexpr int kKinds[] = {MPISTRAT_GATHER, MPISTRAT_SCATTER, MPISTRAT_ALLTOALL, MPISTRAT_ALLGATHER};
constexpr uint8_t kUntouched = 0xee;

// A call, alike on all ranks: blocks have up to `most` bytes.
struct Case {
  int kind, root;
  int64_t most;
  int salt;
  bool crosses;

  // Who sends a block, and to whom; -1 is everyone, who all get the same.
  Bytes block(int from, int to) const {
    const int64_t lengths[] = {most, 0, 1, most / 2, most};
    Bytes bytes;
    append(bytes, lengths[(from * 3 + to * 2 + 2 + salt) % 5], 199,
           [&](int64_t i) { return (from * 89 + to * 31 + i * 7 + salt) % 199; });
    return bytes;
  }
  bool is_to_all() const { return kind == MPISTRAT_ALLTOALL || kind == MPISTRAT_SCATTER; }
};

// The blocks of one side of a call, one after the other.
struct Side {
  Bytes bytes;
  Counts counts;

  void add(const Bytes& block) {
    bytes.insert(bytes.end(), block.begin(), block.end());
    counts.push_back(static_cast<int64_t>(block.size()));
  }
};

Side sent(const Case& c, const Rank& me) {
  Side side;
  if (!c.is_to_all()) {
    side.add(c.block(me.rank, -1));
  } else if (c.kind == MPISTRAT_ALLTOALL || me.rank == c.root) {
    for (int to = 0; to < me.size; ++to) side.add(c.block(me.rank, to));
  } else {  // all know the lengths of what the root scatters
    for (int to = 0; to < me.size; ++to) side.add(c.block(c.root, to));
    side.bytes.clear();
  }
  return side;
}

Side received(const Case& c, const Rank& me) {
  Side side;
  if (c.kind == MPISTRAT_SCATTER) {
    side.add(c.block(c.root, me.rank));
    return side;
  }
  for (int from = 0; from < me.size; ++from)
    side.add(c.block(from, c.kind == MPISTRAT_ALLTOALL ? me.rank : -1));
  if (c.kind == MPISTRAT_GATHER && me.rank != c.root) side.bytes.clear();
  return side;
}

// Make the call; returns its status, and in `recv` what came.
int call(Rank& me, const Case& c, Bytes* recv) {
  Side send = sent(c, me), recvs = received(c, me);
  recv->assign(recvs.bytes.size(), kUntouched);
  const auto from = cut(send.bytes.data(), send.bytes.size(), 1, 1 + c.salt % 3);
  const auto to = cut(recv->data(), recv->size(), 1, 1 + c.salt % 4);
  MpistratSpec spec = {};
  spec.kind = c.kind;
  spec.root = c.root;
  spec.crosses = c.crosses;
  spec.send = from.data();
  spec.num_send = static_cast<int32_t>(from.size());
  spec.recv = to.data();
  spec.num_recv = static_cast<int32_t>(to.size());
  spec.send_bytes = send.counts.data();
  spec.recv_bytes = recvs.counts.data();
  spec.most_bytes = c.salt % 2 ? c.most : 0;  // which need not be told
  return finish(me, spec);
}

void run_call(Rank& me, const Case& c) {
  if (c.crosses) show(me, c.kind, me.rank);
  Bytes recv;
  CHECK(call(me, c, &recv) == MPISTRAT_DONE);
  CHECK_AT(is_same(recv, received(c, me).bytes), "kind %d, rank %d of %d, root %d, salt %d", c.kind,
           me.rank, me.size, c.root, c.salt);
}

// A rank's line differs: all see it, and no data moves.
void run_mismatch(Rank& me, Case c, int odd) {
  c.crosses = true;
  show(me, me.rank == odd ? 7 : 8, 0);
  Bytes recv;
  CHECK(call(me, c, &recv) == MPISTRAT_MISMATCH);
  CHECK(is_same(recv, Bytes(recv.size(), kUntouched)));
}

// A block of the rank that lies where it belongs, as the root's own may, stays as it is.
void run_in_place(Rank& me, int kind) {
  const Case c{kind, 0, 50, 0, false};
  Side side = received(c, me);
  const Bytes expected = side.bytes;
  Bytes own = c.block(me.rank, -1);
  int64_t start = 0;
  for (int before = 0; before < me.rank; ++before)
    start += side.counts[static_cast<size_t>(before)];
  MpistratPiece from{own.data(), static_cast<int64_t>(own.size())};
  if (!side.bytes.empty()) {
    std::fill(side.bytes.begin(), side.bytes.end(), kUntouched);
    from.data = side.bytes.data() + start;
    if (!own.empty()) std::memcpy(from.data, own.data(), own.size());
  }
  const MpistratPiece to{side.bytes.data(), static_cast<int64_t>(side.bytes.size())};
  MpistratSpec spec = {};
  spec.kind = kind;
  spec.send = &from;
  spec.recv = &to;
  spec.num_send = spec.num_recv = 1;
  spec.recv_bytes = side.counts.data();
  CHECK(finish(me, spec) == MPISTRAT_DONE);
  CHECK(is_same(side.bytes, expected));
}

void run_rank(Rank& me, const Setting& setting) {
  const int64_t most = std::min<int64_t>(300 * setting.tuning.max_count, 3000);
  std::mt19937 same(5), own(static_cast<unsigned>(me.rank));
  for (int kind : kKinds) {
    const bool is_rooted = kind == MPISTRAT_GATHER || kind == MPISTRAT_SCATTER;
    const int step = me.size > 8 ? 17 : 1;  // of many ranks, some are roots
    for (int root = 0; root < (is_rooted ? me.size : std::min(me.size, 2)); root += step)
      for (int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{8}, most}) {
        const int salt = static_cast<int>(same() % 1000);
        if (same() % 2) std::this_thread::sleep_for(std::chrono::microseconds(own() % 200));
        run_call(me, {kind, root, bytes, salt, salt % 2 == 0});
        if (bytes != 8 || me.size == 1) continue;
        // By turns each rank, or where there are no roots the first and the last.
        const int odd = root == 0 ? 0 : me.size - root;
        run_mismatch(me, {kind, root, bytes, salt, true}, odd);
      }
    if (kind == MPISTRAT_GATHER || kind == MPISTRAT_ALLGATHER) run_in_place(me, kind);
  }
}

// All-gathers go around a ring from the length on of which each node has a message to send.
void check_limit() {
  const Setting setting{{0, 1, 2, 3}, {400, 1000, 1000, 1 << 30}};
  for (const auto& [nbytes, messages] : {std::pair{999, 2}, std::pair{1000, 3}}) {
    fake::world().num_sent = 0;
    on_ranks(setting, [each = nbytes](Rank& me) {
      Bytes mine(static_cast<size_t>(each), static_cast<uint8_t>(me.rank)), all(4 * mine.size());
      const auto send = cut(mine.data(), mine.size(), 1, 1),
                 recv = cut(all.data(), all.size(), 1, 1);
      const Counts counts(4, each);
      MpistratSpec spec = {};
      spec.kind = MPISTRAT_ALLGATHER;
      spec.send = send.data();
      spec.recv = recv.data();
      spec.num_send = spec.num_recv = 1;
      spec.recv_bytes = counts.data();
      CHECK(finish(me, spec) == MPISTRAT_DONE);
      for (size_t i = 0; i < all.size(); ++i) CHECK(all[i] == i / mine.size());
    });
    CHECK_AT(fake::world().num_sent == 4 * messages, "%d bytes a rank: %d messages", nbytes,
             fake::world().num_sent.load());
  }
}

// Every rank is in the branches of its ancestors alone, which are its parents' children.
void check_trees() {
  using mpistrat::wire::BlockTree;
  for (int size : {1, 2, 8, 9, 35, 64, 65, 600})
    for (int me = 0; me < size; ++me) {
      const BlockTree tree(me, size);
      CHECK(tree.own.first == me && (tree.parent < 0) == (me == 0));
      std::vector<int> below(static_cast<size_t>(size));
      for (const auto& child : tree.children) {
        const BlockTree its(child.first, size);
        CHECK(its.parent == me && its.own.end == child.end);
        for (int rank = child.first; rank < child.end; ++rank) ++below[static_cast<size_t>(rank)];
      }
      for (int rank = 0; rank < size; ++rank)
        CHECK(below[static_cast<size_t>(rank)] == (me < rank && rank < tree.own.end));
    }
}

}  // namespace

int main() {
  constexpr int64_t kLong = 1 << 20;  // no all-gather of this test is a ring
  std::vector<int32_t> of_many;
  for (int rank = 0; rank < 35; ++rank) of_many.push_back(rank * rank % 7);
  const Setting settings[] = {
      {{0}, {400, kLong, kLong, 1 << 30}},
      {{0, 1}, {400, kLong, kLong, 7}},
      {{0, 1, 0}, {400, kLong, kLong, 1}},
      {{0, 0, 1, 1}, {8192, kLong, kLong, 1 << 30}},
      {{1, 0, 1, 2, 1}, {0, kLong, kLong, 100}},
      {{0, 1, 2, 3, 4, 5}, {400, kLong, kLong, 1000}},
      {{0, 1, 2, 1, 0, 2, 0}, {400, 100, 512, 40}},  // some are
      {{0, 0, 0, 0, 0, 1, 1, 2}, {400, kLong, kLong, 33}},
      // Enough ranks for gather and scatter by a tree.
      {of_many, {400, kLong, kLong, 1 << 30}},
  };
  check_limit();
  check_trees();
  fake::world().most_pending = 64;
  for (const Setting& setting : settings) {
    fake::world().late_percent = setting.node_of.size() % 2 ? 60 : 0;
    const bool is_cut = setting.tuning.ring_bytes == kLong;
    fake::world().most_bytes = is_cut ? static_cast<int>(setting.tuning.max_count) : INT_MAX;
    for (bool is_synchronous : {false, true}) {
      fake::world().is_synchronous = is_synchronous;
      on_ranks(setting, [&](Rank& me) { run_rank(me, setting); });
      CHECK(fake::world().messages.empty());
    }
  }
}
