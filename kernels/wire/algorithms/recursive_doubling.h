#ifndef MPISTRAT_WIRE_ALGORITHMS_RECURSIVE_DOUBLING_H_
#define MPISTRAT_WIRE_ALGORITHMS_RECURSIVE_DOUBLING_H_

// Recursive doubling: combine a part of every peer into one total, in as few steps as possible.
// NodePeers beyond the last power of two lend their part to one below it, and get the total. Of two
// parts, the one of the lower peer comes first, so all come to the same bits.

#include <cstdint>

#include "../node_peers.h"
#include "../schedule.h"

namespace mpistrat::wire {

class RecursiveDoubling {
 public:
  explicit RecursiveDoubling(const NodePeers& peers) : peers_(peers) {
    while (2 * full_ <= peers.count()) full_ *= 2;
  }

  // Write the schedule. `mine` is what this rank brings and the total in the end, `other` room for
  // what comes in, and `most_bytes` the longest message.
  //
  // nbytes(step)        how long this rank's part is then: -1 before the first exchange, 0, 1, ...,
  //                     and `kTotal` for the total
  // combine(is_second)  writes how `other` is combined into `mine`, which comes second or first
  template <class NumBytes, class Combine>
  void write(Schedule& schedule, uint8_t* mine, uint8_t* other, int64_t most_bytes, NumBytes nbytes,
             Combine combine) const {
    const int me = peers_.index;
    if (me >= full_) {
      schedule.await(schedule.send(mine, nbytes(-1), rank(me - full_)));
      schedule.await(schedule.receive(mine, most_bytes, rank(me - full_)));
      return;
    }
    const bool has_lender = me + full_ < peers_.count();
    if (has_lender) {
      schedule.await(schedule.receive(other, most_bytes, rank(me + full_)));
      combine(false);
    }
    for (int step = 0; 1 << step < full_; ++step) {
      const int peer = me ^ 1 << step;
      const int sent = schedule.send(mine, nbytes(step), rank(peer));
      schedule.await(schedule.receive(other, most_bytes, rank(peer)));
      schedule.await(sent);
      combine(peer < me);
    }
    if (has_lender) schedule.await(schedule.send(mine, nbytes(kTotal), rank(me + full_)));
  }

  static constexpr int kTotal = 31;

  // Whether what `origin` alone brings has reached this rank by `step`.
  bool has_come(int origin, int step) const {
    if (step == kTotal || origin == peers_.index) return true;
    if (step < 0 || peers_.index >= full_) return false;
    return (origin % full_) >> step == peers_.index >> step;
  }

 private:
  int rank(int peer) const { return peers_.ranks[static_cast<size_t>(peer)]; }

  const NodePeers& peers_;
  int full_ = 1;
};

// Reduce `count` elements at `data` over all peers; `spare` has room for as many.
void doubling_allreduce(Schedule& schedule, const NodePeers& peers, uint8_t* data, uint8_t* spare,
                        int64_t count, const Arithmetic& how);

}  // namespace mpistrat::wire

#endif  // MPISTRAT_WIRE_ALGORITHMS_RECURSIVE_DOUBLING_H_
