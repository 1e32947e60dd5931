#include "mapped_reduction.h"

#include "../peer_read/address_exchange.h"

namespace mpistrat {

MappedReduction::MappedReduction(Operands& operands, const Chunks& chunks, PastCaches past,
                                 Mapped mapped)
    : operands_(operands),
      chunks_(chunks),
      streams_results_(past.results),
      mapped_(mapped),
      slices_(operands, chunks, past) {
  steps = chunks.count() + 1;
}

// The last step has no chunk: it says that this rank has written its slice of all results, and
// reads mapped sources no more.
void MappedReduction::consume(const NodeView& view, int64_t chunk) {
  if (chunk > 0 && !mapped_.results && operands_.wants(view.rank)) slices_.take(view, chunk - 1);
  if (chunk == chunks_.count()) return;
  const Slice mine = chunks_.slice(chunk, view.rank);
  operands_.for_each_part(chunks_.start(chunk), mine, [&](Slice part) {
    find_sources(view, chunk, part);
    if (mapped_.results)
      reduce_to_all(view, chunk, part);
    else
      slices_.reduce(view, chunk, part);
  });
}

void MappedReduction::find_sources(const NodeView& view, int64_t chunk, Slice part) {
  if (!mapped_.sources) return slices_.find_sources(view, chunk, part);
  for (int of = 0; of < view.size; ++of)
    view.sources[of] = view.peers[of].send + chunks_.start(chunk) + part.begin;
}

void MappedReduction::reduce_to_all(const NodeView& view, int64_t chunk, Slice part) {
  int count = 0;
  for (int of = 0; of < view.size; ++of) {
    void* to = view.peers[of].recv + chunks_.start(chunk) + part.begin;
    if (count == 0 || to != view.targets[count - 1])  // one copy a node, or one each
      view.targets[count++] = to;
  }
  operands_.reduce(view, view.targets, count, part.nbytes(), streams_results_);
}

}  // namespace mpistrat
