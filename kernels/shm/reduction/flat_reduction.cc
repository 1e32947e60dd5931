#include "flat_reduction.h"

namespace mpistrat {
namespace {

bool is_inline(const MpistratSpec& spec, int64_t nbytes) {
  return spec.crosses && nbytes <= MPISTRAT_INLINE_BYTES;
}

}  // namespace

// Two ranks reduce whole chunks of what does not fit in a line (whole_reduction.h), which is as
// few steps, and can be timed.
bool FlatReduction::suits(const MpistratSpec& spec, const NodeView& view) {
  const int64_t nbytes = Pieces(spec.send, spec.num_send).nbytes();
  if (is_inline(spec, nbytes)) return true;
  return view.size != 2 && nbytes * view.size <= view.tuning.flat_bytes && nbytes <= kMaxChunk;
}

FlatReduction::FlatReduction(const MpistratSpec& spec, const NodeView& view)
    : operands_(spec), is_inline_(is_inline(spec, operands_.nbytes)) {
  lap_bytes = view.lap_bytes(operands_.nbytes);
}

// The payload of this parity's line is free: all ranks have shown the line in between, and so have
// read what this rank wrote here two lines ago (layout.h).
void FlatReduction::produce(const NodeView& view, int64_t) {
  Line& line = view.memory->controls()[view.rank].lines[view.sequence & 1];
  operands_.send.copy_out(0, is_inline_ ? line.payload : view.slot(view.rank), operands_.nbytes);
}

void FlatReduction::consume(const NodeView& view, int64_t) {
  if (!operands_.wants(view.rank)) return;
  const int64_t nbytes = operands_.nbytes;
  for (int of = 0; of < view.size; ++of)
    view.sources[of] = is_inline_ ? view.line(of, view.sequence).payload : view.slot(of);
  if (void* to = operands_.recv.contiguous(0, nbytes)) {
    operands_.reduce(view, &to, 1, nbytes, MPISTRAT_STREAM_NONE);
    return;
  }
  alignas(kCacheLine) uint8_t total[MPISTRAT_INLINE_BYTES];
  void* into = is_inline_ ? total : view.scratch;
  operands_.reduce(view, &into, 1, nbytes, MPISTRAT_STREAM_NONE);
  operands_.recv.copy_in(0, into, nbytes, false);
}

}  // namespace mpistrat
