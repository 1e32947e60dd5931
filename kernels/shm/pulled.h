#ifndef MPISTRAT_SHM_PULLED_H_
#define MPISTRAT_SHM_PULLED_H_

#include "pulling.h"
#include "remote.h"

namespace mpistrat {

// A collective by slots that goes without them for long arrays that can be read where they are:
// steps 0 and 1 as in offers.h; in step 1 every rank pulls what it wants; step 2 says that it has.
template <class Slots>
class Pulled : public Exchange {
 public:
  Pulled(const MpistratSpec& spec, const Place& place) : slots_(spec, place), offers_(spec) {
    const bool is_long = slots_.most_bytes(place) >= place.tuning.remote_bytes;
    before_ = is_long && place.size > 1 && place.remote->is_open() ? 2 : 0;
    steps = before_ + slots_.steps;
    lap_bytes = slots_.lap_bytes;
  }

  int64_t slot_bytes(const Place& place, int64_t step) const override {
    if (step < before_) return Offers::slot_bytes(step);
    return pulls_ ? 0 : slots_.slot_bytes(place, step - before_);
  }

  void produce(const Place& place, int64_t step) override {
    if (step >= before_) {
      if (!pulls_) slots_.produce(place, step - before_);
    } else if (step == 0) {
      offers_.offer(place, slots_.send(), slots_.recv());
    } else {
      Offers::answer(place, can_read_);
    }
  }

  void consume(const Place& place, int64_t step) override {
    if (step >= before_) {
      if (!pulls_) slots_.consume(place, step - before_);
    } else if (step == 0) {
      can_read_ = offers_.look(place).can_read && Offers::try_to_read(place, false);
    } else if (pulls_ || Offers::do_all_agree(place)) {
      pulls_ = true;
      steps = 3;
      is_partial = !slots_.pull(place);
    }
  }

 private:
  Slots slots_;
  Offers offers_;
  int64_t before_ = 0;
  bool can_read_ = false, pulls_ = false;
};

}  // namespace mpistrat

#endif  // MPISTRAT_SHM_PULLED_H_
