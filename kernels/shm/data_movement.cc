#include "data_movement.h"

#include <algorithm>

#include "slot_parts.h"

namespace mpistrat {

Spread::Spread(const MpistratSpec& spec, const NodeView& view)
    : spec_(spec),
      send_(spec.send, spec.num_send),
      recv_(spec.recv, spec.num_recv),
      chunk_bytes_(view.tuning.chunk_bytes) {
  int64_t total = 0;
  for (int of = 0; of < view.size; ++of) {
    total += block_bytes(of);
    most_bytes_ = std::max(most_bytes_, block_bytes(of));
  }
  steps = std::max<int64_t>(num_pieces(most_bytes_, chunk_bytes_), 1);
  stream_ = total >= view.apart_stream_bytes;
  const bool is_apart =
      spec.num_send == 1 && spec.num_recv == 1 && spec.send[0].data != spec.recv[0].data;
  copies_own_ = spec.kind != MPISTRAT_BCAST || (view.rank == spec.root && is_apart);
  lap_bytes = view.lap_bytes(most_bytes_);
}

int64_t Spread::block_bytes(int of) const {
  if (!is_source(of)) return 0;
  return spec_.kind == MPISTRAT_BCAST ? recv_.nbytes() : spec_.recv_bytes[of];
}

int64_t Spread::block_start(int of) const {
  int64_t start = 0;
  if (spec_.kind != MPISTRAT_BCAST)
    for (int before = 0; before < of; ++before) start += spec_.recv_bytes[before];
  return start;
}

void Spread::produce(const NodeView& view, int64_t step) {
  const int64_t n = piece_bytes(block_bytes(view.rank), chunk_bytes_, step);
  // A root that gathers reads its own block from where it is.
  const bool is_read = spec_.kind != MPISTRAT_GATHER || view.rank != spec_.root;
  if (n > 0 && is_read) send_.copy_out(step * chunk_bytes_, view.slot(view.rank), n, streams_slots);
}

void Spread::consume(const NodeView& view, int64_t step) {
  if (!is_reader(view.rank)) return;
  const int64_t at = step * chunk_bytes_;
  for (int i = 0; i < view.size; ++i) {
    const int of = (view.rank + i) % view.size;
    const int64_t n = piece_bytes(block_bytes(of), chunk_bytes_, step);
    if (n == 0) continue;
    if (of != view.rank) {
      recv_.copy_in(block_start(of) + at, view.slot(of), n, stream_);
    } else if (copies_own_) {
      copy_own(block_start(of) + at, at, n);
    }
  }
}

void Spread::copy_own(int64_t to, int64_t from, int64_t nbytes) {
  send_.for_each(from, nbytes, [&](const uint8_t* piece, int64_t n) {
    recv_.copy_in(to, piece, n, stream_);
    to += n;
  });
}

// Whether the ranks have one result between them, of which each writes what it brings.
bool Spread::is_shared(const NodeView& view) const {
  const uint8_t* result = view.peers[view.rank].recv;
  for (int rank = 0; rank < view.size; ++rank)
    if (!result || view.peers[rank].recv != result) return false;
  return spec_.kind != MPISTRAT_GATHER;
}

bool Spread::read_peers(const NodeView& view) {
  if (!is_reader(view.rank)) return true;
  return copy_.copy_sources(view, &send_, &recv_, stream_, [&](int of) {
    const bool is_there = of == view.rank ? !copies_own_ : is_shared(view);
    return RangeCopy::Range{0, is_there ? 0 : block_bytes(of), block_start(of)};
  });
}

Blocks::Blocks(const MpistratSpec& spec, const NodeView& view)
    : spec_(spec), send_(spec.send, spec.num_send), recv_(spec.recv, spec.num_recv) {
  part_bytes_ = view.part_bytes(spec.most_bytes);
  stream_ = recv_.nbytes() >= view.apart_stream_bytes;
  steps = std::max<int64_t>(num_pieces(spec.most_bytes, part_bytes_), 1);
  lap_bytes = view.lap_bytes(view.size * spec.most_bytes);
}

void Blocks::produce(const NodeView& view, int64_t step) {
  if (is_source(view.rank))
    bring_blocks(view, &send_, spec_.send_bytes, part_bytes_, step, streams_slots);
}

void Blocks::consume(const NodeView& view, int64_t step) {
  int64_t block = 0;
  for (int of = 0; of < view.size; ++of) {
    const int64_t whole = bytes_from(of);
    const int64_t n = piece_bytes(whole, part_bytes_, step);
    if (n > 0)
      recv_.copy_in(block + step * part_bytes_, view.slot(of) + view.rank * part_bytes_, n,
                    stream_);
    block += whole;
  }
}

bool Blocks::read_peers(const NodeView& view) {
  return copy_.copy_sources(view, &send_, &recv_, stream_, [&](int of) {
    RangeCopy::Range range{0, bytes_from(of), 0};
    if (range.nbytes == 0) return range;
    const int64_t* sent = of == view.rank ? spec_.send_bytes : view.peers[of].send_bytes;
    for (int before = 0; before < view.rank; ++before) range.from += sent[before];
    for (int before = 0; before < of; ++before) range.to += bytes_from(before);
    return range;
  });
}

int64_t Blocks::bytes_from(int of) const {
  if (!is_source(of)) return 0;
  return spec_.kind == MPISTRAT_ALLTOALL ? spec_.recv_bytes[of] : recv_.nbytes();
}

}  // namespace mpistrat
