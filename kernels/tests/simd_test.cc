// Every dtype, reduction and instruction set against one element at a time.

#include "mpistrat/simd.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <random>
#include <vector>

#include "helpers/check.h"
#include "helpers/reference.h"

namespace {

using namespace mpistrat_test;

constexpr size_t kCounts[] = {0, 1, 7, 63, 64, 65, 300};
constexpr int kNumSources[] = {1, 2, 3, 5, 8};
constexpr int kMaxInPlace = 5;  // 8 are summed like 5, and each of them in place takes longest
constexpr size_t kMargin = 128;
constexpr size_t kAligned = 16;  // enough to be written past the caches
constexpr char kUntouched = 0x5a;

// Elements of more than two blocks that the kernels take, and of more than one.
template <class Format>
constexpr size_t kMaxCount = 2 * 4100 / Format::kBytes + 1;
template <class Format>
constexpr size_t kTwoBlocks = 4100 / Format::kBytes + 1;

// ----------------------------------------------------------------------------------- the cases

struct Case {
  int dtype;
  int op;
  int64_t divisor;
  size_t count;
  size_t offset;  // of sources and of the first destination, behind margins of whole lines
  size_t step;    // from one destination's offset to the next one's
  int stream;
};

// One to three destinations.
template <class Format>
void check_case(const Case& c, const std::vector<Buffer>& sources, const Buffer& expected) {
  const size_t nbytes = c.count * Format::kBytes;
  std::vector<Buffer> shifted;
  std::vector<const void*> from;
  for (const Buffer& source : sources) {
    shifted.emplace_back(kMargin + nbytes);
    std::copy_n(source.data(), nbytes, shifted.back().data() + c.offset);
    from.push_back(shifted.back().data() + c.offset);
  }
  // What is streamed are all destinations or those but the first.
  for (int num_destinations = c.stream == MPISTRAT_STREAM_REST ? 2 : 1; num_destinations <= 3;
       ++num_destinations) {
    std::vector<Buffer> results(num_destinations, Buffer(2 * kMargin + nbytes, kUntouched));
    std::vector<void*> to;
    for (Buffer& result : results) {
      to.push_back(&result[c.offset + to.size() * c.step + kMargin / 2]);
    }
    mpistrat_reduce(to.data(), num_destinations, from.data(), static_cast<int>(from.size()),
                    c.count, c.dtype, c.op, c.divisor, c.stream);
    for (int k = 0; k < num_destinations; ++k) {
      const char* result = static_cast<const char*>(to[k]);
      const char* end = results[k].data() + results[k].size();
      CHECK_AT((same<Format>(result, expected.data(), nbytes)),
               "%s: dtype %d op %d sources %zu destinations %d count %zu offset %zu stream %d",
               mpistrat_simd_name(), c.dtype, c.op, from.size(), num_destinations, c.count,
               c.offset, c.stream);
      CHECK(std::count(static_cast<const char*>(results[k].data()), result, kUntouched) ==
            result - results[k].data());
      CHECK(std::count(result + nbytes, end, kUntouched) ==
            end - result - static_cast<ptrdiff_t>(nbytes));
    }
  }
}

// Each source in turn is also a destination: the only one, or with the last source or an array of
// its own before or behind it.
template <class Format>
void check_in_place(const Case& c, const std::vector<Buffer>& sources, const Buffer& expected) {
  const size_t nbytes = c.count * Format::kBytes, last = sources.size() - 1, fresh = sources.size();
  for (size_t k = 0; k < last + 1; ++k) {
    std::vector<std::vector<size_t>> lists = {{k}, {fresh, k}, {k, fresh}};
    if (k < last) lists.insert(lists.end(), {{k, last}, {last, k}, {k, last, fresh}});
    for (const std::vector<size_t>& list : lists) {
      std::vector<Buffer> arrays(fresh + 1, Buffer(kMargin + nbytes));
      std::vector<const void*> from;
      std::vector<void*> to;
      for (size_t i = 0; i < fresh; ++i) {
        std::copy_n(sources[i].data(), nbytes, &arrays[i][c.offset]);
        from.push_back(&arrays[i][c.offset]);
      }
      for (size_t i : list) to.push_back(&arrays[i][c.offset]);
      mpistrat_reduce(to.data(), static_cast<int>(to.size()), from.data(),
                      static_cast<int>(from.size()), c.count, c.dtype, c.op, c.divisor, c.stream);
      for (const void* result : to) {
        CHECK_AT((same<Format>(static_cast<const char*>(result), expected.data(), nbytes)),
                 "%s: dtype %d op %d source %zu of %zu destinations %zu offset %zu stream %d",
                 mpistrat_simd_name(), c.dtype, c.op, k, from.size(), to.size(), c.offset,
                 c.stream);
      }
    }
  }
}

template <class Format>
void check_reduction(int dtype, int op, int64_t divisor) {
  std::mt19937 random(1000 * dtype + op);
  std::vector<size_t> counts(std::begin(kCounts), std::end(kCounts));
  counts.push_back(kMaxCount<Format>);
  for (int num_sources : kNumSources) {
    std::vector<Buffer> sources;
    for (int k = 0; k < num_sources; ++k) {
      sources.push_back(random_source<Format>(random, kMaxCount<Format>));
    }
    const Buffer expected = reference<Format>(sources, Format::kBytes, op, divisor);
    for (const char* name : instruction_sets()) {
      CHECK(mpistrat_simd_select(name));
      for (int stream : {MPISTRAT_STREAM_NONE, MPISTRAT_STREAM_ALL, MPISTRAT_STREAM_REST}) {
        for (size_t count : counts) {
          for (size_t offset : {Format::kBytes, size_t{3}, kAligned}) {
            const size_t step = offset == kAligned ? kAligned : Format::kBytes;
            check_case<Format>({dtype, op, divisor, count, offset, step, stream}, sources,
                               expected);
          }
        }
        if (num_sources > kMaxInPlace) continue;
        for (size_t offset : {size_t{0}, size_t{3}}) {
          check_in_place<Format>({dtype, op, divisor, kTwoBlocks<Format>, offset, 0, stream},
                                 sources, expected);
        }
      }
    }
  }
}

template <class Format>
void check_dtype(int dtype) {
  CHECK(mpistrat_itemsize(dtype) == Format::kBytes);
  const bool is_floating = dtype >= MPISTRAT_FLOAT16;
  const bool is_complex = dtype >= MPISTRAT_COMPLEX64;
  for (int op = MPISTRAT_SUM; op <= MPISTRAT_XOR; ++op) {
    const bool is_arithmetic = op == MPISTRAT_SUM || op == MPISTRAT_PROD;
    const bool is_order = op == MPISTRAT_MIN || op == MPISTRAT_MAX;
    const bool has_meaning = is_arithmetic || (is_order ? !is_complex : !is_floating);
    CHECK(mpistrat_can_reduce(op, dtype) == has_meaning);
    if (has_meaning) check_reduction<Format>(dtype, op, 1);
  }
  if (!is_floating) return;
  check_reduction<Format>(dtype, MPISTRAT_SUM, 3);
  check_reduction<Format>(dtype, MPISTRAT_SUM, 8);
}

// Every number there is, with another one that takes all values too.
template <class Format>
void check_all_halves(int dtype) {
  std::vector<Buffer> sources(2, Buffer(2 << 16));
  for (uint32_t i = 0; i < 1 << 16; ++i) {
    Plain<uint16_t>::store(&sources[0][2 * i], static_cast<uint16_t>(i));
    Plain<uint16_t>::store(&sources[1][2 * i], static_cast<uint16_t>(i * 40503u + 12345u));
  }
  for (int num_sources : {2, 1}) {
    sources.resize(num_sources);
    for (int op : {MPISTRAT_SUM, MPISTRAT_PROD, MPISTRAT_MIN, MPISTRAT_MAX}) {
      const Buffer expected = reference<Format>(sources, 2, op, 1);
      for (const char* name : instruction_sets()) {
        CHECK(mpistrat_simd_select(name));
        check_case<Format>({dtype, op, 1, 1 << 16, 0, 2, 0}, sources, expected);
      }
    }
  }
}

}  // namespace

int main() {
  on_every_dtype([](auto format, int dtype) { check_dtype<decltype(format)>(dtype); });
  check_all_halves<Float16>(MPISTRAT_FLOAT16);
  check_all_halves<Bfloat16>(MPISTRAT_BFLOAT16);
  for (const char* name : instruction_sets()) std::printf("%s agrees\n", name);
  return 0;
}
