// The collectives of a node, with threads as ranks: every kind, many sizes, random delays.

#include "mpistrat/shm.h"

#include <sys/uio.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "dtypes.h"
#include "values.h"

namespace {

using mpistrat_test::check_dtypes;
using mpistrat_test::cut;
using mpistrat_test::Values;

// What one rank holds at index `i` of the block that it has for rank `to`; small whole numbers, so
// that sums are exact in any order.
float value(int rank, int to, int64_t i, int salt) {
  return static_cast<float>((rank * 31 + to * 17 + i * 7 + salt) % 97);
}

struct Case {
  int kind, size, root, salt;
  std::vector<std::vector<int64_t>> counts;  // [from][to], elements
  int num_pieces;
  bool is_delayed;
};

struct Rank {
  MpistratNode* node;
  int rank;
  MpistratCalls* calls = mpistrat_node_calls(node);
  int64_t sequence = 0;
  int num_calls = 0;
};

int64_t total(const std::vector<int64_t>& counts) {
  int64_t sum = 0;
  for (int64_t n : counts) sum += n;
  return sum;
}

std::vector<int64_t> in_bytes(std::vector<int64_t> counts) {
  for (int64_t& n : counts) n *= static_cast<int64_t>(sizeof(float));
  return counts;
}

int64_t most(const Case& c) {
  int64_t most = 0;
  for (const auto& row : c.counts)
    for (int64_t n : row) most = std::max(most, n);
  return most * static_cast<int64_t>(sizeof(float));
}

// The counts of `send` and `recv` as this rank gives them.
std::vector<int64_t> sent(const Case& c, int rank) {
  switch (c.kind) {
    case MPISTRAT_ALLREDUCE:
    case MPISTRAT_REDUCE:
    case MPISTRAT_BCAST:
      return {c.counts[0][0]};
    case MPISTRAT_REDUCE_SCATTER:
      return c.counts[0];
    case MPISTRAT_SCATTER:
      return c.counts[static_cast<size_t>(c.root)];
    case MPISTRAT_ALLTOALL:
      return c.counts[static_cast<size_t>(rank)];
    default:
      return {c.counts[static_cast<size_t>(rank)][0]};
  }
}

std::vector<int64_t> received(const Case& c, int rank) {
  std::vector<int64_t> counts;
  const auto me = static_cast<size_t>(rank);
  switch (c.kind) {
    case MPISTRAT_REDUCE_SCATTER:
      return {c.counts[0][me]};
    case MPISTRAT_SCATTER:
      return {c.counts[static_cast<size_t>(c.root)][me]};
    case MPISTRAT_ALLTOALL:
      for (const auto& row : c.counts) counts.push_back(row[me]);
      return counts;
    case MPISTRAT_ALLGATHER:
    case MPISTRAT_GATHER:
      for (const auto& row : c.counts) counts.push_back(row[0]);
      return counts;
    default:
      return {c.counts[0][0]};
  }
}

Values inputs(const Case& c, int rank) {
  Values values;
  const auto counts = sent(c, rank);
  for (size_t to = 0; to < counts.size(); ++to)
    for (int64_t i = 0; i < counts[to]; ++i)
      values.push_back(value(rank, static_cast<int>(to), i, c.salt));
  return values;
}

// The answer, from the definition of each collective.
Values expected(const Case& c, int rank) {
  Values values;
  const auto counts = received(c, rank);
  for (size_t from = 0; from < counts.size(); ++from)
    for (int64_t i = 0; i < counts[from]; ++i) {
      float sum = 0;
      switch (c.kind) {
        case MPISTRAT_ALLREDUCE:
        case MPISTRAT_REDUCE:
          for (int r = 0; r < c.size; ++r) sum += value(r, 0, i, c.salt);
          break;
        case MPISTRAT_REDUCE_SCATTER:
          for (int r = 0; r < c.size; ++r) sum += value(r, rank, i, c.salt);
          break;
        case MPISTRAT_BCAST:
          sum = value(c.root, 0, i, c.salt);
          break;
        case MPISTRAT_SCATTER:
          sum = value(c.root, rank, i, c.salt);
          break;
        case MPISTRAT_ALLTOALL:
          sum = value(static_cast<int>(from), rank, i, c.salt);
          break;
        default:
          sum = value(static_cast<int>(from), 0, i, c.salt);
      }
      values.push_back(sum);
    }
  return values;
}

void show(Rank& me, int64_t digest) {
  const int64_t head[4] = {++me.sequence, digest, 0, me.rank};
  std::memcpy(mpistrat_line(me.calls), head, sizeof head);
}

int finish(Rank& me, const MpistratSpec& spec) {
  mpistrat_begin(me.calls, &spec);
  if (++me.num_calls % 5 == 0) mpistrat_detach(me.calls);  // the node's own thread goes on
  int status = MPISTRAT_WAITING;
  while (status == MPISTRAT_WAITING) status = mpistrat_wait(me.calls, 3'000'000);
  return status;
}

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
  if (!is_rooted || me.rank == c.root) CHECK(recv == expected(c, me.rank));
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
    for (size_t i = 0; i < n; ++i) send[i] = value(me.rank, 0, static_cast<int64_t>(i), turn);
    const MpistratPiece from_piece{send, static_cast<int64_t>(nbytes)};
    const MpistratPiece to_piece{recv, static_cast<int64_t>(nbytes)};
    MpistratSpec spec = {};
    spec.kind = MPISTRAT_ALLREDUCE;
    spec.crosses = turn % 3 != 0;
    spec.dtype = MPISTRAT_FLOAT32;
    spec.num_send = spec.num_recv = 1;
    spec.send = &from_piece;
    spec.recv = &to_piece;
    if (spec.crosses) show(me, turn);
    CHECK(finish(me, spec) == MPISTRAT_DONE);
    for (size_t i = 0; i < n; ++i) {
      float sum = 0;
      for (int r = 0; r < size; ++r) sum += value(r, 0, static_cast<int64_t>(i), turn);
      CHECK(recv[i] == sum);
    }
    MpistratSpec barrier = {};
    show(me, 77);
    CHECK(finish(me, barrier) == MPISTRAT_DONE);
  }
  for (int region : regions) mpistrat_region_remove(me.node, region);
}

Case random_case(int size, std::mt19937& random) {
  static const int64_t kCounts[] = {0, 1, 3, 17, 56, 57, 1000, 4097, 32768, 32769, 100003};
  Case c{static_cast<int>(1 + random() % 8),
         size,
         static_cast<int>(random() % size),
         static_cast<int>(random() % 1000),
         {},
         static_cast<int>(1 + random() % 4),
         random() % 2 == 0};
  for (int from = 0; from < size; ++from) {
    c.counts.emplace_back();
    for (int to = 0; to < size; ++to)
      c.counts.back().push_back(kCounts[random() % (sizeof kCounts / sizeof *kCounts)]);
  }
  return c;
}

constexpr int kCalls = 6;  // in the queue

// A call that is made while others wait for their turn; a thread can carry on with none then.
void run_between(Rank& me) {
  const MpistratSpec lines = {};
  mpistrat_count(me.calls, 77);
  mpistrat_begin(me.calls, &lines);
  mpistrat_detach(me.calls);
  CHECK(!mpistrat_is_queue_busy(me.calls));
  int status = MPISTRAT_WAITING;
  while (status == MPISTRAT_WAITING) status = mpistrat_wait(me.calls, 100'000);
  CHECK(status == MPISTRAT_DONE);
  ++me.sequence;
}

// Calls that follow each other by themselves; one differs, and those behind it wait until resumed.
void run_queue(Rank& me, int size, MpistratRecords* records, int bad) {
  const int64_t n = 5000;
  std::vector<Values> data;
  for (int i = 0; i < kCalls; ++i) data.emplace_back(n, static_cast<float>(me.rank + i));
  std::vector<int64_t> numbers;
  for (int i = 0; i < kCalls; ++i) {
    const MpistratPiece piece{data[static_cast<size_t>(i)].data(), n * 4};
    MpistratSpec spec = {};
    spec.kind = MPISTRAT_ALLREDUCE;
    spec.dtype = MPISTRAT_FLOAT32;
    spec.num_send = spec.num_recv = 1;
    spec.send = spec.recv = &piece;
    const int64_t digest = i == bad ? 100 + me.rank : i;
    const MpistratTicket ticket{digest, 0, 0, records, {}};
    numbers.push_back(mpistrat_submit(me.calls, &spec, &ticket));
  }
  me.sequence += kCalls;
  if (me.rank % 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  for (int i = 0; i < kCalls; ++i) {
    int status = MPISTRAT_WAITING;
    while (status == MPISTRAT_WAITING)
      status = mpistrat_collect(me.calls, numbers[static_cast<size_t>(i)], 100'000);
    const bool differs = i == bad && size > 1;
    CHECK(status == (differs ? MPISTRAT_MISMATCH : MPISTRAT_DONE));
    if (differs) {
      CHECK(!mpistrat_is_queue_busy(me.calls));
      run_between(me);
      run_between(me);
      for (int left = bad + 1; left < kCalls; ++left) {
        const auto mine = static_cast<float>(me.rank + left);
        CHECK(data[static_cast<size_t>(left)] == Values(n, mine));
        CHECK(mpistrat_collect(me.calls, numbers[static_cast<size_t>(left)], 0) ==
              MPISTRAT_WAITING);
      }
      mpistrat_resume(me.calls);
    } else {
      const auto sum = static_cast<float>(size * (size - 1) / 2 + size * i);
      CHECK(data[static_cast<size_t>(i)] == Values(n, sum));
    }
  }
  CHECK(!mpistrat_is_queue_busy(me.calls));
  CHECK(mpistrat_records_count(records) % kCalls == 0);
}

// Calls of several kinds, whose lists are gone once they are queued; one holds those behind it.
void run_mixed_queue(Rank& me, int size) {
  const auto ranks = static_cast<size_t>(size);
  const auto mine = static_cast<float>(me.rank);
  Values sum(3, mine), copy(2, mine), own(4, mine), all(4 * ranks), last(5, mine);
  std::vector<int64_t> numbers;
  const auto add = [&](int kind, Values& from, Values& to, int32_t holds) {
    const std::vector<MpistratPiece> lists{{from.data(), static_cast<int64_t>(from.size()) * 4},
                                           {to.data(), static_cast<int64_t>(to.size()) * 4}};
    const std::vector<int64_t> bytes(ranks, lists[0].nbytes);
    MpistratSpec spec = {};
    spec.kind = kind;
    spec.dtype = MPISTRAT_FLOAT32;
    spec.root = size - 1;
    spec.num_send = spec.num_recv = 1;
    spec.send = &lists[0];
    spec.recv = &lists[1];
    if (kind == MPISTRAT_ALLGATHER) spec.recv_bytes = bytes.data();
    const MpistratTicket ticket{7, 9, holds, nullptr, {}};
    numbers.push_back(mpistrat_submit(me.calls, &spec, &ticket));
  };
  add(MPISTRAT_ALLREDUCE, sum, sum, 0);
  add(MPISTRAT_BCAST, copy, copy, 0);
  add(MPISTRAT_ALLGATHER, own, all, 1);
  add(MPISTRAT_BCAST, last, last, 0);
  me.sequence += 4;
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (i == 3) {
      CHECK(!mpistrat_is_queue_busy(me.calls) && last == Values(5, mine));
      run_between(me);
      mpistrat_resume(me.calls);
    }
    int status = MPISTRAT_WAITING;
    while (status == MPISTRAT_WAITING) status = mpistrat_collect(me.calls, numbers[i], 100'000);
    CHECK(status == MPISTRAT_DONE);
  }
  const auto root = static_cast<float>(size - 1);
  CHECK(sum == Values(3, root * static_cast<float>(size) / 2) && copy == Values(2, root));
  CHECK(last == Values(5, root));
  for (size_t i = 0; i < all.size(); ++i) CHECK(all[i] == static_cast<float>(i / 4));
}

// Where no call is under way, there is none to carry on with.
void detach_nothing(Rank& me) {
  mpistrat_detach(me.calls);
  CHECK(!mpistrat_is_queue_busy(me.calls));
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

void run_size(void* memory, int size, int num_cases) {
  const auto n = static_cast<size_t>(size);
  std::vector<Values> sends(n, Values(70001)), recvs(n + 1, Values(70001));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      Rank me{mpistrat_node_open(memory, rank, size, 2), rank};
      std::mt19937 same(42), own(static_cast<unsigned>(rank));
      detach_nothing(me);
      for (int i = 0; i < num_cases; ++i) run_case(me, random_case(size, same), own);
      detach_nothing(me);
      run_gate(me, size);
      MpistratRecords* records = mpistrat_records_open(64);
      for (int i = 0; i < 20; ++i) run_queue(me, size, records, i % kCalls);
      for (int i = 0; i < 20; ++i) run_mixed_queue(me, size);
      run_registered(me, size, sends, recvs);
      run_case(me, random_case(size, same), own);
      run_dtypes(me, size, same);
      reach(me, size);
      run_dtypes(me, size, same);
      for (int i = 0; i < num_cases; ++i) run_case(me, random_case(size, same), own);
      run_registered(me, size, sends, recvs);
      mpistrat_node_close(me.node);
      mpistrat_records_close(records);
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

int main(int argc, char** argv) {
  const int num_cases = argc > 1 ? std::atoi(argv[1]) : 40;
  for (int size = 1; size <= 8; size = size < 5 ? size + 1 : size + 3) {
    void* memory = std::aligned_alloc(4096, (mpistrat_node_bytes(size) + 4095) / 4096 * 4096);
    std::memset(memory, 0, mpistrat_node_bytes(size));
    run_size(memory, size, num_cases);
    std::free(memory);
  }
}
