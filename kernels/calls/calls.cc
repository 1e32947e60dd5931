#include "calls.h"

uint8_t* mpistrat_line(MpistratCalls* calls) { return calls->line(); }

int64_t mpistrat_count(MpistratCalls* calls, int64_t digest) {
  return mpistrat::count_call(calls->line(), digest);
}

const uint8_t* mpistrat_table(MpistratCalls* calls) { return calls->table(); }

void mpistrat_begin(MpistratCalls* calls, const MpistratSpec* spec) { calls->begin(*spec); }

int mpistrat_wait(MpistratCalls* calls, uint64_t budget_ns) {
  if (calls->detached < 0) return calls->advance(budget_ns);
  const int status = calls->queue.wait(calls->detached, budget_ns);
  if (status == MPISTRAT_WAITING) return status;
  calls->detached = -1;
  calls->queue.resume();  // a call of its own has nothing behind it that would have to wait
  return status;
}

void mpistrat_detach(MpistratCalls* calls) {
  if (calls->detached < 0) calls->detached = calls->queue.adopt();
}

int64_t mpistrat_submit(MpistratCalls* calls, const MpistratSpec* spec, int64_t digest,
                        MpistratRecords* records, const MpistratRecord* record) {
  return calls->queue.submit({*spec, *spec->send, *spec->recv, digest, records, *record});
}

int mpistrat_collect(MpistratCalls* calls, int64_t number, uint64_t budget_ns) {
  return calls->queue.wait(number, budget_ns);
}

int mpistrat_is_queue_busy(MpistratCalls* calls) { return calls->queue.is_busy(); }

void mpistrat_resume(MpistratCalls* calls) { calls->queue.resume(); }

void mpistrat_drop(MpistratCalls* calls) { calls->queue.drop(); }

void mpistrat_halt(MpistratCalls* calls) { calls->queue.halt(); }
