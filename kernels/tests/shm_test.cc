// The collectives of a node, with threads as ranks: every kind, many sizes, random delays.

#include "mpistrat/shm.h"

#include <sys/uio.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "helpers/check.h"
#include "helpers/reduction_cases.h"
#include "helpers/shm_cases.h"
#include "helpers/shm_ranks.h"
#include "helpers/values.h"

namespace {

using namespace mpistrat_test;

void run_case(Rank& me, const Case& c, std::mt19937& random) {
  Values send = inputs(c, me.rank), recv(static_cast<size_t>(total(received(c, me.rank))), -1);
  if (c.kind == MPISTRAT_BCAST && me.rank == c.root) recv = send;
  const auto sends = cut(send, c.num_pieces), recvs = cut(recv, c.num_pieces);
  const auto send_bytes = in_bytes(sent(c, me.rank)), recv_bytes = in_bytes(received(c, me.rank));
  if (c.is_delayed) std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
  MpistratSpec spec = {};
  spec.kind = c.kind;
  spec.crosses = c.salt % 2;
  spec.op = MPISTRAT_SUM;
  spec.dtype = MPISTRAT_FLOAT32;
  spec.root = c.root;
  spec.send = sends.data();
  spec.num_send = static_cast<int>(sends.size());
  spec.recv = recvs.data();
  spec.num_recv = static_cast<int>(recvs.size());
  spec.send_bytes = send_bytes.data();
  spec.recv_bytes = recv_bytes.data();
  spec.most_bytes = most(c);
  if (spec.crosses) show(me, c.kind);
  CHECK(finish(me, spec) == MPISTRAT_DONE);
  const bool is_rooted = c.kind == MPISTRAT_REDUCE || c.kind == MPISTRAT_GATHER;
  if (!is_rooted || me.rank == c.root) CHECK(is_same(recv, expected(c, me.rank)));
}

// All-reduces of other lengths on one rank, whose slots would have other places afterwards.
void run_mismatches(Rank& me, int size) {
  for (const int64_t count : {3, 600, 5000, 30000, 60000}) {
    Values send(static_cast<size_t>(me.rank == size - 1 ? count : 700), 1), recv(send.size(), -1);
    const auto nbytes = static_cast<int64_t>(send.size() * sizeof(float));
    const MpistratPiece from{send.data(), nbytes}, to{recv.data(), nbytes};
    const MpistratSpec spec = sum_spec(&from, &to, true);
    show(me, nbytes);
    CHECK(finish(me, spec) == (size > 1 ? MPISTRAT_MISMATCH : MPISTRAT_DONE));
    if (size > 1) CHECK(is_same(recv, Values(recv.size(), -1)));
  }
}

// A call that differs, then one that carries payloads: both leave the node usable.
void run_gate(Rank& me, int size) {
  MpistratSpec spec = {};
  spec.kind = MPISTRAT_BCAST;
  spec.crosses = 1;
  show(me, me.rank == size - 1 ? 7 : 8);
  CHECK(finish(me, spec) == (size > 1 ? MPISTRAT_MISMATCH : MPISTRAT_DONE));
  spec.kind = MPISTRAT_CROSS;
  spec.payload_bytes = 100;
  show(me, 9);
  std::memset(mpistrat_line(me.calls) + MPISTRAT_HEAD_BYTES, me.rank + 1, 100);
  CHECK(finish(me, spec) == MPISTRAT_DONE);
  for (int rank = 0; rank < size; ++rank) {
    const uint8_t* row = mpistrat_table(me.calls) + rank * MPISTRAT_LINE_BYTES;
    int64_t extra;
    std::memcpy(&extra, row + MPISTRAT_AGREED_BYTES, sizeof extra);
    CHECK(extra == rank);
    CHECK(row[MPISTRAT_HEAD_BYTES] == rank + 1 && row[MPISTRAT_HEAD_BYTES + 99] == rank + 1);
  }
}

// Buffers that all ranks can reach: private or not, on the sending and the receiving side.
void run_registered(Rank& me, int size, std::vector<Values>& sends, std::vector<Values>& recvs) {
  const size_t n = sends[0].size(), nbytes = n * sizeof(float);
  const auto count = static_cast<int64_t>(n);
  std::vector<void*> from, to, shared(static_cast<size_t>(size), recvs[0].data());
  for (int rank = 0; rank < size; ++rank) {
    from.push_back(sends[static_cast<size_t>(rank)].data());
    to.push_back(recvs[static_cast<size_t>(rank) + 1].data());
  }
  const int regions[] = {mpistrat_region_add(me.node, from.data(), nbytes),
                         mpistrat_region_add(me.node, to.data(), nbytes),
                         mpistrat_region_add(me.node, shared.data(), nbytes)};
  const auto own = static_cast<size_t>(me.rank);
  Values mine(n), result(n);
  for (int turn = 0; turn < 6; ++turn) {
    float* send = turn % 2 ? mine.data() : sends[own].data();
    float* recv = turn < 2   ? static_cast<float*>(to[own])
                  : turn < 4 ? recvs[0].data()
                             : result.data();
    Values given, sum;
    append(given, count, kPeriod, [&](int64_t i) { return value(me.rank, 0, i, turn); });
    append(sum, count, kPeriod, [&](int64_t i) { return sum_of(size, 0, i, turn); });
    std::memcpy(send, given.data(), nbytes);
    const MpistratPiece from_piece{send, static_cast<int64_t>(nbytes)};
    const MpistratPiece to_piece{recv, static_cast<int64_t>(nbytes)};
    const MpistratSpec spec = sum_spec(&from_piece, &to_piece, turn % 3 != 0);
    if (spec.crosses) show(me, turn);
    CHECK(finish(me, spec) == MPISTRAT_DONE);
    CHECK(is_same(recv, sum));
    MpistratSpec barrier = {};
    show(me, 77);
    CHECK(finish(me, barrier) == MPISTRAT_DONE);
  }
  for (int region : regions) mpistrat_region_remove(me.node, region);
}

// All-reduces of private arrays, which ranks time: the third and fourth of a length, or of a list,
// go past the caches, and later ones as each rank finds.
void run_ways(Rank& me, int size) {
  for (const int64_t count : {6000, 70001}) {
    for (const int num_pieces : {1, 3}) {
      for (int turn = 0; turn < 12; ++turn) {
        Values send, sum, recv(static_cast<size_t>(count), -1);
        append(send, count, kPeriod, [&](int64_t i) { return value(me.rank, 0, i, turn); });
        append(sum, count, kPeriod, [&](int64_t i) { return sum_of(size, 0, i, turn); });
        const auto from = cut(send, num_pieces), to = cut(recv, num_pieces);
        MpistratSpec spec = sum_spec(from.data(), to.data(), turn % 2 != 0);
        spec.num_send = spec.num_recv = static_cast<int>(from.size());
        spec.is_list = num_pieces > 1;
        if (spec.crosses) show(me, turn);
        CHECK(finish(me, spec) == MPISTRAT_DONE);
        CHECK_AT(is_same(recv, sum), "turn %d of %d ranks", turn, size);
        const bool is_past = mpistrat_has_gone_past(me.node) != 0;
        if (turn < 4) CHECK_AT(is_past == (size > 1 && turn >= 2), "turn %d of %d", turn, size);
      }
    }
  }
}

void run_dtypes(Rank& me, int size, std::mt19937& random) {
  check_dtypes(random, me.rank, size, false, [&](MpistratSpec& spec) {
    spec.crosses = spec.op % 2;
    if (spec.crosses) show(me, spec.dtype);
    CHECK(finish(me, spec) == MPISTRAT_DONE);
  });
}

// Whether the system lets a process be read; emulators and some containers do not.
bool can_read() {
  int64_t value = 42, found = 0;
  iovec to{&found, sizeof found}, from{&value, sizeof value};
  return process_vm_readv(getpid(), &to, 1, &from, 1, 0) == sizeof found;
}

// Let long arrays be read through the kernel, as if the threads were processes. A sanitizer sees
// nothing of such reads, so this is checked besides the slots and not in their place.
void reach(Rank& me, int size) {
  if (!can_read()) return;
  const int32_t pid = getpid();
  uint64_t address, value;
  mpistrat_token(me.node, &address, &value);
  CHECK(mpistrat_has_token(pid, address, value));
  CHECK(!mpistrat_has_token(pid, address, value + 1));
  CHECK(!mpistrat_has_token(pid, 8, value));
  const std::vector<int32_t> pids(static_cast<size_t>(size), pid);
  mpistrat_reach(me.node, pids.data());
  MpistratTuning tuning = {};
  tuning.remote_bytes = 1;
  for (int kind = 0; kind < MPISTRAT_NUM_KINDS; ++kind) mpistrat_tune(me.node, kind, 0, &tuning);
}

void run_size(int size, int num_cases) {
  const auto n = static_cast<size_t>(size);
  std::vector<Values> sends(n, Values(70001)), recvs(n + 1, Values(70001));
  on_ranks(size, [&](Rank& me) {
    std::mt19937 same(42), own(static_cast<unsigned>(me.rank));
    run_ways(me, size);  // before other calls have been timed
    for (int i = 0; i < num_cases; ++i) run_case(me, random_case(size, same), own);
    run_gate(me, size);
    run_mismatches(me, size);
    for (int i = 0; i < 5; ++i) run_case(me, random_case(size, same), own);
    run_registered(me, size, sends, recvs);
    run_case(me, random_case(size, same), own);
    run_dtypes(me, size, same);
    reach(me, size);
    run_dtypes(me, size, same);
    for (int i = 0; i < num_cases; ++i) run_case(me, random_case(size, same), own);
    run_registered(me, size, sends, recvs);
  });
}

}  // namespace

int main(int argc, char** argv) {
  const int num_cases = argc > 1 ? std::atoi(argv[1]) : 40;
  on_sizes([num_cases](int size) { run_size(size, num_cases); });
}
