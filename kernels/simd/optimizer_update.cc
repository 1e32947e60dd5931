// mpistrat_update: convert variables and gradients to the dtype of the rule's arithmetic where they
// have another one, a tile at a time, which stays in the first-level cache.

#include <algorithm>
#include <type_traits>

#include "kernel_table.h"
#include "mpistrat/optimizer_updates.h"
#include "mpistrat/simd.h"
#include "mpistrat/types.h"

namespace mpistrat {
namespace {

constexpr size_t kTile = 512;  // elements

bool is_half(int dtype) { return dtype == MPISTRAT_FLOAT16 || dtype == MPISTRAT_BFLOAT16; }

// Elements of any floating dtype as those of type W; themselves, if they have it.
template <class W>
class ConvertedTile {
 public:
  ConvertedTile(int from, int wanted) : from_(from), is_same_(from == wanted) {}

  const char* load(const char* elements, size_t count) {
    if (is_same_) return elements;
    if (is_half(from_) && std::is_same<W, float>::value) {
      mpistrat_widen(wide_, elements, count, from_);
    } else if (is_half(from_)) {
      mpistrat_widen(floats_, elements, count, from_);
      std::copy_n(floats_, count, wide_);
    } else if (from_ == MPISTRAT_FLOAT32) {
      std::copy_n(reinterpret_cast<const float*>(elements), count, wide_);
    } else {
      const auto* doubles = reinterpret_cast<const double*>(elements);
      for (size_t i = 0; i < count; ++i) wide_[i] = static_cast<W>(doubles[i]);
    }
    return reinterpret_cast<const char*>(wide_);
  }

  char* data() { return reinterpret_cast<char*>(wide_); }

  // Back to a half type, whose variables are updated in float32.
  void store_half(char* to, size_t count) const { mpistrat_narrow(to, wide_, count, from_); }

 private:
  int from_;
  bool is_same_;
  alignas(64) float floats_[kTile];
  alignas(64) W wide_[kTile];
};

struct Call {
  UpdateKernel kernel;
  const double* numbers;
  const MpistratUpdateArrays& all;
  int num_slots;
};

UpdateArrays arrays_at(const Call& call, size_t at, size_t slot_bytes) {
  const MpistratUpdateArrays& all = call.all;
  const size_t where = at * mpistrat_itemsize(all.dtype);
  const size_t gradient_where = at * mpistrat_itemsize(all.gradient_dtype);
  UpdateArrays arrays = {static_cast<char*>(all.variable) + where,
                         static_cast<const char*>(all.old_variable) + where,
                         static_cast<const char*>(all.gradient) + gradient_where,
                         {},
                         {}};
  for (int s = 0; s < call.num_slots; ++s) {
    arrays.slots[s] = static_cast<char*>(all.slots[s]) + at * slot_bytes;
    arrays.old_slots[s] = static_cast<const char*>(all.old_slots[s]) + at * slot_bytes;
  }
  return arrays;
}

template <class W>
void update_by_tiles(const Call& call, int wanted) {
  const MpistratUpdateArrays& all = call.all;
  ConvertedTile<W> variables(all.dtype, wanted), gradients(all.gradient_dtype, wanted);
  for (size_t at = 0; at < all.count; at += kTile) {
    const size_t count = std::min(kTile, all.count - at);
    UpdateArrays arrays = arrays_at(call, at, sizeof(W));
    char* const variable = arrays.variable;
    arrays.gradient = gradients.load(arrays.gradient, count);
    if (is_half(all.dtype)) {
      arrays.old_variable = variables.load(arrays.old_variable, count);
      arrays.variable = variables.data();
    }
    call.kernel(arrays, count, call.numbers);
    if (is_half(all.dtype)) variables.store_half(variable, count);
  }
}

void carry_out(const Call& call) {
  const int wanted = mpistrat_slot_dtype(call.all.dtype);
  if (call.all.dtype == wanted && call.all.gradient_dtype == wanted) {
    call.kernel(arrays_at(call, 0, 0), call.all.count, call.numbers);
  } else if (wanted == MPISTRAT_FLOAT32) {
    update_by_tiles<float>(call, wanted);
  } else {
    update_by_tiles<double>(call, wanted);
  }
}

}  // namespace
}  // namespace mpistrat

extern "C" int mpistrat_num_slots(int rule) {
  static constexpr int kSlots[] = {0, 1, 1, 1, 2, 3};
  static_assert(sizeof kSlots / sizeof kSlots[0] == MPISTRAT_NUM_RULES, "one for each rule");
  return rule < 0 || rule >= MPISTRAT_NUM_RULES ? -1 : kSlots[rule];
}

extern "C" int mpistrat_slot_dtype(int dtype) {
  if (dtype == MPISTRAT_FLOAT64) return dtype;
  return dtype == MPISTRAT_FLOAT32 || mpistrat::is_half(dtype) ? MPISTRAT_FLOAT32 : -1;
}

extern "C" void mpistrat_update(const MpistratUpdate* update, const MpistratUpdateArrays* all) {
  const bool is_double = mpistrat_slot_dtype(all->dtype) == MPISTRAT_FLOAT64;
  mpistrat::carry_out({mpistrat::kernel_table().updates[update->rule][is_double], update->numbers,
                       *all, mpistrat_num_slots(update->rule)});
}
