#ifndef MPISTRAT_SHM_REDUCTION_FLAT_REDUCTION_H_
#define MPISTRAT_SHM_REDUCTION_FLAT_REDUCTION_H_

// Reduce short arrays in one step: every rank that wants the result reduces all of it.
//
// The shortest ride in the lines, right behind the header, and so need no slot and no flag of their
// own.

#include "../exchange.h"
#include "operands.h"

namespace mpistrat {

class FlatReduction final : public Exchange {
 public:
  // Whether a call is short enough; all ranks come to the same.
  static bool suits(const MpistratSpec& spec, const NodeView& view);

  FlatReduction(const MpistratSpec& spec, const NodeView& view);
  int64_t slot_bytes(const NodeView&, int64_t) const override {
    return is_inline_ ? 0 : operands_.nbytes;
  }
  void produce(const NodeView& view, int64_t step) override;
  void consume(const NodeView& view, int64_t step) override;

 private:
  Operands operands_;
  const bool is_inline_;  // in the lines
};

}  // namespace mpistrat

#endif  // MPISTRAT_SHM_REDUCTION_FLAT_REDUCTION_H_
