#ifndef MPISTRAT_WIRE_HEADER_EXCHANGE_H_
#define MPISTRAT_WIRE_HEADER_EXCHANGE_H_

// Compare the calls' headers (lines) between nodes, and carry short arrays along with them.
//
// In this order: the lines are compared on each node, by a call of the node that also brings a
// short array to its leader; the leaders exchange one line each in as few steps as there can be,
// and combine the short arrays; they tell their nodes how it went, and the result. Where lines
// differ, or each is wanted, the leaders gather all of them, and tell their nodes.

#include <vector>

#include "links.h"
#include "schedule.h"

namespace mpistrat::wire {

class HeaderExchange {
 public:
  enum { kMostBytes = 32 << 10 };  // of a short array, as its accumulation has it

  HeaderExchange(Links& links, int tag);

  uint8_t* line() { return line_; }
  const uint8_t* table() const { return table_.data(); }

  // Begin to cross (if the call does), with nothing but lines.
  void begin(const MpistratSpec& spec);
  // Begin to reduce a short array too, or to copy one from its root.
  void begin_reduce(const MpistratSpec& spec, const Arithmetic& how);
  void begin_bcast(const MpistratSpec& spec);

  // Go as far as is possible without waiting; returns whether it is over.
  bool advance();
  bool is_mismatch() const { return is_mismatch_; }
  // The short array's result, once it is over.
  uint8_t* result() { return outcome_.data() + kHeadBytes; }

 private:
  enum class Phase { kShow, kAgree, kTell, kGather, kTellLines, kOver };
  enum class Piggyback { kNothing, kReduction, kCopy };
  struct Head {
    int64_t words[4];
    int64_t is_different, has_payload;
    int64_t unused[2];
  };
  static constexpr int64_t kHeadBytes = sizeof(Head);

  void begin(const MpistratSpec& spec, Piggyback piggyback, int64_t payload_bytes);
  void show(int node_kind);
  void see_node();
  void agree();
  void tell();
  void gather();
  void tell_lines();
  void end();
  void fill_table();
  void put_line(int rank, const uint8_t* line);

  void combine(bool is_second);
  static void combine(void* self, int is_second);

  Head& mine() { return *reinterpret_cast<Head*>(mine_.data()); }
  uint8_t* payload() { return mine_.data() + kHeadBytes; }
  bool has_node() const { return links_.node != nullptr; }
  bool is_leader() const { return links_.topology.is_leader(); }

  Links& links_;
  const int tag_;
  Schedule schedule_;
  alignas(64) uint8_t line_[MPISTRAT_LINE_BYTES] = {};
  std::vector<uint8_t> table_;
  // A head and a payload each: this node's, another's, and what a node is told.
  std::vector<uint8_t> mine_, other_, outcome_;
  std::vector<uint8_t> lines_;  // of all nodes, this one's first

  // The call under way.
  uint8_t shown_[MPISTRAT_LINE_BYTES] = {};  // of the line, which Python may change meanwhile
  MpistratSpec spec_ = {};
  Arithmetic how_;
  Piggyback piggyback_ = Piggyback::kNothing;
  Phase phase_ = Phase::kOver;
  int64_t payload_bytes_ = 0;  // of the short array, as it is combined
  int64_t result_bytes_ = 0;   // of its result
  int64_t line_bytes_ = 0;     // that each rank shows
  bool is_seen_on_node_ = false, is_mismatch_ = false, are_lines_wanted_ = false;
};

}  // namespace mpistrat::wire

#endif  // MPISTRAT_WIRE_HEADER_EXCHANGE_H_
