#ifndef MPISTRAT_SHM_SLOT_PARTS_H_
#define MPISTRAT_SHM_SLOT_PARTS_H_

// Slots that are cut in one part a rank: a rank brings a block for each, a piece of it a step.

#include "../common/pieces.h"
#include "chunks.h"
#include "node_view.h"

namespace mpistrat {

// Copy the step's piece of each block, which lie one behind the other in `send`, to its part of
// this rank's slot, past the caches if `streams`. `block_bytes` has one size a rank.
inline void bring_blocks(const NodeView& view, Pieces* send, const int64_t* block_bytes,
                         int64_t part_bytes, int64_t step, bool streams) {
  int64_t block = 0;
  for (int of = 0; of < view.size; block += block_bytes[of++]) {
    const int64_t n = piece_bytes(block_bytes[of], part_bytes, step);
    const int64_t at = block + step * part_bytes;
    if (n > 0) send->copy_out(at, view.slot(view.rank) + of * part_bytes, n, streams);
  }
}

}  // namespace mpistrat

#endif  // MPISTRAT_SHM_SLOT_PARTS_H_
