#ifndef MPISTRAT_WIRE_RECURSIVE_DOUBLING_H_
#define MPISTRAT_WIRE_RECURSIVE_DOUBLING_H_

// Recursive doubling: combine a part of every stop into one total, in as few steps as possible.
// Stops beyond the last power of two lend their part to one below it, and get the total. Of two
// parts, the one of the lower stop comes first, so all come to the same bits.

#include "algorithms.h"

namespace mpistrat::wire {

class RecursiveDoubling {
 public:
  explicit RecursiveDoubling(const Stops& stops) : stops_(stops) {
    while (2 * full_ <= stops.count()) full_ *= 2;
  }

  // Write the script. `mine` is what this rank brings and the total in the end, `other` room for
  // what comes in, and `most_bytes` the longest message.
  //
  // nbytes(step)        how long this rank's part is then: -1 before the first exchange, 0, 1, ...,
  //                     and `kTotal` for the total
  // combine(is_second)  writes how `other` is combined into `mine`, which comes second or first
  template <class NumBytes, class Combine>
  void write(Script& script, uint8_t* mine, uint8_t* other, int64_t most_bytes, NumBytes nbytes,
             Combine combine) const {
    const int me = stops_.index;
    if (me >= full_) {
      script.await(script.send(mine, nbytes(-1), rank(me - full_)));
      script.await(script.receive(mine, most_bytes, rank(me - full_)));
      return;
    }
    const bool has_lender = me + full_ < stops_.count();
    if (has_lender) {
      script.await(script.receive(other, most_bytes, rank(me + full_)));
      combine(false);
    }
    for (int step = 0; 1 << step < full_; ++step) {
      const int peer = me ^ 1 << step;
      const int sent = script.send(mine, nbytes(step), rank(peer));
      script.await(script.receive(other, most_bytes, rank(peer)));
      script.await(sent);
      combine(peer < me);
    }
    if (has_lender) script.await(script.send(mine, nbytes(kTotal), rank(me + full_)));
  }

  static constexpr int kTotal = 31;

  // Whether what `origin` alone brings has reached this rank by `step`.
  bool has_come(int origin, int step) const {
    if (step == kTotal || origin == stops_.index) return true;
    if (step < 0 || stops_.index >= full_) return false;
    return (origin % full_) >> step == stops_.index >> step;
  }

 private:
  int rank(int stop) const { return stops_.ranks[static_cast<size_t>(stop)]; }

  const Stops& stops_;
  int full_ = 1;
};

}  // namespace mpistrat::wire

#endif  // MPISTRAT_WIRE_RECURSIVE_DOUBLING_H_
