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

// Rounding the lowest bits of a NaN up would carry through all others.
template <class Format>
void check_nans(int dtype) {
  const std::vector<uint32_t> bits = {0x7fffffffu, 0xffffffffu, 0x7f800001u,
                                      0xff80ffffu, 0x7fffffffu, 0x7fc00000u,
                                      0x7f808000u, 0x7fffffffu, 0x7fffffffu};
  std::vector<uint16_t> halves(bits.size());
  mpistrat_narrow(halves.data(), bits.data(), bits.size(), dtype);
  for (size_t i = 0; i < bits.size(); ++i)
    CHECK_AT(std::isnan(Format::load(reinterpret_cast<const char*>(&halves[i]))), "%x", bits[i]);
}

}  // namespace

int main() {
  for (const char* name : {"avx512", "avx2", "neon", "baseline"}) {
    if (!mpistrat_simd_select(name)) continue;
    check_conversions<Float16>(MPISTRAT_FLOAT16);
    check_conversions<Bfloat16>(MPISTRAT_BFLOAT16);
    check_nans<Float16>(MPISTRAT_FLOAT16);
    check_nans<Bfloat16>(MPISTRAT_BFLOAT16);
  }
}
