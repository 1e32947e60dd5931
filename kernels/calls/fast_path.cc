#include "fast_path.h"

namespace mpistrat {
namespace {

// Bytes by rank of the blocks that a call's whole array consists of.
void fill_blocks(const Plain& call, int size, std::vector<int64_t>* blocks) {
  blocks->resize(static_cast<size_t>(size));
  const bool is_even = call.kind == MPISTRAT_ALLGATHER || call.kind == MPISTRAT_GATHER;
  for (int rank = 0; rank < size; ++rank)
    (*blocks)[static_cast<size_t>(rank)] =
        is_even ? call.send_bytes : rows_of(call.rows, size, rank) * call.row_bytes;
}

void name_blocks(const Plain& call, FastCall* found) {
  const bool sends = call.kind == MPISTRAT_REDUCE_SCATTER || call.kind == MPISTRAT_SCATTER;
  const bool receives = call.kind == MPISTRAT_ALLGATHER || call.kind == MPISTRAT_GATHER;
  const bool both = call.kind == MPISTRAT_ALLTOALL;
  if (sends || both) found->spec.send_bytes = found->blocks.data();
  if (receives || both) found->spec.recv_bytes = found->blocks.data();
  if (both || call.kind == MPISTRAT_SCATTER) found->spec.most_bytes = found->blocks[0];
}

void name_arrays(const Plain& call, FastCall* found) {
  MpistratSpec& spec = found->spec;
  if (call.num_arrays > 0) {
    spec.send = found->sends.data();
    spec.num_send = static_cast<int32_t>(found->sends.size());
    spec.recv = found->recvs.data();
    spec.num_recv = static_cast<int32_t>(found->recvs.size());
    return;
  }
  found->send = {call.send, call.send_bytes};
  found->recv = {call.recv, call.recv_bytes};
  spec.send = &found->send;
  spec.num_send = call.send_bytes > 0;
  spec.recv = &found->recv;
  spec.num_recv = call.recv_bytes > 0;
}

// What is said to the kernels of a call.
void describe(const CallState& calls, const Plain& call, FastCall* found) {
  found->spec = {};
  found->spec.is_list = call.num_arrays > 1;
  const bool is_barrier = call.kind == MPISTRAT_CROSS;  // which reduces nothing
  found->spec.kind = is_barrier ? static_cast<int32_t>(MPISTRAT_ALLREDUCE) : call.kind;
  found->spec.op = call.op == kMean ? static_cast<int32_t>(MPISTRAT_SUM) : call.op;
  found->spec.dtype = call.dtype;
  found->spec.root = call.root;
  found->spec.divisor = call.op == kMean ? calls.size : 1;
  name_arrays(call, found);
  if (call.kind == MPISTRAT_REDUCE_SCATTER || call.kind >= MPISTRAT_ALLGATHER) {
    fill_blocks(call, calls.size, &found->blocks);
    name_blocks(call, found);
  }
}

size_t place_of(const Kind& kind, const Shapes& shapes) {
  uint64_t h = kind.hash();
  for (int64_t one : shapes) h = (h ^ static_cast<uint64_t>(one)) * 0x9E3779B97F4A7C15u;
  return static_cast<size_t>(shapes.empty() ? h : h >> 32 ^ h);
}

bool is_aligned(const void* memory, int64_t itemsize) {
  return reinterpret_cast<uintptr_t>(memory) % static_cast<uintptr_t>(itemsize) == 0;
}

}  // namespace

size_t Kind::hash() const {
  const auto words = {label,         int64_t{kind},     int64_t{op},
                      int64_t{root}, int64_t{type_num}, int64_t{is_of_objects}};
  uint64_t h = 0;
  for (int64_t word : words) h = h * 31 + static_cast<uint64_t>(word);
  for (int i = 0; i < ndim; ++i) h = (h ^ static_cast<uint64_t>(shape[i])) * 0x9E3779B97F4A7C15u;
  return static_cast<size_t>(h >> 32 ^ h);
}

Kind kind_of(const CallState& calls, int kind, int op, int root, int type_num, int64_t ndim,
             const int64_t* shape) {
  Kind found;
  std::memset(&found, 0, sizeof found);
  found.label = calls.label;
  found.kind = kind;
  found.op = op;
  found.root = root;
  found.type_num = type_num;
  found.ndim = static_cast<int32_t>(ndim);
  for (int i = 0; i < found.ndim; ++i) found.shape[i] = shape[i];
  return found;
}

const MpistratTicket* FastPath::find(const Kind& kind, const Shapes& shapes) const {
  const Known& found = known[place_of(kind, shapes) % known.size()];
  const bool is_it = found.is_used && found.kind == kind && found.shapes == shapes;
  return is_it ? &found.ticket : nullptr;
}

void FastPath::learn(const Kind& kind, const MpistratTicket& ticket, Shapes shapes) {
  Known& place = known[place_of(kind, shapes) % known.size()];
  place = {kind, std::move(shapes), ticket, true};
}

void FastPath::forget_scatters() {
  for (Known& one : known) one.is_used &= one.kind.kind != MPISTRAT_SCATTER;
}

void FastPath::begin(const Plain& call, const MpistratTicket* ticket) {
  calls->is_fast.store(true, std::memory_order_relaxed);
  calls->fast_calls.store(calls->fast_calls.load(std::memory_order_relaxed) + 1,
                          std::memory_order_relaxed);
  FastCall& mine = calls->call;
  describe(*calls, call, &mine);
  mine.ticket = ticket ? *ticket : MpistratTicket{};
  mine.ticket.records = calls->records;
  mpistrat_begin_counted(calls->calls, &mine.spec, &mine.ticket);
}

void FastPath::go_on(const Plain& call) {
  describe(*calls, call,
           &calls->call);  // without a header: the first transfer has compared the call
  mpistrat_begin(calls->calls, &calls->call.spec);
}

void FastPath::note(int status) {
  if (status != MPISTRAT_DONE) {
    calls->is_ready = false;
    return;
  }
  // Where a reader of records is called for, the next call goes through Python, which calls it.
  if (calls->records && mpistrat_record_end(calls->records, MPISTRAT_SUCCEEDED))
    calls->is_ready = false;
  // Whoever claims next sees this call's line and record.
  calls->is_busy.store(false, std::memory_order_release);
}

bool claim(CallState* calls) {
  bool is_busy = false;
  if (!calls->is_ready || !calls->is_busy.compare_exchange_strong(is_busy, true)) return false;
  // Python forbids calls, and then looks whether one is under way: one of the two sees the other.
  if (calls->is_ready) return true;
  calls->is_busy = false;
  return false;
}

int allreduce_now(void* path, int64_t kind, const ArrayMemory* array, int64_t* sequence) {
  auto* self = static_cast<FastPath*>(path);
  CallState* calls = self->calls;
  const int64_t itemsize = kind >> 32;
  const auto op = static_cast<int32_t>(kind & 0xFF), dtype = static_cast<int32_t>(kind >> 8 & 0xFF);
  const auto type_num = static_cast<int32_t>(kind >> 16 & 0xFFFF);
  if (array->nbytes == 0 || array->ndim > kMaxDims || !is_aligned(array->send, itemsize) ||
      !is_aligned(array->recv, itemsize) || !claim(calls))
    return kNotBegun;
  const MpistratTicket* ticket = nullptr;
  if (calls->has_digests) {
    ticket =
        self->find(kind_of(*calls, MPISTRAT_ALLREDUCE, op, 0, type_num, array->ndim, array->shape));
    if (!ticket) {
      calls->is_busy = false;
      return kNotBegun;
    }
  }
  self->begin({MPISTRAT_ALLREDUCE, op, dtype, 0, const_cast<void*>(array->send), array->recv,
               array->nbytes, array->nbytes, 0, 0, 0},
              ticket);
  *sequence = calls->call.ticket.record.sequence;
  const int status = calls->wait(kStayNs);
  self->note(status);
  return status;
}

int64_t packed_kind(int op, int dtype, int type_num, int64_t itemsize) {
  return itemsize << 32 | static_cast<int64_t>(type_num) << 16 | static_cast<int64_t>(dtype) << 8 |
         op;
}

}  // namespace mpistrat
