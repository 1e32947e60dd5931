#ifndef MPISTRAT_WIRE_DIRECT_MESSAGES_H_
#define MPISTRAT_WIRE_DIRECT_MESSAGES_H_

// Collectives by messages from rank to rank, on any nodes: gather, scatter and all-to-all,
// in which every byte crosses the wire once anyway; gather and scatter of short blocks between many
// ranks, by a tree; and the all-gather of short arrays, in as few steps as there can be.

#include <cstdint>
#include <vector>

#include "algorithms/block_tree.h"
#include "links.h"
#include "pipeline/segment_flow.h"
#include "schedule.h"

namespace mpistrat::wire {

class Direct {
 public:
  // All calls have one tag, which other kinds of call may use, too: messages from one rank to
  // another are received in the order of their sends, and calls are made one at a time, in the same
  // order on all ranks; none is over before all its own messages are.
  Direct(Links& links, int tag) : links_(links), tag_(tag) {}

  // Begin a call that has crossed, in messages of up to `most_bytes`.
  void begin(const MpistratSpec& spec, int64_t most_bytes);
  // Go as far as is possible without waiting; returns whether it is over.
  bool advance() { return schedule_.run(links_.messages); }

 private:
  using Blocks = std::vector<Block>;  // of bytes, by rank

  bool is_tree(const MpistratSpec& spec) const;
  void begin_tree(const MpistratSpec& spec);
  void gather_by(const BlockTree& tree);
  void scatter_by(const BlockTree& tree);
  Block branch(BlockTree::Branch ranks) const;
  int from_root(int distance) const;
  static void store_own(void* self, int);

  void begin_blocks(const MpistratSpec& spec);
  void list_blocks(const MpistratSpec& spec);
  Blocks cut(uint8_t* data, const int64_t* nbytes) const;
  Blocks only(int rank, uint8_t* data, int64_t nbytes) const;
  static void keep_own(void* self, int rank);
  static void store(void* self, int);

  void begin_allgather(const int64_t* nbytes);
  static void store_turned(void* self, int);

  void exchange(const Block& in, int from, const Block& out, int to);
  void wrote(int message);
  int peer(int distance) const;

  Links& links_;
  const int tag_;
  Schedule schedule_;
  Scratch scratch_;

  // The call under way.
  int64_t most_bytes_ = 1;
  Pieces send_, recv_;
  Blocks incoming_, outgoing_;
  uint8_t* received_ = nullptr;  // what goes to `recv_` in the end, or null: it is there
  int64_t own_start_ = 0;        // in the long array: where the block of this rank begins
  int root_ = 0;
  std::vector<int64_t> starts_;  // in `received_`: of the blocks from this rank's on, and the end
};

}  // namespace mpistrat::wire

#endif  // MPISTRAT_WIRE_DIRECT_MESSAGES_H_
