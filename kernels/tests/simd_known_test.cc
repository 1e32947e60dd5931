// Reductions that can be checked by hand, copies, and operations that no dtype has.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "helpers/check.h"
#include "helpers/reference.h"
#include "mpistrat/simd.h"

namespace {

using namespace mpistrat_test;

template <class T>
T reduce_two(int dtype, int op, T a, T b, int64_t divisor = 1) {
  T result{};
  void* to[] = {&result};
  const void* from[] = {&a, &b};
  mpistrat_reduce(to, 1, from, 2, 1, dtype, op, divisor, 0);
  return result;
}

// Numbers that can be checked by hand, in case the reference is as wrong as the library.
void check_known_values() {
  const auto half = [](int op, int a, int b, int64_t divisor = 1) {
    return int{reduce_two<uint16_t>(MPISTRAT_FLOAT16, op, static_cast<uint16_t>(a),
                                    static_cast<uint16_t>(b), divisor)};
  };
  const auto bfloat = [](int op, int a, int b) {
    return int{reduce_two<uint16_t>(MPISTRAT_BFLOAT16, op, static_cast<uint16_t>(a),
                                    static_cast<uint16_t>(b))};
  };
  for (const char* name : instruction_sets()) {
    CHECK(mpistrat_simd_select(name));
    CHECK(std::strcmp(mpistrat_simd_name(), name) == 0);
    CHECK(half(MPISTRAT_SUM, 0x6800, 0x3c00) == 0x6800);     // 2048 + 1: a tie, to even
    CHECK(half(MPISTRAT_SUM, 0x6800, 0x4200) == 0x6802);     // 2048 + 3: a tie, to even
    CHECK(half(MPISTRAT_SUM, 0x7bff, 0x4bff) == 0x7bff);     // 65504 + 15.99
    CHECK(half(MPISTRAT_SUM, 0x7bff, 0x4c00) == 0x7c00);     // 65504 + 16: infinity
    CHECK(half(MPISTRAT_SUM, 0x0001, 0x0000, 2) == 0x0000);  // half the smallest: a tie, to even
    CHECK(half(MPISTRAT_SUM, 0x7bff, 0x7bff, 2) == 0x7bff);  // only the float32 is divided
    CHECK(half(MPISTRAT_MIN, 0x8000, 0x3c00) == 0x0000);     // never -0.0
    CHECK(bfloat(MPISTRAT_SUM, 0x4380, 0x3f80) == 0x4380);   // 256 + 1: a tie, to even
    CHECK(bfloat(MPISTRAT_SUM, 0x4380, 0x4040) == 0x4382);   // 256 + 3: a tie, to even
    CHECK(bfloat(MPISTRAT_SUM, 0x7f7f, 0x7f7f) == 0x7f80);   // overflow: infinity
    CHECK((bfloat(MPISTRAT_SUM, 0x7f81, 0x3f80) & 0x7fff) > 0x7f80);  // NaN stays one
    CHECK((bfloat(MPISTRAT_MAX, 0x3f80, 0xffff) & 0x7fff) > 0x7f80);
    CHECK(!std::signbit(reduce_two(MPISTRAT_FLOAT32, MPISTRAT_MAX, -0.0f, -0.0f)));
    CHECK(std::isnan(reduce_two(MPISTRAT_FLOAT64, MPISTRAT_MIN, 1.0, double{NAN})));
    CHECK(reduce_two<uint8_t>(MPISTRAT_BOOL, MPISTRAT_SUM, 2, 255) == 1);
    CHECK(reduce_two<uint8_t>(MPISTRAT_BOOL, MPISTRAT_AND, 2, 1) == 1);
    CHECK(reduce_two<uint8_t>(MPISTRAT_BOOL, MPISTRAT_XOR, 2, 1) == 0);
    CHECK(reduce_two<int8_t>(MPISTRAT_INT8, MPISTRAT_SUM, 127, 1) == -128);
  }
}

void check_copies() {
  constexpr char kUntouched = 0x5a;
  std::mt19937 random(7);
  const Buffer source = random_source<Plain<uint8_t>>(random, 12291);
  for (int stream : {0, 1}) {
    for (size_t nbytes : {0, 1, 63, 64, 65, 127, 4096, 10000}) {
      for (size_t offset : {0, 1, 16, 63}) {
        Buffer to(nbytes + 256, kUntouched);
        mpistrat_copy(&to[offset + 1], &source[offset], nbytes, stream);
        CHECK(std::memcmp(&to[offset + 1], &source[offset], nbytes) == 0);
        CHECK(to[offset] == kUntouched && to[offset + 1 + nbytes] == kUntouched);
      }
    }
  }
}

void check_refusals() {
  CHECK(mpistrat_itemsize(-1) == 0 && mpistrat_itemsize(15) == 0);
  CHECK(!mpistrat_can_reduce(-1, MPISTRAT_INT8) && !mpistrat_can_reduce(7, MPISTRAT_INT8));
  CHECK(!mpistrat_can_reduce(MPISTRAT_SUM, 15) && !mpistrat_can_reduce(MPISTRAT_SUM, -1));
  CHECK(!mpistrat_simd_select("no such set"));
}

}  // namespace

int main() {
  check_refusals();
  check_known_values();
  check_copies();
  return 0;
}
