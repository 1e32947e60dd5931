#ifndef MPISTRAT_SHM_PEER_READ_ADDRESS_EXCHANGE_H_
#define MPISTRAT_SHM_PEER_READ_ADDRESS_EXCHANGE_H_

// Exchange the addresses of the ranks' arrays before a call's data moves, and agree whether each
// rank can read the others' arrays in place: registered ones by their mapping (regions.h), private
// ones through the operating system (peer_memory.h).
//
//   step 0: each rank says where its arrays are; then tries to read both ends of the others';
//   step 1: each says whether it could. If some could not, the call goes on by slots.
//
// What is said in step 0 may be read up to the last step but one, which ends before a rank can say
// anything of its next call.

#include "../../common/pieces.h"
#include "../exchange.h"

namespace mpistrat {

// Another rank's arrays. A null address: not mapped here.
struct Peer {
  uint8_t* send = nullptr;
  uint8_t* recv = nullptr;
  Pieces sends, recvs;
  const int64_t* send_bytes = nullptr;  // of scatter and alltoall
};

class AddressExchange {
 public:
  explicit AddressExchange(const MpistratSpec& spec) : spec_(spec) {}

  // Only answers are in slots.
  static int64_t slot_bytes(int64_t step) { return step; }

  // Step 0: say where `send` and `recv` are.
  void publish(const NodeView& view, Pieces* send, Pieces* recv) const;

  // Look where the others' are, and fill view.peers. All ranks find the same.
  struct Found {
    bool maps_sends = true, maps_recvs = true;  // of all ranks
    bool can_read = true;                       // whether it is worth to try
  };
  Found look(const NodeView& view) const;
  static bool try_to_read(const NodeView& view, bool reads_results);

  // Step 1: say whether this rank can, in its slot; later: whether all can.
  static void answer(const NodeView& view, bool can_read);
  static bool do_all_agree(const NodeView& view);

  // Copy what another rank has at `at` of its source or result to `to`; returns whether that was
  // possible.
  static bool copy_source(const NodeView& view, int of, int64_t at, int64_t nbytes, void* to,
                          int stream);
  static bool copy_result(const NodeView& view, int of, int64_t at, int64_t nbytes, void* to,
                          int stream);

 private:
  const MpistratSpec& spec_;
};

}  // namespace mpistrat

#endif  // MPISTRAT_SHM_PEER_READ_ADDRESS_EXCHANGE_H_
