#include "queue.h"

#include <unistd.h>

#include <chrono>
#include <cstring>
#include <utility>

#include "../common/clock.h"

namespace mpistrat {
namespace {

constexpr uint64_t kDriveNs = 2'000'000;                // how long the thread may take to give way
constexpr std::chrono::microseconds kWaiterGrace(200);  // for one who waits at once to come

// Count one more call in a line, and show what it is; returns its number.
int64_t count_call(uint8_t* line, int64_t digest, int64_t extra) {
  int64_t head[MPISTRAT_HEAD_BYTES / 8];
  std::memcpy(head, line, sizeof head);
  ++head[0];
  head[1] = digest;
  head[3] = extra;
  std::memcpy(line, head, 2 * sizeof *head);  // head[2], the failures, is Python's
  std::memcpy(line + 3 * sizeof *head, head + 3, sizeof *head);
  return head[0];
}

}  // namespace

void begin_counted(Caller* caller, MpistratSpec* spec, MpistratTicket* ticket) {
  ticket->record.sequence = count_call(caller->line(), ticket->digest, ticket->extra);
  if (ticket->records) mpistrat_record_begin(ticket->records, &ticket->record);
  spec->crosses = 1;
  caller->begin(*spec);
}

void Queue::halt() {
  if (!shared_->thread.joinable()) return;
  if (getpid() != owner_) {
    // A forked child has no such thread, and its lock may be held for ever.
    static_cast<void>(shared_.release());
    shared_ = std::make_unique<Shared>();
    return;
  }
  {
    const std::lock_guard<std::mutex> lock(shared_->mutex);
    shared_->stops = true;
  }
  shared_->changed.notify_all();
  shared_->thread.join();
}

int64_t Queue::submit(const MpistratSpec& spec, const MpistratTicket& ticket) {
  Queued call;
  call.spec = spec;
  call.send.assign(spec.send, spec.send + spec.num_send);
  call.recv.assign(spec.recv, spec.recv + spec.num_recv);
  if (spec.send_bytes) call.send_bytes.assign(spec.send_bytes, spec.send_bytes + caller_->size());
  if (spec.recv_bytes) call.recv_bytes.assign(spec.recv_bytes, spec.recv_bytes + caller_->size());
  call.ticket = ticket;
  return add(std::move(call), false);
}

int64_t Queue::adopt(const MpistratTicket& ticket) {
  {
    const Lock lock(shared_->mutex);
    if (shared_->is_held || !shared_->calls.empty()) return kNotAdopted;
  }
  Queued call;
  call.ticket = ticket;
  return add(std::move(call), true);
}

int64_t Queue::add(Queued call, bool has_begun) {
  if (!shared_->thread.joinable()) {
    owner_ = getpid();
    shared_->stops = false;
    shared_->thread = std::thread([this] { run(); });
  }
  int64_t number;
  {
    const Lock lock(shared_->mutex);
    shared_->calls.push_back(std::move(call));
    shared_->has_begun |= has_begun;
    number = shared_->num_submitted++;
  }
  shared_->changed.notify_all();
  return number;
}

int Queue::wait(int64_t number, uint64_t budget_ns) {
  Shared& shared = *shared_;
  Lock lock(shared.mutex);
  ++shared.num_waiting;
  const uint64_t start = now_ns();
  for (uint64_t left = budget_ns; shared.num_over <= number;) {
    if (!shared.is_driven && shared.is_busy())
      drive(&lock, left);
    else if (left > 0)
      shared.changed.wait_for(lock, std::chrono::nanoseconds(left));
    const uint64_t waited = now_ns() - start;
    if (waited >= budget_ns) break;
    left = budget_ns - waited;
  }
  if (--shared.num_waiting == 0 && shared.is_busy()) shared.changed.notify_all();
  if (shared.num_over <= number) return MPISTRAT_WAITING;
  // The queue is held after one that did not end well, so that is the last one.
  return shared.num_over == number + 1 ? shared.status : static_cast<int>(MPISTRAT_DONE);
}

bool Queue::is_busy() {
  const Lock lock(shared_->mutex);
  return shared_->is_busy();
}

void Queue::resume() {
  {
    const std::lock_guard<std::mutex> lock(shared_->mutex);
    shared_->is_held = false;
  }
  shared_->changed.notify_all();
}

void Queue::drop() {
  if (getpid() != owner_) return;  // nothing was added, or this is a forked child
  Lock lock(shared_->mutex);
  shared_->calls.resize(shared_->has_begun ? 1 : 0);
  shared_->is_held = true;
  ++shared_->num_waiting;
  shared_->changed.wait(lock, [this] { return !shared_->is_driven; });
  --shared_->num_waiting;
}

void Queue::run() {
  Shared& shared = *shared_;
  Lock lock(shared.mutex);
  const auto is_wanted = [&] {
    return shared.stops || (shared.is_busy() && !shared.is_driven && shared.num_waiting == 0);
  };
  while (!shared.stops) {
    if (!is_wanted()) {
      shared.changed.wait(lock, is_wanted);
      shared.changed.wait_for(lock, kWaiterGrace, [&] { return !is_wanted(); });
      continue;
    }
    drive(&lock, kDriveNs);
  }
}

// Advance the first call, with the lock open meanwhile.
void Queue::drive(Lock* lock, uint64_t budget_ns) {
  shared_->is_driven = true;
  if (!shared_->has_begun) begin(&shared_->calls.front());
  lock->unlock();
  const int status = caller_->advance(budget_ns);
  lock->lock();
  shared_->is_driven = false;
  if (status != MPISTRAT_WAITING) end(status);
  if (shared_->num_waiting > 0) shared_->changed.notify_all();
}

// The spec refers to the call itself: what is added to a deque's end moves nothing in it.
void Queue::begin(Queued* call) {
  shared_->has_begun = true;
  call->spec.send = call->send.data();
  call->spec.recv = call->recv.data();
  call->spec.send_bytes = call->send_bytes.data();
  call->spec.recv_bytes = call->recv_bytes.data();
  begin_counted(caller_, &call->spec, &call->ticket);
}

void Queue::end(int status) {
  const MpistratTicket& ticket = shared_->calls.front().ticket;
  const bool is_done = status == MPISTRAT_DONE && !ticket.holds;
  if (is_done && ticket.records) mpistrat_record_end(ticket.records, MPISTRAT_SUCCEEDED);
  shared_->status = status;
  shared_->is_held = !is_done;
  shared_->has_begun = false;
  shared_->calls.pop_front();
  ++shared_->num_over;
}

}  // namespace mpistrat
