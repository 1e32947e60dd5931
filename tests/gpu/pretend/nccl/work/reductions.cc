#include "nccl/work/reductions.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace pretend {
namespace {

// How an element is stored, and the type in which it is reduced.
template <class T>
struct Plain {
  using Stored = T;
  using Wide = T;
  static Wide widen(Stored v) { return v; }
  static Stored narrow(Wide v) { return v; }
};

struct Half {
  using Stored = _Float16;
  using Wide = float;
  static Wide widen(Stored v) { return static_cast<float>(v); }
  static Stored narrow(Wide v) { return static_cast<_Float16>(v); }
};

struct Bfloat {
  using Stored = uint16_t;
  using Wide = float;
  static Wide widen(Stored v) {
    const uint32_t bits = static_cast<uint32_t>(v) << 16;
    float wide;
    std::memcpy(&wide, &bits, sizeof wide);
    return wide;
  }
  static Stored narrow(Wide v) {
    uint32_t bits;
    std::memcpy(&bits, &v, sizeof bits);
    if (v != v) return static_cast<Stored>(bits >> 16 | 0x40);  // rounding may turn NaN into inf
    return static_cast<Stored>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }
};

template <class T>
T add(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  else
    return a + b;
}

template <class T>
T multiply(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  else
    return a * b;
}

template <class T>
T larger(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return std::max(a, b);
  else
    return std::fmax(a, b);
}

template <class T>
T smaller(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return std::min(a, b);
  else
    return std::fmin(a, b);
}

template <class Element, class Before, class Step, class After>
void fold(const char* const* inputs, int ranks, size_t n, char* out, Before before, Step step,
          After after) {
  using Stored = typename Element::Stored;
  const auto value = [&](int rank, size_t i) {
    Stored stored;
    std::memcpy(&stored, inputs[rank] + i * sizeof stored, sizeof stored);
    return before(Element::widen(stored));
  };
  for (size_t i = 0; i < n; ++i) {
    typename Element::Wide total = value(0, i);
    for (int rank = 1; rank < ranks; ++rank) total = step(total, value(rank, i));
    const Stored stored = Element::narrow(after(total));
    std::memcpy(out + i * sizeof stored, &stored, sizeof stored);
  }
}

template <class Element>
void average(const char* const* inputs, int ranks, size_t n, char* out) {
  using Wide = typename Element::Wide;
  const auto same = [](Wide v) { return v; };
  if constexpr (std::is_integral_v<Wide>) {
    const auto divide = [ranks](Wide v) { return static_cast<Wide>(v / static_cast<Wide>(ranks)); };
    fold<Element>(inputs, ranks, n, out, same, add<Wide>, divide);
  } else {
    const Wide factor = Element::widen(Element::narrow(static_cast<Wide>(1.0 / ranks)));
    const auto scale = [factor](Wide v) { return v * factor; };
    fold<Element>(inputs, ranks, n, out, scale, add<Wide>, same);
  }
}

template <class Element>
void reduce_as(ncclRedOp_t op, const char* const* inputs, int ranks, size_t n, char* out) {
  using Wide = typename Element::Wide;
  const auto same = [](Wide v) { return v; };
  switch (op) {
    case ncclSum:
      return fold<Element>(inputs, ranks, n, out, same, add<Wide>, same);
    case ncclProd:
      return fold<Element>(inputs, ranks, n, out, same, multiply<Wide>, same);
    case ncclMax:
      return fold<Element>(inputs, ranks, n, out, same, larger<Wide>, same);
    case ncclMin:
      return fold<Element>(inputs, ranks, n, out, same, smaller<Wide>, same);
    default:
      return average<Element>(inputs, ranks, n, out);
  }
}

using Reduction = void (*)(ncclRedOp_t, const char* const*, int, size_t, char*);
struct Dtype {
  const char* name;
  size_t nbytes;
  Reduction reduction;
};
constexpr Dtype kDtypes[ncclNumTypes] = {
    {"int8", 1, reduce_as<Plain<int8_t>>},    {"uint8", 1, reduce_as<Plain<uint8_t>>},
    {"int32", 4, reduce_as<Plain<int32_t>>},  {"uint32", 4, reduce_as<Plain<uint32_t>>},
    {"int64", 8, reduce_as<Plain<int64_t>>},  {"uint64", 8, reduce_as<Plain<uint64_t>>},
    {"float16", 2, reduce_as<Half>},          {"float32", 4, reduce_as<Plain<float>>},
    {"float64", 8, reduce_as<Plain<double>>}, {"bfloat16", 2, reduce_as<Bfloat>},
};
constexpr const char* kOps[ncclNumOps] = {"sum", "prod", "max", "min", "avg"};

}  // namespace

size_t size_of(ncclDataType_t dtype) { return kDtypes[dtype].nbytes; }
const char* name_of(ncclDataType_t dtype) { return kDtypes[dtype].name; }
const char* name_of(ncclRedOp_t op) { return kOps[op]; }

void reduce(ncclDataType_t dtype, ncclRedOp_t op, const char* const* inputs, int ranks, size_t n,
            char* out) {
  kDtypes[dtype].reduction(op, inputs, ranks, n, out);
}

}  // namespace pretend
