#ifndef MPISTRAT_SHM_SLOT_RING_H_
#define MPISTRAT_SHM_SLOT_RING_H_

// Allocate the slots of a call's steps, around a ring in each rank's buffers (layout.h).

#include <cstdint>

#include "../common/cache_line.h"
#include "layout.h"

namespace mpistrat {

// Where in the ranks' buffers the slots of a step are. All ranks come to the same, since a step's
// slots have as many bytes on all of them.
class SlotRing {
 public:
  // A step with slots of `nbytes`, at most kMaxChunk; those of its call use `lap` bytes of the
  // ring.
  void begin(int64_t nbytes, int64_t lap) {
    last_ = at_;
    nbytes_ = nbytes;
    at_ = is_short() ? kRing + next_short_ * kShortSlot : next_ > lap - kMaxChunk ? 0 : next_;
  }

  // To be called if all ranks have had this step.
  void end() {
    if (is_short())
      next_short_ = (next_short_ + (nbytes_ > 0)) % kShortSlots;
    else
      next_ = at_ + (nbytes_ + kAlignment - 1) / kAlignment * kAlignment;
  }

  int64_t at() const { return at_; }
  int64_t last() const { return last_; }  // those of the step before

 private:
  static constexpr int64_t kAlignment = 2 * kCacheLine;  // processors fetch lines in pairs
  bool is_short() const { return nbytes_ <= kShortSlot; }

  int64_t next_ = 0, next_short_ = 0;
  int64_t nbytes_ = 0, at_ = 0, last_ = 0;
};

}  // namespace mpistrat

#endif  // MPISTRAT_SHM_SLOT_RING_H_
