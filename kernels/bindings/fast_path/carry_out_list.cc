#include "carry_out_list.h"

#include <cstddef>

#include "list_calls.h"
#include "list_plan.h"

namespace mpistrat {
namespace {

// Begin a group's transfer; that of the first one begins the call.
void begin_group(FastCalls* self, const Plain& call, size_t group, bool is_last,
                 const MpistratTicket* ticket) {
  if (group == 0)
    self->path.begin(call, ticket);
  else
    self->path.go_on(call);
  // Where the queue takes the transfer over, calls behind it wait until the last one is over.
  self->path.calls->call.ticket.holds = !is_last;
}

// Make a transfer for each dtype. Returns null without an error where another thread was faster.
PyObject* carry_out_list(FastCalls* self, const Arguments& arguments, const ListPlan& plan,
                         PyObject* out) {
  const MpistratTicket* ticket = nullptr;
  if (claim_with_ticket(self, arguments, nullptr, &ticket) != kClaimed) return nullptr;
  FastCall& mine = self->path.calls->call;
  int status = MPISTRAT_DONE;
  size_t group = 0;
  for (const size_t count = plan.groups.size(); group < count; ++group) {
    place_group(arguments.list.object, out, plan, group, &mine);
    const Plain call = plan.transfer(arguments, group);
    begin_group(self, call, group, group + 1 == count, ticket);
    status = stay(self, arguments, call);
    if (status != MPISTRAT_DONE) break;
  }
  const int64_t sequence = mine.ticket.record.sequence;
  self->path.note(status);
  return status == MPISTRAT_DONE ? result_of(self, arguments, out)
                                 : finish(self, arguments, status, sequence, out, group);
}

}  // namespace

// The arrays of a call are its own tuple's: a user's list may change.
PyObject* call_list(FastCalls* self, const Arguments& arguments) {
  ListPlan plan;
  if (!plan_list(arguments, &plan)) return nullptr;
  if (arguments.method->has(kIsNonblocking) && plan.nbytes > kNonblockingBytes) return nullptr;
  PyObject* out = results_of_list(arguments, plan);
  if (!out) return leave_to_python();
  PyObject* found = carry_out_list(self, arguments, plan, out);
  Py_DECREF(out);
  return found;
}

}  // namespace mpistrat
