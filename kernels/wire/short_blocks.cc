#include "short_blocks.h"

#include <algorithm>
#include <numeric>

namespace mpistrat::wire {
namespace {

bool is_gathered(int kind) { return kind == MPISTRAT_ALLGATHER || kind == MPISTRAT_GATHER; }

const int64_t* blocks_of(const MpistratSpec& spec) {
  return is_gathered(spec.kind) ? spec.recv_bytes : spec.send_bytes;
}

}  // namespace

// Of an all-to-all all ranks know but the longest block, if that.
int64_t ShortBlocks::total_bytes(const MpistratSpec& spec, int size) {
  if (spec.kind == MPISTRAT_ALLTOALL) return spec.most_bytes * size * size;
  if (!is_gathered(spec.kind) && spec.kind != MPISTRAT_SCATTER) return 0;
  const int64_t* blocks = blocks_of(spec);
  return std::accumulate(blocks, blocks + size, int64_t{0});
}

bool ShortBlocks::suits(const MpistratSpec& spec, int size, int64_t most_bytes) {
  const int64_t total = total_bytes(spec, size);
  return total > 0 && total <= std::min<int64_t>(most_bytes, kMostBytes);
}

int64_t ShortBlocks::start_of(int rank) const {
  if (spec_.kind == MPISTRAT_ALLTOALL) return rank * spec_.most_bytes * size_;
  const int64_t* blocks = blocks_of(spec_);
  return std::accumulate(blocks, blocks + rank, int64_t{0});
}

const MpistratSpec& ShortBlocks::begin(const MpistratSpec& spec, int rank, int size) {
  spec_ = spec;
  rank_ = rank;
  size_ = size;
  mine_.assign(static_cast<size_t>(total_bytes(spec, size)), 0);
  bring();
  piece_ = {mine_.data(), static_cast<int64_t>(mine_.size())};
  reduction_ = spec;
  reduction_.kind = MPISTRAT_ALLREDUCE;
  reduction_.op = MPISTRAT_OR;
  reduction_.dtype = MPISTRAT_UINT8;
  reduction_.divisor = 1;
  reduction_.num_send = 1;
  reduction_.send = &piece_;
  return reduction_;
}

void ShortBlocks::bring() {
  Pieces send(spec_.send, spec_.num_send);
  if (spec_.kind == MPISTRAT_ALLTOALL) {
    int64_t at = 0;
    for (int to = 0; to < size_; at += spec_.send_bytes[to++])
      send.copy_out(at, mine_.data() + start_of(rank_) + to * spec_.most_bytes,
                    spec_.send_bytes[to]);
  } else if (spec_.kind != MPISTRAT_SCATTER) {
    send.copy_out(0, mine_.data() + start_of(rank_), send.nbytes());
  } else if (rank_ == spec_.root) {
    send.copy_out(0, mine_.data(), send.nbytes());
  }
}

void ShortBlocks::deliver(const uint8_t* total) {
  Pieces recv(spec_.recv, spec_.num_recv);
  if (spec_.kind == MPISTRAT_GATHER && rank_ != spec_.root) return;
  if (spec_.kind == MPISTRAT_ALLTOALL) {
    int64_t at = 0;
    for (int from = 0; from < size_; at += spec_.recv_bytes[from++])
      recv.copy_in(at, total + start_of(from) + rank_ * spec_.most_bytes, spec_.recv_bytes[from],
                   false);
  } else {
    const int64_t at = spec_.kind == MPISTRAT_SCATTER ? start_of(rank_) : 0;
    recv.copy_in(0, total + at, recv.nbytes(), false);
  }
}

}  // namespace mpistrat::wire
