#ifndef MPISTRAT_SHM_PULLING_H_
#define MPISTRAT_SHM_PULLING_H_

// allreduce of long arrays without slots: every rank reads the others' arrays where they are,
// private ones through the kernel (remote.h), registered ones by their mapping (regions.h). Where
// all are registered, writing the others' results is faster than to let them copy (reduction.h).
//
//   step 0: each rank says where its arrays are; then tries to read the others';
//   step 1: each says whether it could; then reduces its slice of all arrays to its own result;
//   step 2: each copies the others' slices from their results;
//   step 3: all have; nobody's arrays are read any more.
//
// If some rank could not read, the call goes on by slots instead (reduction.h).

#include "exchange.h"

namespace mpistrat {

// Another rank's arrays. A null address: not mapped here.
struct Peer {
  uint8_t* send = nullptr;
  uint8_t* recv = nullptr;
  Pieces sends, recvs;
};

class Pull {
 public:
  Pull(const MpistratSpec& spec, int64_t nbytes, int size) : spec_(spec), nbytes_(nbytes) {
    const int64_t lines = num_pieces(nbytes, kCacheLine);
    slice_bytes_ = num_pieces(lines, size) * static_cast<int64_t>(kCacheLine);
  }

  // Step 0: say where `send` and `recv` are.
  void offer(const Place& place, Pieces* send, Pieces* recv) const;

  // Look where the others' are, and fill place.peers. All ranks find the same.
  struct Found {
    bool maps_sends, maps_recvs;  // of all ranks
    bool can_read;                // whether it is worth to try, as what is private has to be
  };
  Found look(const Place& place) const;
  bool try_to_read(const Place& place) const;

  // Step 1: say whether this rank can; later: whether all can.
  static void answer(const Place& place, bool can_read);
  static bool do_all_agree(const Place& place);

  // Steps 1 and 2, a portion at a time: return whether they are done.
  bool reduce(const Place& place, Pieces* send, Pieces* recv, int stream);
  bool take(const Place& place, Pieces* recv, int stream);

  // Whether all results are one array, which each rank writes a slice of.
  static bool is_one_result(const Place& place);

 private:
  int64_t begin(int of) const { return std::min(of * slice_bytes_, nbytes_); }
  int64_t portion_bytes(const Place& place) const;
  bool find_sources(const Place& place, int64_t at, int64_t nbytes) const;
  bool copy(const Place& place, int of, int64_t at, int64_t nbytes, Pieces* recv, int stream);

  const MpistratSpec& spec_;
  int64_t nbytes_, slice_bytes_;
  int64_t done_ = 0;  // bytes of the slice in hand
  int taken_ = 0;     // others' slices that are copied
};

}  // namespace mpistrat

#endif  // MPISTRAT_SHM_PULLING_H_
