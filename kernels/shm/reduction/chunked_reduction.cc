#include "chunked_reduction.h"

namespace mpistrat {

ChunkedReduction::ChunkedReduction(Operands& operands, const Chunks& chunks, PastCaches past)
    : operands_(operands), chunks_(chunks), slices_(operands, chunks, past) {
  steps = chunks.count() + 1;
}

void ChunkedReduction::consume(const NodeView& view, int64_t chunk) {
  if (chunk > 0 && operands_.wants(view.rank)) slices_.take(view, chunk - 1);
  if (chunk == chunks_.count()) return;
  const Slice mine = chunks_.slice(chunk, view.rank);
  operands_.for_each_part(chunks_.start(chunk), mine, [&](Slice part) {
    slices_.find_sources(view, chunk, part);
    slices_.reduce(view, chunk, part);
  });
}

}  // namespace mpistrat
