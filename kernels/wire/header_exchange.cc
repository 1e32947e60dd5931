#include "header_exchange.h"

#include <algorithm>
#include <cstring>

#include "algorithms/recursive_doubling.h"
#include "mpistrat/simd.h"

namespace mpistrat::wire {

HeaderExchange::HeaderExchange(Links& links, int tag)
    : links_(links),
      tag_(tag),
      table_(static_cast<size_t>(links.topology.size) * MPISTRAT_LINE_BYTES),
      mine_(kHeadBytes + kMostBytes),
      other_(kHeadBytes + kMostBytes),
      outcome_(kHeadBytes + kMostBytes) {}

// ------------------------------------------------------------------------------ on the node

void HeaderExchange::begin(const MpistratSpec& spec) {
  begin(spec, Piggyback::kNothing, 0);
  result_bytes_ = 0;
  show(MPISTRAT_CROSS);
}

void HeaderExchange::begin_reduce(const MpistratSpec& spec, const Arithmetic& how) {
  how_ = how;
  Pieces send(spec.send, spec.num_send);
  result_bytes_ = send.nbytes();
  const int64_t count = result_bytes_ / how.result_itemsize();
  begin(spec, Piggyback::kReduction, count * how.itemsize());
  uint8_t* source = has_node() ? other_.data() + kHeadBytes : payload();
  if (how.is_widened()) {
    uint8_t* to = source;
    send.for_each(0, result_bytes_, [&](const uint8_t* data, int64_t nbytes) {
      mpistrat_widen(to, data, static_cast<size_t>(nbytes / how.result_itemsize()), how.result);
      to += nbytes / how.result_itemsize() * how.itemsize();
    });
  } else if (!has_node()) {
    send.copy_out(0, source, result_bytes_);
  }
  if (has_node()) {
    links_.call.clear(MPISTRAT_REDUCE);
    links_.call.spec.op = how.op;
    links_.call.spec.dtype = how.dtype;
    if (how.is_widened()) {
      links_.call.send(source, payload_bytes_);
    } else {
      links_.call.send(send, 0, payload_bytes_);
    }
    if (is_leader()) links_.call.receive(payload(), payload_bytes_);
  }
  mine().has_payload = 1;
  show(MPISTRAT_REDUCE);
}

void HeaderExchange::begin_bcast(const MpistratSpec& spec) {
  Pieces recv(spec.recv, spec.num_recv), send(spec.send, spec.num_send);
  result_bytes_ = recv.nbytes();
  begin(spec, Piggyback::kCopy, result_bytes_);
  const auto root = static_cast<size_t>(spec.root);
  const bool is_here = links_.topology.node_of[root] == links_.topology.index;
  mine().has_payload = is_here;
  if (has_node() && is_here) {
    links_.call.clear(MPISTRAT_BCAST);
    links_.call.spec.root = links_.topology.local_of[root];
    if (links_.topology.rank == spec.root) links_.call.send(send, 0, result_bytes_);
    links_.call.receive(payload(), result_bytes_);
    show(MPISTRAT_BCAST);
    if (links_.topology.rank == spec.root) send.copy_out(0, payload(), result_bytes_);
  } else {
    if (is_here) send.copy_out(0, payload(), result_bytes_);
    show(MPISTRAT_CROSS);
  }
}

void HeaderExchange::begin(const MpistratSpec& spec, Piggyback piggyback, int64_t payload_bytes) {
  spec_ = spec;
  piggyback_ = piggyback;
  payload_bytes_ = payload_bytes;
  const bool is_cross = spec.kind == MPISTRAT_CROSS;
  line_bytes_ = MPISTRAT_HEAD_BYTES + (is_cross ? spec.payload_bytes : 0);
  are_lines_wanted_ = is_cross && spec.payload_bytes > 0;
  is_seen_on_node_ = is_mismatch_ = false;
  mine() = {};
  std::memcpy(shown_, line_, sizeof shown_);
  // Only who just crosses compares the last word: it may differ, but then all lines are wanted.
  if (spec.crosses || is_cross)
    std::memcpy(mine().words, shown_, is_cross ? MPISTRAT_HEAD_BYTES : MPISTRAT_AGREED_BYTES);
}

// Show the line on the node, with the call that was described, or with lines alone.
void HeaderExchange::show(int node_kind) {
  phase_ = Phase::kShow;
  const bool crosses = spec_.crosses || spec_.kind == MPISTRAT_CROSS;
  if (!has_node() || (node_kind == MPISTRAT_CROSS && !crosses)) return;
  if (node_kind == MPISTRAT_CROSS) links_.call.clear(MPISTRAT_CROSS);
  links_.call.spec.crosses = crosses;
  links_.call.spec.payload_bytes = static_cast<int32_t>(line_bytes_ - MPISTRAT_HEAD_BYTES);
  std::memcpy(mpistrat_line(links_.node), shown_, sizeof shown_);
  links_.begin_node_call();
}

bool HeaderExchange::advance() {
  for (;;) {
    if (!links_.advance_node()) return false;
    switch (phase_) {
      case Phase::kShow:
        see_node();
        break;
      case Phase::kAgree:
        if (!schedule_.run(links_.messages)) return false;
        tell();
        break;
      case Phase::kTell:
        if (reinterpret_cast<const Head*>(outcome_.data())->is_different) {
          gather();
        } else {
          end();
        }
        break;
      case Phase::kGather:
        if (!schedule_.run(links_.messages)) return false;
        tell_lines();
        break;
      case Phase::kTellLines:
        fill_table();
        phase_ = Phase::kOver;
        break;
      case Phase::kOver:
        return true;
    }
  }
}

void HeaderExchange::see_node() {
  const bool is_cross = spec_.kind == MPISTRAT_CROSS;
  if (has_node() && is_cross) {
    const uint8_t* table = mpistrat_table(links_.node);
    for (size_t local = 0; local < links_.topology.mates().size(); ++local)
      if (std::memcmp(table + local * MPISTRAT_LINE_BYTES, shown_, MPISTRAT_HEAD_BYTES) != 0)
        is_seen_on_node_ = true;
  } else if (has_node() && spec_.crosses) {
    is_seen_on_node_ = links_.node_status() == MPISTRAT_MISMATCH;
  }
  mine().is_different = is_seen_on_node_;
  if (are_lines_wanted_) {
    gather();
  } else if (is_leader()) {
    agree();
  } else if (is_seen_on_node_) {
    gather();
  } else {
    tell();
  }
}

// ------------------------------------------------------------------------ between the leaders

void HeaderExchange::agree() {
  phase_ = Phase::kAgree;
  schedule_.clear(tag_);
  const RecursiveDoubling doubling(links_.leaders);
  const int origin = links_.topology.node_of[static_cast<size_t>(spec_.root)];
  doubling.write(
      schedule_, mine_.data(), other_.data(), kHeadBytes + kMostBytes,
      [&](int step) {
        const bool brings = piggyback_ == Piggyback::kReduction ||
                            (piggyback_ == Piggyback::kCopy && doubling.has_come(origin, step));
        return kHeadBytes + (brings ? payload_bytes_ : 0);
      },
      [&](bool is_second) { schedule_.call(&HeaderExchange::combine, this, is_second); });
}

void HeaderExchange::combine(void* self, int is_second) {
  static_cast<HeaderExchange*>(self)->combine(is_second != 0);
}

void HeaderExchange::combine(bool is_second) {
  const Head& other = *reinterpret_cast<const Head*>(other_.data());
  const bool differ = std::memcmp(mine().words, other.words, sizeof other.words) != 0;
  mine().is_different |= differ || other.is_different;
  if (mine().is_different) return;  // what comes along may be of another length
  const uint8_t* theirs = other_.data() + kHeadBytes;
  if (piggyback_ == Piggyback::kReduction) {
    const int64_t count = payload_bytes_ / how_.itemsize();
    reduce_step(payload(), is_second ? theirs : payload(), is_second ? payload() : theirs, count,
                how_);
  } else if (other.has_payload && !mine().has_payload) {
    std::memcpy(payload(), theirs, static_cast<size_t>(payload_bytes_));
    mine().has_payload = 1;
  }
}

// Every node gets the lines of all nodes: those of the next, of the next two, four, ...
void HeaderExchange::gather() {
  phase_ = Phase::kGather;
  schedule_.clear(tag_);
  const Topology& topology = links_.topology;
  const int p = topology.num_nodes();
  const int64_t block = topology.most * line_bytes_;
  lines_.resize(static_cast<size_t>(p * block));
  if (!is_leader()) return;
  const bool has_table = has_node() && (spec_.kind == MPISTRAT_CROSS || is_seen_on_node_);
  for (size_t local = 0; local < topology.mates().size(); ++local) {
    const uint8_t* line =
        has_table ? mpistrat_table(links_.node) + local * MPISTRAT_LINE_BYTES : shown_;
    std::memcpy(lines_.data() + static_cast<int64_t>(local) * line_bytes_, line,
                static_cast<size_t>(line_bytes_));
  }
  for (int have = 1; have < p; have *= 2) {
    const int64_t more = std::min(have, p - have) * block;
    const int sent = schedule_.send(lines_.data(), more, links_.leaders.at(-have));
    schedule_.await(schedule_.receive(lines_.data() + have * block, more, links_.leaders.at(have)));
    schedule_.await(sent);
  }
}

// ------------------------------------------------------------------------------ to the node

void HeaderExchange::tell() {
  phase_ = Phase::kTell;
  if (is_leader()) {
    std::memcpy(outcome_.data(), mine_.data(), kHeadBytes);
    if (piggyback_ == Piggyback::kReduction && !mine().is_different) {
      finish_step(result(), payload(), nullptr, payload_bytes_ / how_.itemsize(), how_);
    } else if (piggyback_ == Piggyback::kCopy) {
      std::memcpy(result(), payload(), static_cast<size_t>(payload_bytes_));
    }
  }
  if (!has_node() || is_seen_on_node_) return;  // who has seen it needs not be told
  links_.call.clear(MPISTRAT_BCAST);
  if (is_leader()) links_.call.send(outcome_.data(), kHeadBytes + result_bytes_);
  links_.call.receive(outcome_.data(), kHeadBytes + result_bytes_);
  links_.begin_node_call();
}

void HeaderExchange::tell_lines() {
  phase_ = Phase::kTellLines;
  if (!has_node()) return;
  links_.call.clear(MPISTRAT_BCAST);
  if (is_leader()) links_.call.send(lines_.data(), static_cast<int64_t>(lines_.size()));
  links_.call.receive(lines_.data(), static_cast<int64_t>(lines_.size()));
  links_.begin_node_call();
}

void HeaderExchange::end() {
  phase_ = Phase::kOver;
  if (spec_.kind != MPISTRAT_CROSS) return;
  for (int rank = 0; rank < links_.topology.size; ++rank) put_line(rank, shown_);
}

void HeaderExchange::fill_table() {
  is_mismatch_ = spec_.kind != MPISTRAT_CROSS;
  const Topology& topology = links_.topology;
  const uint8_t* block = lines_.data();
  for (int i = 0; i < topology.num_nodes(); ++i, block += topology.most * line_bytes_) {
    const auto& group =
        topology.groups[static_cast<size_t>(links_.leaders.wrap(topology.index + i))];
    for (size_t local = 0; local < group.size(); ++local)
      put_line(group[local], block + static_cast<int64_t>(local) * line_bytes_);
  }
}

void HeaderExchange::put_line(int rank, const uint8_t* line) {
  std::memcpy(table_.data() + static_cast<size_t>(rank) * MPISTRAT_LINE_BYTES, line,
              static_cast<size_t>(line_bytes_));
}

}  // namespace mpistrat::wire
