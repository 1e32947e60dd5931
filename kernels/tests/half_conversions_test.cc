// Conversions of every half to float32 and back, and of float32 between two halves.

#include <random>
#include <vector>

#include "helpers/check.h"
#include "helpers/reference.h"
#include "mpistrat/simd.h"

namespace {

using namespace mpistrat_test;

// Every half to float32 and back, and many float32 rounded.
template <class Format>
void check_conversions(int dtype) {
  constexpr size_t kCount = 1 << 16;
  std::vector<uint16_t> halves(kCount), rounded(kCount);
  std::vector<float> wide(kCount);
  std::mt19937 random(5);
  for (size_t i = 0; i < kCount; ++i) halves[i] = static_cast<uint16_t>(i);
  mpistrat_widen(wide.data(), halves.data(), kCount, dtype);
  mpistrat_narrow(rounded.data(), wide.data(), kCount, dtype);
  for (size_t i = 0; i < kCount; ++i) {
    const float expected = Format::load(reinterpret_cast<const char*>(&halves[i]));
    if (std::isnan(expected)) {
      CHECK(std::isnan(wide[i]));
      CHECK(std::isnan(Format::load(reinterpret_cast<const char*>(&rounded[i]))));
    } else {
      CHECK_AT(std::memcmp(&wide[i], &expected, sizeof expected) == 0, "half %zu", i);
      CHECK_AT(rounded[i] == halves[i], "half %zu", i);
    }
    // Around the halves that are next to each other, and everywhere else.
    const float next = wide[(i + 1) % kCount];
    wide[i] = i % 2 ? std::ldexp(static_cast<float>(random()), static_cast<int>(random() % 80) - 70)
                    : (std::isfinite(wide[i] + next) ? (wide[i] + next) / 2 : 1.0f);
  }
  mpistrat_narrow(rounded.data(), wide.data(), kCount, dtype);
  for (size_t i = 0; i < kCount; ++i) {
    uint16_t expected;
    Format::store(reinterpret_cast<char*>(&expected), wide[i]);
    CHECK_AT(rounded[i] == expected, "%a", double{wide[i]});
  }
}

}  // namespace

int main() {
  check_conversions<Float16>(MPISTRAT_FLOAT16);
  check_conversions<Bfloat16>(MPISTRAT_BFLOAT16);
}
