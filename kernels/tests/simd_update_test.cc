// The optimizers' update rules: every instruction set, dtype, length and alignment against one
// element at a time.

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "helpers/check.h"
#include "helpers/reference.h"
#include "mpistrat/optimizer_updates.h"
#include "mpistrat/simd.h"

namespace {

using namespace mpistrat_test;

constexpr size_t kCounts[] = {0, 1, 3, 4, 15, 16, 17, 100, 511, 513, 1100};
constexpr size_t kMargin = 64;
constexpr char kUntouched = 0x5a;
constexpr double kNumbers[] = {-0.125, 0.1, 0.3, 1e-3};
constexpr int kNumSteps = 2;

// ------------------------------------------------------------------------------- the reference

template <class W>
W change(int rule, W gradient, W* slots) {
  const W a = static_cast<W>(kNumbers[0]), b = static_cast<W>(kNumbers[1]),
          c = static_cast<W>(kNumbers[2]), d = static_cast<W>(kNumbers[3]);
  if (rule == MPISTRAT_DESCENT) return gradient * a;
  if (rule == MPISTRAT_MOMENTUM || rule == MPISTRAT_NESTEROV) {
    const W scaled = gradient * a;
    slots[0] *= b;
    slots[0] += scaled;
    if (rule == MPISTRAT_MOMENTUM) return slots[0];
    const W ahead = slots[0] * b;
    return ahead + scaled;
  }
  const W square = gradient * gradient;
  if (rule == MPISTRAT_ADAGRAD) {
    slots[0] += square;
    return gradient * a / std::sqrt(slots[0] + b);
  }
  slots[0] += (gradient - slots[0]) * b;
  slots[1] += (square - slots[1]) * c;
  W second = slots[1];
  if (rule == MPISTRAT_AMSGRAD) second = slots[2] = std::max(slots[2], slots[1]);
  return slots[0] * a / (std::sqrt(second) + d);
}

// ------------------------------------------------------------------------------------- the cases

// Numbers behind a margin, and before one.
template <class Format>
struct Array {
  Buffer bytes;
  size_t offset, count;

  Array(size_t count_, size_t offset_)
      : bytes(2 * kMargin + count_ * Format::kBytes, kUntouched),
        offset(kMargin / 2 + offset_ * Format::kBytes),
        count(count_) {}

  char* data() { return bytes.data() + offset; }
  typename Format::Value get(size_t i) { return Format::load(data() + i * Format::kBytes); }
  void set(size_t i, double value) {
    Format::store(data() + i * Format::kBytes, static_cast<typename Format::Value>(value));
  }
  void fill(std::mt19937* random, double least) {
    std::uniform_real_distribution<double> any(least, least + 8);
    for (size_t i = 0; i < count; ++i) set(i, any(*random));
  }
};

template <class Variable, class Gradient, class Slot>
void check_case(int rule, int dtype, int gradient_dtype, size_t count, size_t offset) {
  using W = typename Slot::Value;
  std::mt19937 random(static_cast<unsigned>(count + offset));
  Array<Variable> variable(count, offset);
  Array<Gradient> gradient(count, (offset + 1) % 4);
  std::vector<Array<Slot>> slots;
  variable.fill(&random, -4);
  gradient.fill(&random, -4);
  for (int s = 0; s < mpistrat_num_slots(rule); ++s) {
    slots.emplace_back(count, (offset + static_cast<size_t>(s)) % 4);
    slots.back().fill(&random, 0);
  }
  auto want_variable = variable;
  auto want_slots = slots;
  MpistratUpdate update = {rule, {kNumbers[0], kNumbers[1], kNumbers[2], kNumbers[3]}};
  for (int step = 0; step < kNumSteps; ++step) {
    // In place at first, then from other memory.
    auto old_variable = variable;
    auto old_slots = slots;
    MpistratUpdateArrays all = {
        variable.data(), variable.data(), dtype, gradient.data(), gradient_dtype, {}, {}, count};
    for (size_t s = 0; s < slots.size(); ++s) all.slots[s] = slots[s].data();
    for (size_t s = 0; s < slots.size(); ++s) all.old_slots[s] = slots[s].data();
    if (step > 0) {
      all.old_variable = old_variable.data();
      variable.fill(&random, 100);
      for (size_t s = 0; s < slots.size(); ++s) {
        all.old_slots[s] = old_slots[s].data();
        slots[s].fill(&random, 100);
      }
    }
    mpistrat_update(&update, &all);
    for (size_t i = 0; i < count; ++i) {
      W kept[MPISTRAT_MAX_SLOTS] = {};
      for (size_t s = 0; s < slots.size(); ++s) kept[s] = want_slots[s].get(i);
      const W updated = static_cast<W>(want_variable.get(i)) +
                        change<W>(rule, static_cast<W>(gradient.get(i)), kept);
      Variable::store(want_variable.data() + i * Variable::kBytes,
                      static_cast<typename Variable::Value>(updated));
      for (size_t s = 0; s < slots.size(); ++s)
        Slot::store(want_slots[s].data() + i * Slot::kBytes, kept[s]);
    }
  }
  CHECK_AT(variable.bytes == want_variable.bytes, "rule %d, dtypes %d and %d, %zu from %zu", rule,
           dtype, gradient_dtype, count, offset);
  for (size_t s = 0; s < slots.size(); ++s)
    CHECK_AT(slots[s].bytes == want_slots[s].bytes, "slot %zu of rule %d, dtypes %d and %d, %zu", s,
             rule, dtype, gradient_dtype, count);
}

template <class Variable, class Gradient, class Slot>
void check_dtypes(int dtype, int gradient_dtype) {
  for (int rule = 0; rule < MPISTRAT_NUM_RULES; ++rule)
    for (size_t count : kCounts)
      for (size_t offset : {0, 1, 3})
        check_case<Variable, Gradient, Slot>(rule, dtype, gradient_dtype, count, offset);
}

template <class Variable, class Slot>
void check_gradients(int dtype) {
  check_dtypes<Variable, Plain<float>, Slot>(dtype, MPISTRAT_FLOAT32);
  check_dtypes<Variable, Plain<double>, Slot>(dtype, MPISTRAT_FLOAT64);
  check_dtypes<Variable, Float16, Slot>(dtype, MPISTRAT_FLOAT16);
  check_dtypes<Variable, Bfloat16, Slot>(dtype, MPISTRAT_BFLOAT16);
}

void check_all() {
  check_gradients<Plain<float>, Plain<float>>(MPISTRAT_FLOAT32);
  check_gradients<Plain<double>, Plain<double>>(MPISTRAT_FLOAT64);
  check_gradients<Float16, Plain<float>>(MPISTRAT_FLOAT16);
  check_gradients<Bfloat16, Plain<float>>(MPISTRAT_BFLOAT16);
}

}  // namespace

int main() {
  int num_sets = 0;
  for (const char* name : {"avx512", "avx2", "neon", "baseline"}) {
    if (!mpistrat_simd_select(name)) continue;
    check_all();
    ++num_sets;
  }
  CHECK(num_sets > 0);
  CHECK(mpistrat_num_slots(MPISTRAT_NUM_RULES) == -1 && mpistrat_num_slots(-1) == -1);
  CHECK(mpistrat_slot_dtype(MPISTRAT_INT32) == -1);
  return 0;
}
