// Queues of calls on a node, with threads as ranks: calls that follow each other by themselves, and
// stop where one differs.

#include <chrono>
#include <thread>
#include <vector>

#include "helpers/check.h"
#include "helpers/shm_ranks.h"
#include "helpers/values.h"

namespace {

using namespace mpistrat_test;

constexpr int kCalls = 6;  // in the queue

// A call that is made while others wait for their turn; a thread can carry on with none then.
void run_between(Rank& me) {
  MpistratSpec lines = {};
  MpistratTicket ticket = {};
  ticket.digest = 77;
  mpistrat_begin_counted(me.calls, &lines, &ticket);
  CHECK(adopt(me.calls) == -1);
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
    const MpistratSpec spec = sum_spec(&piece, &piece, false);
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
void adopt_nothing(Rank& me) {
  CHECK(adopt(me.calls) == -1);
  CHECK(!mpistrat_is_queue_busy(me.calls));
}

// A call that its rank waits in, before and after those of a queue.
void run_waited(Rank& me, int size) {
  Values send(1000, static_cast<float>(me.rank)), recv(1000);
  const MpistratPiece from{send.data(), 4000}, to{recv.data(), 4000};
  const MpistratSpec spec = sum_spec(&from, &to, true);
  show(me, MPISTRAT_ALLREDUCE);
  CHECK(finish(me, spec) == MPISTRAT_DONE);
  CHECK(recv == Values(1000, static_cast<float>(size * (size - 1) / 2)));
}

void run_size(int size) {
  on_ranks(size, [size](Rank& me) {
    adopt_nothing(me);
    run_waited(me, size);
    MpistratRecords* records = mpistrat_records_open(64);
    for (int i = 0; i < 20; ++i) run_queue(me, size, records, i % kCalls);
    for (int i = 0; i < 20; ++i) run_mixed_queue(me, size);
    run_waited(me, size);
    mpistrat_records_close(records);
    adopt_nothing(me);
  });
}

}  // namespace

int main() { on_sizes(run_size); }
