#include "node.h"

#include <algorithm>
#include <cstring>

#include "../calls/calls.h"
#include "../common/clock.h"
#include "cache_size.h"

namespace mpistrat {
namespace {

int64_t believed_cache_bytes(int num_cpus, int size) {
  const int64_t told = last_level_cache_bytes(num_cpus);
  return size > 2 ? std::min(told, num_cpus * kCacheOfCpu) : told;
}

}  // namespace

Node::Node(Memory* memory, int rank, int size, int num_cpus)
    : cache_bytes_(believed_cache_bytes(num_cpus, size)),
      view_{},
      waiting_(&memory->futex, size > num_cpus),
      movement_choice_(&memory->decisions, rank == 0),
      sources_(static_cast<size_t>(size)),
      targets_(static_cast<size_t>(size)),
      peers_(static_cast<size_t>(size)),
      table_(static_cast<size_t>(size) * MPISTRAT_LINE_BYTES) {
  view_.memory = memory;
  view_.rank = rank;
  view_.size = size;
  view_.regions = &regions_;
  view_.peer_memory = &peer_memory_;
  view_.sources = sources_.data();
  view_.targets = targets_.data();
  view_.peers = peers_.data();
  view_.scratch = scratch_->bytes;
  for (int kind = 0; kind < MPISTRAT_NUM_KINDS; ++kind)
    for (bool halves : {false, true}) tune(kind, halves, {});
}

void Node::begin(const MpistratSpec& spec) {
  spec_ = spec;
  std::memcpy(&view_.sequence, line_, sizeof view_.sequence);
  const bool is_half = spec_.dtype == MPISTRAT_FLOAT16 || spec_.dtype == MPISTRAT_BFLOAT16;
  view_.tuning = tunings_[spec_.kind][is_half];
  view_.apart_stream_bytes = apart_stream_bytes_[spec_.kind][is_half];
  const bool is_timed = is_timed_[spec_.kind][is_half];
  const bool is_allreduce = spec_.kind == MPISTRAT_ALLREDUCE;
  view_.choices = is_timed && is_allreduce ? choices_[is_half][spec_.is_list != 0] : nullptr;
  view_.movement_choice = is_timed ? &movement_choice_ : nullptr;
  movement_choice_.begin_call();
  step_ = 0;
  next_ = 0;
  is_published_ = is_consuming_ = false;
  if (spec_.kind == MPISTRAT_CROSS) spec_.crosses = 1;
  exchange_ = exchange_choice_.begin(spec_, view_);
}

void Node::tune(int kind, bool halves, const MpistratTuning& tuning) {
  const auto choose = [](int64_t given, int64_t built_in) { return given > 0 ? given : built_in; };
  const auto line = static_cast<int64_t>(kCacheLine);
  const int64_t chunk_bytes =
      view_.size == 2 ? kDefaultTuning.chunk_bytes : kDefaultTuning.chunk_bytes / 2;
  int64_t remote_bytes = view_.size > 2 ? kReadFrom[kind].more : kReadFrom[kind].two;
  // Where nothing is given, the ranks find out; of all-reduces two ranks, whether to read, too.
  is_timed_[kind][halves] = view_.size > 1 && tuning.remote_bytes == 0;
  if (kind == MPISTRAT_ALLREDUCE && is_timed_[kind][halves] && view_.size == 2)
    remote_bytes = kReadBytes;
  // Past the caches as soon as all ranks' sources and results together fill them.
  const int64_t filling = cache_bytes_ > 0 ? cache_bytes_ / (2 * view_.size) : INT64_MAX;
  apart_stream_bytes_[kind][halves] =
      choose(tuning.stream_bytes, std::min(filling, kDefaultTuning.stream_bytes));
  tunings_[kind][halves] = {
      // Whole cache lines, and so whole elements.
      std::clamp(choose(tuning.chunk_bytes, chunk_bytes) / line * line, line, kMaxChunk),
      std::min(choose(tuning.flat_bytes, kDefaultTuning.flat_bytes), kMaxChunk / 4),
      choose(tuning.whole_bytes, kDefaultTuning.whole_bytes),
      choose(tuning.stream_bytes, kDefaultTuning.stream_bytes),
      choose(tuning.remote_bytes, remote_bytes),
  };
}

MpistratStatus Node::advance(uint64_t budget_ns) {
  while (step_ < exchange_->steps) {
    if (!is_published_) publish();
    if (!is_consuming_) {
      if (!waiting_.wait([this] { return have_all_come(); }, budget_ns)) return MPISTRAT_WAITING;
      if (is_line_step() && !do_lines_agree()) {
        fill_table();
        end_step();
        return MPISTRAT_MISMATCH;
      }
    }
    if (!consume(budget_ns)) return MPISTRAT_WAITING;
    if (spec_.kind == MPISTRAT_CROSS) fill_table();
    view_.slot_ring.end();
    end_step();
  }
  movement_choice_.end_call();
  return MPISTRAT_DONE;
}

// Consume the step in hand; returns whether it is done. Others wait for it, so it goes on for as
// long as the budget allows.
bool Node::consume(uint64_t budget_ns) {
  exchange_->consume(view_, step_);
  if (!exchange_->is_partial) return true;
  is_consuming_ = true;
  const uint64_t start = now_ns();
  while (exchange_->is_partial && now_ns() - start < budget_ns) exchange_->consume(view_, step_);
  return !exchange_->is_partial;
}

void Node::end_step() {
  ++step_;
  ++view_.counter;
  next_ = 0;
  is_published_ = is_consuming_ = false;
}

void Node::publish() {
  view_.slot_ring.begin(exchange_->slot_bytes(view_, step_), exchange_->lap_bytes);
  exchange_->produce(view_, step_);
  if (is_line_step()) {
    show_line();
  } else {
    view_.memory->controls()[view_.rank].published.store(view_.counter + 1);
  }
  is_published_ = true;
  waiting_.wake();
}

void Node::show_line() {
  Line& mine = view_.memory->controls()[view_.rank].lines[view_.sequence & 1];
  std::memcpy(mine.rest, line_ + sizeof view_.sequence, sizeof mine.rest);
  if (spec_.kind == MPISTRAT_CROSS)
    std::memcpy(mine.payload, line_ + MPISTRAT_HEAD_BYTES,
                static_cast<size_t>(spec_.payload_bytes));
  mine.sequence.store(view_.sequence);
}

bool Node::has_come(int rank) const {
  if (rank == view_.rank) return true;
  const Control& control = view_.memory->controls()[rank];
  if (is_line_step()) return control.lines[view_.sequence & 1].sequence.load() == view_.sequence;
  return control.published.load() > view_.counter;
}

bool Node::have_all_come() {
  while (next_ < view_.size && has_come(next_)) ++next_;
  return next_ == view_.size;
}

bool Node::do_lines_agree() {
  // What this rank has shown, and not what it would show now: Python may have noted a failure
  // since.
  const Line& mine = view_.line(view_.rank, view_.sequence);
  for (int rank = 0; rank < view_.size; ++rank) {
    const Line& line = view_.line(rank, view_.sequence);
    if (std::memcmp(line.rest, mine.rest, MPISTRAT_AGREED_BYTES - sizeof view_.sequence) != 0)
      return false;
  }
  return true;
}

void Node::fill_table() {
  for (int rank = 0; rank < view_.size; ++rank) {
    const Line& line = view_.line(rank, view_.sequence);
    uint8_t* row = table_.data() + rank * MPISTRAT_LINE_BYTES;
    std::memcpy(row, &view_.sequence, sizeof view_.sequence);
    std::memcpy(row + sizeof view_.sequence, line.rest, sizeof line.rest);
    if (spec_.kind == MPISTRAT_CROSS)
      std::memcpy(row + MPISTRAT_HEAD_BYTES, line.payload,
                  static_cast<size_t>(spec_.payload_bytes));
  }
}

}  // namespace mpistrat

// --------------------------------------------------------------------------------- the C functions

struct MpistratNode : mpistrat::Node, MpistratCalls {
  using Node::Node;
  ~MpistratNode() override { queue.halt(); }
  uint8_t* line() override { return Node::line(); }
  const uint8_t* table() const override { return Node::table(); }
  void begin(const MpistratSpec& spec) override { Node::begin(spec); }
  int advance(uint64_t budget_ns) override { return Node::advance(budget_ns); }
  bool is_moving() const override { return Node::is_moving(); }
  int size() const override { return Node::size(); }
};

size_t mpistrat_node_bytes(int size) { return mpistrat::Memory::bytes(size); }

MpistratNode* mpistrat_node_open(void* memory, int rank, int size, int num_cpus) {
  return new (std::nothrow)
      MpistratNode(static_cast<mpistrat::Memory*>(memory), rank, size, num_cpus);
}

void mpistrat_node_close(MpistratNode* node) { delete node; }

MpistratCalls* mpistrat_node_calls(MpistratNode* node) { return node; }

void mpistrat_token(MpistratNode* node, uint64_t* address, uint64_t* value) {
  const uint64_t* token = node->peer_memory().token();
  *address = reinterpret_cast<uint64_t>(token);
  *value = *token;
}

int mpistrat_has_token(int32_t pid, uint64_t address, uint64_t value) {
  return mpistrat::PeerMemory::has(pid, address, value);
}

void mpistrat_reach(MpistratNode* node, const int32_t* pids) { node->reach(pids); }

int mpistrat_has_gone_past(const MpistratNode* node) { return node->has_gone_past(); }

int mpistrat_region_add(MpistratNode* node, void* const* bases, size_t nbytes) {
  return node->add_region(bases, nbytes);
}

void mpistrat_region_remove(MpistratNode* node, int region) { node->regions().remove(region); }

void mpistrat_tune(MpistratNode* node, int kind, int halves, const MpistratTuning* tuning) {
  node->tune(kind, halves != 0, *tuning);
}
