#ifndef MPISTRAT_SHM_PEER_READ_TRANSFERS_H_
#define MPISTRAT_SHM_PEER_READ_TRANSFERS_H_

// Reduce and copy straight from other ranks' arrays, through no slot, once the ranks have found
// that they can (address_exchange.h). In portions: a call returns whether all is done, and goes on
// if not.

#include "address_exchange.h"

namespace mpistrat {

// Reduces a range of all ranks' sources to this rank's result.
class RangeReduction {
 public:
  explicit RangeReduction(const MpistratSpec& spec) : spec_(spec) {}

  // Bytes [begin, end) of the sources go to `shift` bytes earlier in the result.
  bool reduce(const NodeView& view, Pieces* send, Pieces* recv, int64_t begin, int64_t end,
              int64_t shift, int stream);

 private:
  bool find_sources(const NodeView& view, int64_t at, int64_t nbytes) const;

  const MpistratSpec& spec_;
  int64_t done_ = 0;
};

// Copies ranges of other ranks' sources or results to this rank's result.
class RangeCopy {
 public:
  // A range of another rank's source (or result), and where it goes.
  struct Range {
    int64_t from, nbytes, to;
  };

  // `range(rank)` says what is wanted of a rank; other ranks come first, then this one. What this
  // process copies goes past the caches, if `stream`.
  template <class RangeOf>
  bool copy_sources(const NodeView& view, Pieces* send, Pieces* recv, bool stream, RangeOf range) {
    for (; taken_ < view.size; ++taken_) {
      const int of = (view.rank + 1 + taken_) % view.size;
      Pieces* own = of == view.rank ? send : nullptr;
      if (!copy(view, of, range(of), own, recv, false, stream)) return false;
    }
    return true;
  }
  template <class RangeOf>
  bool copy_results(const NodeView& view, Pieces* recv, RangeOf range, int stream) {
    for (; taken_ < view.size - 1; ++taken_) {
      const int of = (view.rank + 1 + taken_) % view.size;
      if (!copy(view, of, range(of), nullptr, recv, true, stream)) return false;
    }
    return true;
  }

 private:
  bool copy(const NodeView& view, int of, Range range, Pieces* own, Pieces* recv, bool is_result,
            int stream);

  int taken_ = 0;     // ranks that are done
  int64_t done_ = 0;  // bytes of the next one's range
};

}  // namespace mpistrat

#endif  // MPISTRAT_SHM_PEER_READ_TRANSFERS_H_
