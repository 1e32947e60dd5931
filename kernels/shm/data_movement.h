#ifndef MPISTRAT_SHM_DATA_MOVEMENT_H_
#define MPISTRAT_SHM_DATA_MOVEMENT_H_

// bcast, gather, allgather, scatter and alltoall on one node, by chunks through the slots.

#include "../common/pieces.h"
#include "exchange.h"
#include "peer_read/transfers.h"

namespace mpistrat {

// bcast, allgather, gather: what a rank brings, all its readers read.
class Spread : public Exchange {
 public:
  Spread(const MpistratSpec& spec, const NodeView& view);
  int64_t slot_bytes(const NodeView&, int64_t step) const override {
    return piece_bytes(most_bytes_, chunk_bytes_, step);
  }
  void produce(const NodeView& view, int64_t step) override;
  void consume(const NodeView& view, int64_t step) override;

  // What PeerReadExchange needs.
  Pieces* send() { return &send_; }
  Pieces* recv() { return &recv_; }
  int64_t most_bytes(const NodeView&) const { return most_bytes_; }
  bool read_peers(const NodeView& view);

 private:
  bool is_source(int rank) const { return spec_.kind != MPISTRAT_BCAST || rank == spec_.root; }
  bool is_reader(int rank) const { return spec_.kind != MPISTRAT_GATHER || rank == spec_.root; }
  // Bytes that `of` brings, and where they go in the result.
  int64_t block_bytes(int of) const;
  int64_t block_start(int of) const;
  bool is_shared(const NodeView& view) const;
  void copy_own(int64_t to, int64_t from, int64_t nbytes);

  const MpistratSpec& spec_;
  Pieces send_, recv_;
  int64_t chunk_bytes_, most_bytes_ = 0;  // of any block
  bool stream_ = false;                   // whether results go past the caches
  bool copies_own_ = false;  // of a root that broadcasts, whether its result is elsewhere
  RangeCopy copy_;
};

// scatter, alltoall: a rank brings a block for each reader, in slots cut in one part a rank.
class Blocks : public Exchange {
 public:
  Blocks(const MpistratSpec& spec, const NodeView& view);
  int64_t slot_bytes(const NodeView& view, int64_t) const override {
    return view.size * part_bytes_;
  }
  void produce(const NodeView& view, int64_t step) override;
  void consume(const NodeView& view, int64_t step) override;

  // What PeerReadExchange needs.
  Pieces* send() { return &send_; }
  Pieces* recv() { return &recv_; }
  int64_t most_bytes(const NodeView&) const { return spec_.most_bytes; }
  bool read_peers(const NodeView& view);

 private:
  bool is_source(int rank) const { return spec_.kind == MPISTRAT_ALLTOALL || rank == spec_.root; }
  int64_t bytes_from(int of) const;

  const MpistratSpec& spec_;
  Pieces send_, recv_;
  int64_t part_bytes_;
  bool stream_ = false;  // whether results go past the caches
  RangeCopy copy_;
};

}  // namespace mpistrat

#endif  // MPISTRAT_SHM_DATA_MOVEMENT_H_
