#include "slot_slices.h"

#include <utility>

namespace mpistrat {

// The own slice is reduced from where it is.
void SlotSlices::bring(const NodeView& view, int64_t chunk) {
  if (chunk >= chunks_.count()) return;
  const int64_t start = chunks_.start(chunk), nbytes = chunks_.nbytes(chunk);
  const Slice mine = chunks_.slice(chunk, view.rank);
  uint8_t* slot = view.slot(view.rank);
  operands_.send.copy_out(start, slot, mine.begin, past_.slots);
  operands_.send.copy_out(start + mine.end, slot + mine.end, nbytes - mine.end, past_.slots);
}

void SlotSlices::find_sources(const NodeView& view, int64_t chunk, Slice part) {
  for (int of = 0; of < view.size; ++of) view.sources[of] = view.slot(of) + part.begin;
  view.sources[view.rank] =
      operands_.send.contiguous(chunks_.start(chunk) + part.begin, part.nbytes());
}

// The others copy the total from this slot in the next step: its flag, stored after this, says that
// it is there.
void SlotSlices::reduce(const NodeView& view, int64_t chunk, Slice part) {
  const int64_t at = chunks_.start(chunk) + part.begin, nbytes = part.nbytes();
  const bool is_wanted = operands_.wants(view.rank);
  void* slot = view.slot(view.rank) + part.begin;
  void* own = is_wanted ? operands_.recv.contiguous(at, nbytes) : nullptr;
  if (!own) {
    operands_.reduce(view, &slot, 1, nbytes, MPISTRAT_STREAM_NONE);
    if (is_wanted) operands_.recv.copy_in(at, slot, nbytes, past_.results);
    return;
  }
  // Of the two, what goes through the caches comes first.
  void* both[] = {own, slot};
  if (past_.results && !past_.slots) std::swap(both[0], both[1]);
  const int stream = !past_.results && !past_.slots ? MPISTRAT_STREAM_NONE
                     : past_.results && past_.slots ? MPISTRAT_STREAM_ALL
                                                    : MPISTRAT_STREAM_REST;
  operands_.reduce(view, both, 2, nbytes, stream);
}

void SlotSlices::take(const NodeView& view, int64_t chunk) {
  for (int i = 1; i < view.size; ++i) {
    const int of = (view.rank + i) % view.size;  // each rank begins with another one's memory
    const Slice theirs = chunks_.slice(chunk, of);
    if (theirs.nbytes() > 0)
      operands_.recv.copy_in(chunks_.start(chunk) + theirs.begin, view.last_slot(of) + theirs.begin,
                             theirs.nbytes(), past_.results);
  }
}

}  // namespace mpistrat
