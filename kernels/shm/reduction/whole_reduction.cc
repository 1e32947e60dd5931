#include "whole_reduction.h"

#include "../regions.h"

namespace mpistrat {

WholeReduction::WholeReduction(Operands& operands, const Chunks& chunks, PastCaches past)
    : operands_(operands), chunks_(chunks), past_(past) {
  steps = chunks.count();
}

// Nobody reads what a root has.
void WholeReduction::produce(const NodeView& view, int64_t chunk) {
  if (operands_.is_rooted() && operands_.wants(view.rank)) return;
  operands_.send.copy_out(chunks_.start(chunk), view.slot(view.rank), chunks_.nbytes(chunk),
                          past_.slots);
}

void WholeReduction::consume(const NodeView& view, int64_t chunk) {
  if (!operands_.wants(view.rank)) return;
  operands_.for_each_part(chunks_.start(chunk), chunks_.whole(chunk), [&](Slice part) {
    for (int of = 0; of < view.size; ++of) view.sources[of] = source(view, chunk, of, part);
    const int64_t at = chunks_.start(chunk) + part.begin;
    void* to = operands_.recv.contiguous(at, part.nbytes());
    void* into = to ? to : view.scratch;
    operands_.reduce(view, &into, 1, part.nbytes(), to && past_.results);
    if (!to) operands_.recv.copy_in(at, into, part.nbytes(), past_.results);
  });
}

// What is one's own is read from where it is, which is faster than from the slot. But where both
// ranks reduce a chunk of one shared array in place, the other may have written it by now.
const uint8_t* WholeReduction::source(const NodeView& view, int64_t chunk, int of, Slice part) {
  if (of != view.rank) return view.slot(of) + part.begin;
  const uint8_t* own = operands_.send.contiguous(chunks_.start(chunk) + part.begin, part.nbytes());
  const bool may_change = !operands_.is_rooted() && view.regions->are_shared(own, part.nbytes());
  return may_change ? view.slot(of) + part.begin : own;
}

}  // namespace mpistrat
