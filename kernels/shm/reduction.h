#ifndef MPISTRAT_SHM_REDUCTION_H_
#define MPISTRAT_SHM_REDUCTION_H_

// allreduce, reduce and reduce_scatter on one node.
//
// Short arrays are *flat*: every rank that wants the result reduces all of it, in one step. The
// shortest ride in the lines. Long ones are cut in chunks, and each chunk in one slice a rank:
//
//   step k: copy the others' slices of chunk k into the slot; reduce one's own slice of all slots,
//           to one's result and to its place in the slot; copy out the others' of chunk k - 1.
//
// So a chunk costs one flag, each rank reads its input once and writes its output once, and what
// passes between the ranks stays in the shared cache.
//
// Of registered arrays (regions.h) the copies in, or out, or both are left out. If not all are
// registered, but each rank can read the others' arrays where they are (address_exchange.h), it
// reduces its slice of all of them to its own result, then copies the others' slices from their
// results. Two ranks find out by themselves whether that pays, and any number of them whether to
// fill slots past the caches does (algorithm_choice.h).

#include "algorithm_choice.h"
#include "exchange.h"
#include "peer_read/transfers.h"

namespace mpistrat {

class Reduction : public Exchange {
 public:
  Reduction(const MpistratSpec& spec, const NodeView& view);
  int64_t slot_bytes(const NodeView& view, int64_t step) const override;
  void produce(const NodeView& view, int64_t step) override;
  void consume(const NodeView& view, int64_t step) override;
  AlgorithmChoice::Algorithm algorithm() const {
    return reads_peers_          ? AlgorithmChoice::kRead
           : plan_.streams_slots ? AlgorithmChoice::kStreamed
                                 : AlgorithmChoice::kSlots;
  }

 private:
  // Bytes [begin, end) of a chunk.
  struct Slice {
    int64_t begin, end;
    int64_t nbytes() const { return end - begin; }
  };
  Slice slice(int64_t chunk, int of) const;
  bool wants(int rank) const { return spec_.kind == MPISTRAT_ALLREDUCE || rank == spec_.root; }
  int64_t offset(int64_t chunk) const { return chunk * chunk_bytes_; }

  void bring_or_publish(const NodeView& view, int64_t step);
  bool may_read_peers(const NodeView& view) const;
  void choose_stream(const NodeView& view);
  bool is_apart() const;
  void plan(const NodeView& view);
  void prepare(const NodeView& view, int64_t step);
  void look(const NodeView& view);
  void go_by_slots();
  void reduce_chunk(const NodeView& view, int64_t chunk);
  void read_peers(const NodeView& view, int64_t step);
  int64_t slice_begin(int of) const;
  void reduce_flat(const NodeView& view);
  void bring(const NodeView& view, int64_t chunk);
  void reduce_slice(const NodeView& view, int64_t chunk);
  void reduce_whole(const NodeView& view, int64_t chunk);
  void take(const NodeView& view, int64_t chunk);
  const uint8_t* source(const NodeView& view, int64_t chunk, int of, Slice part);
  template <class Function>
  void for_each_part(int64_t chunk, Slice all, Function function);
  void reduce_to_all(const NodeView& view, int64_t chunk, Slice part);
  void reduce_to_result(const NodeView& view, int64_t chunk, Slice part, uint8_t* result);
  void reduce(const NodeView& view, void* const* to, int num_to, const void* const* from,
              int64_t nbytes, int stream) const;

  const MpistratSpec& spec_;
  Pieces send_, recv_;
  int64_t nbytes_, chunk_bytes_, chunks_ = 0, itemsize_;
  int size_;
  bool is_whole_ = false, is_inline_ = false, is_flat_ = false;
  bool reads_in_place_ = false, writes_in_place_ = false;
  bool reads_peers_ = false, can_read_ = false;
  AlgorithmChoice::Plan plan_ = {};
  bool plans_late_ = false;               // when it is known which arrays are registered
  AlgorithmChoice* choice_ = nullptr;     // of calls with as many of them, if they are timed
  uint64_t spent_ns_ = 0, began_ns_ = 0;  // before all ranks were there, and when they were
  int64_t before_ = 0;                    // steps before the first chunk
  int stream_ = 0;
  AddressExchange addresses_;
  PeerReadReduction reduction_;
  PeerReadCopy copy_;
};

// reduce_scatter: every rank reduces its own block, from slots that are cut in one part a rank.
class ReduceScatter : public Exchange {
 public:
  ReduceScatter(const MpistratSpec& spec, const NodeView& view);
  int64_t slot_bytes(const NodeView& view, int64_t) const override {
    return view.size * part_bytes_;
  }
  void produce(const NodeView& view, int64_t step) override;
  void consume(const NodeView& view, int64_t step) override;

  // What PeerReadExchange needs.
  Pieces* send() { return &send_; }
  Pieces* recv() { return &recv_; }
  int64_t most_bytes(const NodeView& view) const;
  bool read_peers(const NodeView& view);

 private:
  const MpistratSpec& spec_;
  Pieces send_, recv_;
  int64_t part_bytes_;
  PeerReadReduction reduction_;
};

}  // namespace mpistrat

#endif  // MPISTRAT_SHM_REDUCTION_H_
