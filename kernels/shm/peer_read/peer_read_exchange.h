#ifndef MPISTRAT_SHM_PEER_READ_PEER_READ_EXCHANGE_H_
#define MPISTRAT_SHM_PEER_READ_PEER_READ_EXCHANGE_H_

// Read long arrays in place where that is possible; use the slots for all others.

#include "../regions.h"
#include "peer_memory.h"
#include "transfers.h"

namespace mpistrat {

// A collective by slots that goes without them for long arrays that can be read where they are:
// steps 0 and 1 as in address_exchange.h; in step 1 every rank pulls what it wants; step 2 says
// that it has.
template <class Slots>
class PeerReadExchange : public Exchange {
 public:
  PeerReadExchange(const MpistratSpec& spec, const NodeView& view)
      : slots_(spec, view), addresses_(spec) {
    const MovementChoice::Way way = way_of(spec, view);
    before_ = way == MovementChoice::kRead ? 2 : 0;
    slots_.streams_slots = way == MovementChoice::kStreamed;
    steps = before_ + slots_.steps;
    lap_bytes = slots_.lap_bytes;
  }

  int64_t slot_bytes(const NodeView& view, int64_t step) const override {
    if (step < before_) return AddressExchange::slot_bytes(step);
    return reads_peers_ ? 0 : slots_.slot_bytes(view, step - before_);
  }

  void produce(const NodeView& view, int64_t step) override {
    if (step >= before_) {
      if (!reads_peers_) slots_.produce(view, step - before_);
    } else if (step == 0) {
      addresses_.publish(view, slots_.send(), slots_.recv());
    } else {
      AddressExchange::answer(view, can_read_);
    }
  }

  void consume(const NodeView& view, int64_t step) override {
    if (step == 0 && view.movement_choice) view.movement_choice->count();
    if (step >= before_) {
      if (!reads_peers_) slots_.consume(view, step - before_);
    } else if (step == 0) {
      can_read_ = addresses_.look(view).can_read && AddressExchange::try_to_read(view, false);
    } else if (reads_peers_ || AddressExchange::do_all_agree(view)) {
      reads_peers_ = true;
      steps = 3;
      is_partial = !slots_.read_peers(view);
    }
  }

 private:
  MovementChoice::Way way_of(const MpistratSpec& spec, const NodeView& view) const {
    if (view.size == 1) return MovementChoice::kSlots;
    const bool may_read = view.peer_memory->is_open() || !view.regions->empty();
    const int64_t nbytes = slots_.most_bytes(view);
    const bool reads = may_read && nbytes >= view.tuning.remote_bytes;
    const MovementChoice::Way usual = reads ? MovementChoice::kRead : MovementChoice::kSlots;
    if (!view.movement_choice) return usual;
    return view.movement_choice->plan(spec.kind, nbytes, usual, may_read);
  }

  Slots slots_;
  AddressExchange addresses_;
  int64_t before_ = 0;
  bool can_read_ = false, reads_peers_ = false;
};

}  // namespace mpistrat

#endif  // MPISTRAT_SHM_PEER_READ_PEER_READ_EXCHANGE_H_
