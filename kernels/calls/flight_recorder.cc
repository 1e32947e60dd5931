// The flight recorder: a ring of the last calls, which its readers and its writer share without
// locks.

#include "mpistrat/flight_recorder.h"

#include <atomic>
#include <cstddef>
#include <limits>
#include <memory>
#include <new>
#include <utility>

#include "../common/clock.h"

namespace mpistrat {
namespace {

constexpr int64_t kNobody = std::numeric_limits<int64_t>::max() / 2;

// A record as its readers see it while it is written: words of its own atomics. `version` is
// 2 n + 1 while record n is written into it, and 2 n + 2 from then on.
struct alignas(64) Slot {
  std::atomic<int64_t> version{0};
  std::atomic<int64_t> sequence{0}, begin_ns{0};
  std::atomic<int64_t> end_ns{0};  // negative: failed at that time; the only word of a later write
  std::atomic<int64_t> nbytes{0};
  std::atomic<int64_t> op_and_reduction{0}, dtype_and_label{0};
};
static_assert(sizeof(Slot) == 64, "a cache line each");

int64_t join(int32_t low, int32_t high) {
  return static_cast<int64_t>(static_cast<uint64_t>(static_cast<uint32_t>(high)) << 32 |
                              static_cast<uint32_t>(low));
}

constexpr auto kRelaxed = std::memory_order_relaxed;

}  // namespace
}  // namespace mpistrat

using mpistrat::kNobody;
using mpistrat::kRelaxed;
using mpistrat::Slot;

struct MpistratRecords {
  std::unique_ptr<Slot[]> slots;
  int64_t mask;
  std::atomic<int64_t> count{0};
  std::atomic<int64_t> keep_from{kNobody};

  Slot& slot(int64_t number) const { return slots[static_cast<size_t>(number & mask)]; }

  // Read record `number`; returns whether it was there, whole.
  bool read(int64_t number, MpistratRecord* found) const {
    const Slot& from = slot(number);
    // Acquire: the words that are read next were written before this version.
    if (from.version.load(std::memory_order_acquire) != 2 * number + 2) return false;
    const int64_t end = from.end_ns.load(std::memory_order_acquire);
    const int64_t names = from.op_and_reduction.load(std::memory_order_acquire);
    const int64_t more_names = from.dtype_and_label.load(std::memory_order_acquire);
    *found = {number,
              from.sequence.load(std::memory_order_acquire),
              from.begin_ns.load(std::memory_order_acquire),
              end < 0 ? -end : end,
              from.nbytes.load(std::memory_order_acquire),
              static_cast<int32_t>(names),
              static_cast<int32_t>(names >> 32),
              static_cast<int32_t>(more_names),
              static_cast<int32_t>(more_names >> 32),
              end == 0  ? MPISTRAT_UNDER_WAY
              : end > 0 ? MPISTRAT_SUCCEEDED
                        : MPISTRAT_FAILED};
    // Each word was acquired, so this load comes after them: had one of them been of a later
    // record, its odd version, stored before it, would be seen here.
    return from.version.load(kRelaxed) == 2 * number + 2;
  }
};

MpistratRecords* mpistrat_records_open(int64_t capacity) {
  int64_t size = 2;
  while (size < capacity) size *= 2;
  std::unique_ptr<Slot[]> slots(new (std::nothrow) Slot[static_cast<size_t>(size)]);
  return slots ? new (std::nothrow) MpistratRecords{std::move(slots), size - 1} : nullptr;
}

void mpistrat_records_close(MpistratRecords* records) { delete records; }

void mpistrat_record_begin(MpistratRecords* records, const MpistratRecord* call) {
  mpistrat_record_end(records, MPISTRAT_SUCCEEDED);
  const int64_t number = records->count.load(kRelaxed);
  Slot& slot = records->slot(number);
  slot.version.store(2 * number + 1, kRelaxed);
  // Release, each: whoever sees a word of this record sees the odd version before it, too.
  constexpr auto release = std::memory_order_release;
  slot.sequence.store(call->sequence, release);
  slot.end_ns.store(0, release);
  slot.nbytes.store(call->nbytes, release);
  slot.op_and_reduction.store(mpistrat::join(call->op, call->reduction), release);
  slot.dtype_and_label.store(mpistrat::join(call->dtype, call->label), release);
  slot.begin_ns.store(static_cast<int64_t>(mpistrat::now_ns()), release);
  slot.version.store(2 * number + 2, release);
  records->count.store(number + 1, release);  // the record before this one is whole
}

int mpistrat_record_end(MpistratRecords* records, int state) {
  const int64_t number = records->count.load(kRelaxed) - 1;
  if (number < 0) return 0;
  std::atomic<int64_t>& end_ns = records->slot(number).end_ns;
  if (end_ns.load(kRelaxed) == 0) {
    const auto now = static_cast<int64_t>(mpistrat::now_ns());
    end_ns.store(state == MPISTRAT_FAILED ? -now : now, std::memory_order_release);
  }
  return number - records->keep_from.load(kRelaxed) >= records->mask / 2;
}

int64_t mpistrat_records_capacity(const MpistratRecords* records) { return records->mask + 1; }

int64_t mpistrat_records_count(const MpistratRecords* records) {
  return records->count.load(std::memory_order_acquire);
}

int64_t mpistrat_records_read(const MpistratRecords* records, int64_t first, MpistratRecord* found,
                              int64_t most) {
  const int64_t count = mpistrat_records_count(records);
  const int64_t oldest = count - records->mask - 1;
  int64_t num_read = 0;
  for (int64_t number = first < oldest ? oldest : first; number < count; ++number) {
    if (num_read == most) break;
    if (number >= 0 && records->read(number, found + num_read)) ++num_read;
  }
  return num_read;
}

void mpistrat_records_keep(MpistratRecords* records, int64_t from) {
  records->keep_from.store(from < 0 ? kNobody : from, kRelaxed);
}
