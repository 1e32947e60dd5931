// The collectives over several nodes, with threads as ranks and queues in place of MPI: every kind,
// placement and algorithm, other algorithms from call to call, random delays, calls that differ,
// and messages that fail.

#include "mpistrat/wire.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <iterator>
#include <string>
#include <thread>

#include "helpers/fake_mpi.h"
#include "helpers/reduction_cases.h"
#include "helpers/values.h"
#include "helpers/wire_ranks.h"
#include "mpistrat/simd.h"

namespace {

using mpistrat_test::adopt;
using mpistrat_test::append;
using mpistrat_test::check_dtypes;
using mpistrat_test::cut;
using mpistrat_test::finish;
using mpistrat_test::is_same;
using mpistrat_test::on_ranks;
using mpistrat_test::Rank;
using mpistrat_test::Setting;
using mpistrat_test::show;
using mpistrat_test::Values;
using mpistrat_test::wait_for;
using Counts = std::vector<int64_t>;

constexpr int64_t kFloat = sizeof(float);

// Small whole numbers, so that sums are exact in any order.
float value(int rank, int64_t i, int salt) {
  return static_cast<float>((rank * 31 + i * 7 + salt) % 97);
}
constexpr size_t kPeriod = 97;  // of `i`

Values inputs(int rank, int64_t count, int salt) {
  Values values;
  append(values, count, kPeriod, [&](int64_t i) { return value(rank, i, salt); });
  return values;
}

Values sum(int size, int64_t count, int salt) {
  Values values;
  append(values, count, kPeriod, [&](int64_t i) {
    float sum = 0;
    for (int rank = 0; rank < size; ++rank) sum += value(rank, i, salt);
    return sum;
  });
  return values;
}

// Even pieces but for the first rank's, and none for the last of many.
Counts parts(int size, int64_t count) {
  Counts counts(static_cast<size_t>(size), count / size);
  if (size > 2) counts.back() = 0;
  int64_t rest = count;
  for (int64_t n : counts) rest -= n;
  counts[0] += rest;
  return counts;
}

Values slice(const Values& all, const Counts& counts, int rank) {
  int64_t start = 0;
  for (int before = 0; before < rank; ++before) start += counts[static_cast<size_t>(before)];
  const auto begin = all.begin() + start;
  return {begin, begin + counts[static_cast<size_t>(rank)]};
}

void add(const Values& more, Values* values) {
  values->insert(values->end(), more.begin(), more.end());
}

// What one rank gives and gets in a call.
struct Example {
  Values send, recv, expected;
  Counts send_bytes, recv_bytes;
};

Example example(int kind, const Rank& me, int64_t count, int root, int salt) {
  Example made{inputs(me.rank, count, salt), {}, sum(me.size, count, salt), {}, {}};
  const auto n = static_cast<size_t>(count);
  const Counts counts = parts(me.size, count);
  made.recv.assign(n, -1);
  if (kind == MPISTRAT_REDUCE && me.rank != root) made.recv = made.expected = {};
  if (kind == MPISTRAT_REDUCE_SCATTER) {
    made.send_bytes = counts;
    made.expected = slice(made.expected, counts, me.rank);
    made.recv.resize(made.expected.size());
  } else if (kind == MPISTRAT_BCAST) {
    made.expected = inputs(root, count, salt);
    if (me.rank == root) made.recv = made.send;
  } else if (kind == MPISTRAT_ALLGATHER) {
    made.recv_bytes = counts;
    made.send = slice(inputs(me.rank, count, salt), counts, me.rank);
    made.expected.clear();
    for (int rank = 0; rank < me.size; ++rank)
      add(slice(inputs(rank, count, salt), counts, rank), &made.expected);
  }
  for (Counts* bytes : {&made.send_bytes, &made.recv_bytes})
    for (int64_t& n_bytes : *bytes) n_bytes *= kFloat;
  return made;
}

void run_call(Rank& me, int kind, int64_t count, int root, int salt) {
  Example call = example(kind, me, count, root, salt);
  const bool is_in_place = kind == MPISTRAT_ALLREDUCE && salt % 3 == 0;
  if (is_in_place) call.recv = call.send;
  const int num_pieces = is_in_place ? 1 : 1 + salt % 4;
  const auto sends = cut(is_in_place || kind == MPISTRAT_BCAST ? call.recv : call.send, num_pieces);
  const auto recvs = cut(call.recv, num_pieces);
  MpistratSpec spec = {};
  spec.kind = kind;
  spec.crosses = salt % 2;
  spec.dtype = MPISTRAT_FLOAT32;
  spec.root = root;
  spec.send = sends.data();
  spec.num_send = static_cast<int>(sends.size());
  spec.recv = recvs.data();
  spec.num_recv = static_cast<int>(recvs.size());
  spec.send_bytes = call.send_bytes.data();
  spec.recv_bytes = call.recv_bytes.data();
  if (spec.crosses) show(me, kind, me.rank);
  CHECK(finish(me, spec) == MPISTRAT_DONE);
  CHECK_AT(is_same(call.recv, call.expected), "kind %d of %d, rank %d, root %d, salt %d", kind,
           static_cast<int>(count), me.rank, root, salt);
}

// Sums of halves that are exact in float32 alone, and are rounded and divided once.
void run_halves(Rank& me, size_t count) {
  std::vector<uint16_t> send(count), recv(count), expected(count);
  std::vector<float> wide(count), total(count);
  for (size_t i = 0; i < count; ++i) {
    for (int rank = 0; rank < me.size; ++rank) total[i] += 1.0f + value(rank, 3, 0) / 1024;
    total[i] /= static_cast<float>(me.size);
    wide[i] = 1.0f + value(me.rank, 3, 0) / 1024;
  }
  mpistrat_narrow(send.data(), wide.data(), count, MPISTRAT_FLOAT16);
  mpistrat_narrow(expected.data(), total.data(), count, MPISTRAT_FLOAT16);
  const auto nbytes = static_cast<int64_t>(count * sizeof(uint16_t));
  const MpistratPiece from{send.data(), nbytes}, to{recv.data(), nbytes};
  MpistratSpec spec = {};
  spec.kind = MPISTRAT_ALLREDUCE;
  spec.dtype = MPISTRAT_FLOAT16;
  spec.divisor = me.size;
  spec.send = &from;
  spec.recv = &to;
  spec.num_send = spec.num_recv = 1;
  CHECK(finish(me, spec) == MPISTRAT_DONE);
  CHECK(recv == expected);
}

const int64_t* row(const Rank& me, int rank) {
  return reinterpret_cast<const int64_t*>(mpistrat_table(me.calls) + rank * MPISTRAT_LINE_BYTES);
}

// Calls that differ, on one rank or in length, are seen by all; none gets data, and all go on.
void run_mismatches(Rank& me, int64_t count) {
  for (int odd = 0; odd < me.size; ++odd) {
    Values send = inputs(me.rank, me.rank == odd ? count + 1 : count, 0), recv(send.size(), -1);
    const auto sends = cut(send, 1), recvs = cut(recv, 1);
    MpistratSpec spec = {};
    spec.kind = MPISTRAT_ALLREDUCE;
    spec.crosses = 1;
    spec.dtype = MPISTRAT_FLOAT32;
    spec.send = sends.data();
    spec.recv = recvs.data();
    spec.num_send = spec.num_recv = 1;
    show(me, me.rank == odd ? 7 : 8, 0);
    CHECK(finish(me, spec) == MPISTRAT_MISMATCH);
    for (float x : recv) CHECK(x == -1);
    for (int rank = 0; rank < me.size; ++rank) CHECK(row(me, rank)[1] == (rank == odd ? 7 : 8));
  }
}

// Lines alone: their last words may differ, and they may have payloads.
void run_lines(Rank& me) {
  for (int kind = 0; kind < 3; ++kind) {
    MpistratSpec spec = {};
    spec.payload_bytes = kind == 2 ? 100 : 0;
    show(me, 9, kind == 0 ? 5 : me.rank);
    std::memset(mpistrat_line(me.calls) + MPISTRAT_HEAD_BYTES, me.rank + 1, 100);
    CHECK(finish(me, spec) == MPISTRAT_DONE);
    for (int rank = 0; rank < me.size; ++rank) {
      CHECK(row(me, rank)[0] == me.sequence && row(me, rank)[1] == 9);
      CHECK(row(me, rank)[3] == (kind == 0 ? 5 : rank));
      const auto* line = reinterpret_cast<const uint8_t*>(row(me, rank));
      if (kind == 2) CHECK(line[MPISTRAT_HEAD_BYTES + 99] == rank + 1);
    }
  }
}

// Lines that cross while submitted calls wait for their turn; a thread can carry on with none then.
void run_between(Rank& me) {
  MpistratSpec lines = {};
  MpistratTicket ticket = {};
  ticket.digest = 77;
  mpistrat_begin_counted(me.calls, &lines, &ticket);
  CHECK(!mpistrat_wire_is_over(me.wire));
  CHECK(adopt(me.calls) == -1);
  CHECK(!mpistrat_is_queue_busy(me.calls));
  int status = MPISTRAT_WAITING;
  while (status == MPISTRAT_WAITING) status = mpistrat_wait(me.calls, 100'000);
  CHECK(status == MPISTRAT_DONE);
  CHECK(mpistrat_wire_is_over(me.wire));
  ++me.sequence;
}

// Calls that follow each other by themselves; `bad` differs, and those behind it wait until
// resumed.
void run_queue(Rank& me, int64_t count, int bad) {
  constexpr int kCalls = 4;
  std::vector<Values> data;
  for (int i = 0; i < kCalls; ++i) data.push_back(inputs(me.rank, count, i));
  int64_t numbers[kCalls];
  for (int i = 0; i < kCalls; ++i) {
    const auto piece = cut(data[static_cast<size_t>(i)], 1);
    MpistratSpec spec = {};
    spec.kind = MPISTRAT_ALLREDUCE;
    spec.dtype = MPISTRAT_FLOAT32;
    spec.send = spec.recv = piece.data();
    spec.num_send = spec.num_recv = 1;
    const int64_t digest = i == bad ? 100 + me.rank : i;
    const MpistratTicket ticket{digest, 0, 0, nullptr, {}};
    numbers[i] = mpistrat_submit(me.calls, &spec, &ticket);
  }
  me.sequence += kCalls;
  for (int i = 0; i < kCalls; ++i) {
    int status = MPISTRAT_WAITING;
    while (status == MPISTRAT_WAITING) status = mpistrat_collect(me.calls, numbers[i], 100'000);
    CHECK(status == (i == bad ? MPISTRAT_MISMATCH : MPISTRAT_DONE));
    if (i == bad) {
      run_between(me);
      mpistrat_resume(me.calls);
    } else {
      CHECK(is_same(data[static_cast<size_t>(i)], sum(me.size, count, i)));
    }
  }
  CHECK(mpistrat_wire_is_over(me.wire));
}

// A thread that asks what any thread may ask, for as long as it lives.
class Asking {
 public:
  explicit Asking(const Rank& rank)
      : thread_([this, rank] {
          while (!stops_) {
            mpistrat_is_queue_busy(rank.calls);
            mpistrat_wire_is_over(rank.wire);
            std::this_thread::sleep_for(std::chrono::microseconds(20));
          }
        }) {}
  ~Asking() {
    stops_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> stops_{false};
  std::thread thread_;
};

void run_dtypes(Rank& me, std::mt19937& random) {
  check_dtypes(random, me.rank, me.size, true, [&](MpistratSpec& spec) {
    spec.crosses = spec.op % 2;
    if (spec.crosses) show(me, spec.dtype, 0);
    CHECK(finish(me, spec) == MPISTRAT_DONE);
  });
}

void run_rank(Rank& me, int num_cases) {
  static const int64_t kCounts[] = {0, 1, 3, 57, 100, 1000, 4097, 20011};
  std::mt19937 same(42), own(static_cast<unsigned>(me.rank));
  CHECK(adopt(me.calls) == -1);  // as no call is under way
  CHECK(mpistrat_wire_is_over(me.wire));
  const Asking asking(me);
  for (int i = 0; i < num_cases; ++i) {
    const int kind = static_cast<int>(1 + same() % 5);
    const int64_t count = kCounts[same() % 8];
    const int root = static_cast<int>(same() % static_cast<unsigned>(me.size));
    const int salt = static_cast<int>(same() % 1000);
    if (same() % 2) std::this_thread::sleep_for(std::chrono::microseconds(own() % 200));
    run_call(me, kind, count, root, salt);
  }
  for (size_t count : {10, 1000, 10007}) run_halves(me, count);
  for (int64_t count : {10, 30000}) run_mismatches(me, count);
  run_lines(me);
  for (int bad = 0; bad < 4; ++bad) run_queue(me, bad % 2 ? 10 : 30000, bad);
  run_dtypes(me, same);
  run_call(me, MPISTRAT_ALLREDUCE, 1000, 0, 1);
}

// Other figures between calls, in any order: some that calls are made for, and some that nobody
// means. Whatever they are, sums are right, and the counts are around the figures.
void run_retuned(Rank& me, int num_cases) {
  constexpr int64_t kFigures[] = {INT64_MIN, -1,   0,     1,     3,       7,        64,
                                  400,       1001, 16384, 61440, 1 << 20, 64 << 20, INT64_MAX};
  std::mt19937 same(43);
  const auto any = [&] { return kFigures[same() % std::size(kFigures)]; };
  for (int i = 0; i < num_cases; ++i) {
    const MpistratWireTuning tuning = {any(), any(), any(), i % 8 ? 1 << 30 : any()};
    mpistrat_wire_tune(me.wire, &tuning);
    const int64_t least[] = {0, tuning.short_bytes, tuning.ring_bytes, 12000};
    const int64_t nbytes = std::clamp<int64_t>(least[same() % 4], 0, 12000);
    const int64_t count = nbytes / kFloat * (1 + same() % 3) + same() % 3;
    const int kind = static_cast<int>(1 + same() % 5);
    const int root = static_cast<int>(same() % static_cast<unsigned>(me.size));
    run_call(me, kind, count, root, static_cast<int>(same() % 1000));
    if (i % 10 == 0) run_halves(me, static_cast<size_t>(count));
  }
}

// MPI fails while one rank waits for another, which does not come.
void run_failure() {
  std::atomic<bool> has_left{false};
  on_ranks({{0, 1}, {8192, 1024, 4096, 1 << 20}}, [&](Rank& me) {
    if (me.rank == 1) {
      has_left = true;
      return;
    }
    while (!has_left) std::this_thread::yield();
    Values data = inputs(0, 3000, 0);
    const auto pieces = cut(data, 1);
    MpistratSpec spec = {};
    spec.kind = MPISTRAT_ALLREDUCE;
    spec.dtype = MPISTRAT_FLOAT32;
    spec.send = spec.recv = pieces.data();
    spec.num_send = spec.num_recv = 1;
    mpistrat_begin(me.calls, &spec);
    CHECK(mpistrat_wait(me.calls, 1'000'000) == MPISTRAT_WAITING);
    CHECK(!mpistrat_wire_is_over(me.wire));
    const int64_t number = adopt(me.calls);
    CHECK(number >= 0);
    fake::world().is_broken = true;
    CHECK(wait_for(me.calls, number, 1'000'000) == MPISTRAT_MPI_ERROR);
    CHECK(mpistrat_collect(me.calls, number, 0) == MPISTRAT_MPI_ERROR);
    CHECK(adopt(me.calls) == -1);
    CHECK(mpistrat_collect(me.calls, number, 0) == MPISTRAT_MPI_ERROR);
    CHECK(mpistrat_wire_error(me.wire) == fake::kBroken);
  });
}

}  // namespace

int main(int argc, char** argv) {
  const int num_cases = argc > 1 ? std::atoi(argv[1]) : 40;
  const Setting settings[] = {
      {{0, 1}, {8192, 16384, 61440, 1 << 30}},
      {{0, 0, 1, 1}, {400, 64, 512, 1 << 30}},
      {{0, 1, 1, 0}, {0, 16, 256, 1 << 30}},
      {{0, 0, 0, 1}, {400, 2048, 4096, 1 << 30}},
      {{0, 1, 2}, {8, 32, 1024, 1 << 30}},
      {{2, 0, 1, 4, 3}, {400, 1000, 2000, 1 << 30}},
      {{0, 1, 2, 1, 0, 2, 0}, {400, 256, 1024, 1 << 30}},
  };
  for (const Setting& setting : settings) {
    fake::world().late_percent = setting.node_of.size() % 2 ? 60 : 0;
    on_ranks(setting, [&](Rank& me) { run_rank(me, num_cases); });
    on_ranks(setting, [&](Rank& me) { run_retuned(me, num_cases / 2); });
    CHECK(fake::world().messages.empty());
  }
  run_failure();
}
