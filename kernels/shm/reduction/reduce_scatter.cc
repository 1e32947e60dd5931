#include "reduce_scatter.h"

#include <algorithm>

#include "../slot_parts.h"

namespace mpistrat {

ReduceScatter::ReduceScatter(const MpistratSpec& spec, const NodeView& view)
    : spec_(spec),
      send_(spec.send, spec.num_send),
      recv_(spec.recv, spec.num_recv),
      reduction_(spec) {
  part_bytes_ = view.part_bytes(most_bytes(view));
  steps = std::max<int64_t>(num_pieces(most_bytes(view), part_bytes_), 1);
  lap_bytes = view.lap_bytes(view.size * most_bytes(view));
}

int64_t ReduceScatter::most_bytes(const NodeView& view) const {
  return *std::max_element(spec_.send_bytes, spec_.send_bytes + view.size);
}

bool ReduceScatter::read_peers(const NodeView& view) {
  int64_t begin = 0;
  for (int before = 0; before < view.rank; ++before) begin += spec_.send_bytes[before];
  const int64_t end = begin + spec_.send_bytes[view.rank];
  return reduction_.reduce(view, &send_, &recv_, begin, end, begin, 0);
}

void ReduceScatter::produce(const NodeView& view, int64_t step) {
  bring_blocks(view, &send_, spec_.send_bytes, part_bytes_, step, streams_slots);
}

void ReduceScatter::consume(const NodeView& view, int64_t step) {
  const int64_t n = piece_bytes(spec_.send_bytes[view.rank], part_bytes_, step);
  if (n == 0) return;
  for (int of = 0; of < view.size; ++of) view.sources[of] = view.slot(of) + view.rank * part_bytes_;
  void* to = recv_.contiguous(step * part_bytes_, n);
  void* into = to ? to : view.scratch;
  mpistrat_reduce(&into, 1, view.sources, view.size,
                  static_cast<size_t>(n) / mpistrat_itemsize(spec_.dtype), spec_.dtype, spec_.op,
                  spec_.divisor, 0);
  if (!to) recv_.copy_in(step * part_bytes_, into, n, false);
}

}  // namespace mpistrat
