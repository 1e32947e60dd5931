#include "calls.h"

uint8_t* mpistrat_line(MpistratCalls* calls) { return calls->line(); }

const uint8_t* mpistrat_table(MpistratCalls* calls) { return calls->table(); }

void mpistrat_begin(MpistratCalls* calls, const MpistratSpec* spec) {
  calls->is_under_way = true;
  calls->begin(*spec);
}

void mpistrat_begin_counted(MpistratCalls* calls, MpistratSpec* spec, MpistratTicket* ticket) {
  calls->is_under_way = true;
  mpistrat::begin_counted(calls, spec, ticket);
}

int mpistrat_wait(MpistratCalls* calls, uint64_t budget_ns) {
  const int status = calls->advance(budget_ns);
  if (status != MPISTRAT_WAITING) calls->is_under_way = false;
  return status;
}

int mpistrat_is_moving(MpistratCalls* calls) { return calls->is_moving(); }

int64_t mpistrat_adopt(MpistratCalls* calls, const MpistratTicket* ticket) {
  if (!calls->is_under_way) return -1;
  const int64_t number = calls->queue.adopt(*ticket);
  if (number != mpistrat::Queue::kNotAdopted) calls->is_under_way = false;
  return number;
}

int64_t mpistrat_submit(MpistratCalls* calls, const MpistratSpec* spec,
                        const MpistratTicket* ticket) {
  return calls->queue.submit(*spec, *ticket);
}

int mpistrat_collect(MpistratCalls* calls, int64_t number, uint64_t budget_ns) {
  return calls->queue.wait(number, budget_ns);
}

int mpistrat_is_queue_busy(MpistratCalls* calls) { return calls->queue.is_busy(); }

void mpistrat_resume(MpistratCalls* calls) { calls->queue.resume(); }

void mpistrat_drop(MpistratCalls* calls) { calls->queue.drop(); }

void mpistrat_halt(MpistratCalls* calls) { calls->queue.halt(); }
