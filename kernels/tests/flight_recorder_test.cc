// The flight recorder: order, wrap-around, and readers that run beside the writer.

#include "mpistrat/flight_recorder.h"

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "helpers/check.h"

namespace {

constexpr int64_t kCapacity = 64;

// Record number n is this, so that a reader can tell a torn one.
MpistratRecord call(int64_t n) {
  MpistratRecord record = {};
  const auto small = static_cast<int32_t>(n & 0xFFFFFF);
  record.sequence = n + 1;
  record.nbytes = 3 * n;
  record.op = small;
  record.reduction = -small;
  record.dtype = small + 1;
  record.label = -small - 1;
  return record;
}

void check_whole(const MpistratRecord& record) {
  const MpistratRecord right = call(record.number);
  const long long n = record.number;
  CHECK_AT(record.sequence == right.sequence && record.nbytes == right.nbytes, "record %lld", n);
  CHECK_AT(record.op == right.op && record.reduction == right.reduction, "record %lld", n);
  CHECK_AT(record.dtype == right.dtype && record.label == right.label, "record %lld", n);
  CHECK_AT(record.begin_ns > 0, "record %lld", n);
  if (record.state == MPISTRAT_UNDER_WAY) {
    CHECK_AT(record.end_ns == 0, "record %lld", n);
  } else {
    CHECK_AT(record.end_ns >= record.begin_ns, "record %lld", n);
    CHECK_AT((record.state == MPISTRAT_FAILED) == (n % 5 == 0), "record %lld", n);
  }
}

void write(MpistratRecords* records, int64_t n) {
  const MpistratRecord record = call(n);
  mpistrat_record_begin(records, &record);
  mpistrat_record_end(records, n % 5 == 0 ? MPISTRAT_FAILED : MPISTRAT_SUCCEEDED);
}

std::vector<MpistratRecord> read(const MpistratRecords* records, int64_t first,
                                 size_t most = 2 * kCapacity) {
  std::vector<MpistratRecord> found(most);
  const int64_t n = mpistrat_records_read(records, first, found.data(), static_cast<int64_t>(most));
  found.resize(static_cast<size_t>(n));
  return found;
}

void test_order_and_states() {
  MpistratRecords* records = mpistrat_records_open(kCapacity);
  CHECK(mpistrat_record_end(records, MPISTRAT_SUCCEEDED) == 0);  // of nothing
  CHECK(read(records, 0).empty());
  for (int64_t n = 0; n < 3; ++n) write(records, n);
  const MpistratRecord last = call(3);
  mpistrat_record_begin(records, &last);
  CHECK(mpistrat_records_count(records) == 4);
  const auto found = read(records, 0);
  CHECK(found.size() == 4);
  for (size_t i = 0; i < found.size(); ++i) {
    CHECK(found[i].number == static_cast<int64_t>(i));
    check_whole(found[i]);
  }
  CHECK(found[0].state == MPISTRAT_FAILED && found[1].state == MPISTRAT_SUCCEEDED);
  CHECK(found[3].state == MPISTRAT_UNDER_WAY);
  CHECK(read(records, 3).size() == 1 && read(records, 4).empty());
  CHECK(read(records, 0, 2).size() == 2);
  write(records, 4);  // ends the one that was under way
  CHECK(read(records, 3).front().state == MPISTRAT_SUCCEEDED);
  mpistrat_records_close(records);
}

void test_wrap_around() {
  MpistratRecords* records = mpistrat_records_open(kCapacity - 1);  // rounded up
  const int64_t total = 5 * kCapacity + 7;
  for (int64_t n = 0; n < total; ++n) write(records, n);
  const auto found = read(records, 0);
  CHECK(found.size() == kCapacity);
  CHECK(found.front().number == total - kCapacity && found.back().number == total - 1);
  for (const MpistratRecord& record : found) check_whole(record);
  mpistrat_records_close(records);
}

void test_a_reader_is_called_in_time() {
  MpistratRecords* records = mpistrat_records_open(kCapacity);
  const MpistratRecord record = call(1);
  for (int64_t n = 0; n < 3 * kCapacity; ++n) {
    mpistrat_record_begin(records, &record);
    CHECK(mpistrat_record_end(records, MPISTRAT_SUCCEEDED) == 0);  // nobody reads
  }
  mpistrat_records_keep(records, mpistrat_records_count(records));
  int64_t until_called = 0;
  do {
    mpistrat_record_begin(records, &record);
    ++until_called;
  } while (!mpistrat_record_end(records, MPISTRAT_SUCCEEDED));
  CHECK(until_called <= kCapacity / 2 + 1 && until_called > kCapacity / 4);
  mpistrat_records_keep(records, mpistrat_records_count(records));
  mpistrat_record_begin(records, &record);
  CHECK(mpistrat_record_end(records, MPISTRAT_SUCCEEDED) == 0);
  mpistrat_records_close(records);
}

void test_readers_beside_the_writer() {
  MpistratRecords* records = mpistrat_records_open(kCapacity);
  std::atomic<bool> is_over{false};
  std::vector<std::thread> readers;
  std::vector<int64_t> seen(2, 0);
  for (size_t reader = 0; reader < seen.size(); ++reader) {
    readers.emplace_back([&, reader] {
      int64_t next = 0;
      while (!is_over.load()) {
        for (const MpistratRecord& record : read(records, next)) {
          CHECK(record.number >= next);
          check_whole(record);
          next = record.number + 1;
          ++seen[reader];
        }
      }
    });
  }
  int64_t n = 0;
  for (; n < 200'000; ++n) write(records, n);
  while (n < 200'000 + kCapacity) {  // slowly, so that some are seen while they are under way
    write(records, n++);
    std::this_thread::yield();
  }
  is_over.store(true);
  for (std::thread& reader : readers) reader.join();
  CHECK(read(records, 0).size() == kCapacity);
  mpistrat_records_close(records);
}

}  // namespace

int main() {
  test_order_and_states();
  test_wrap_around();
  test_a_reader_is_called_in_time();
  test_readers_beside_the_writer();
}
