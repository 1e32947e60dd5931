// mpistrat_reduce and mpistrat_copy: choose the kernel for each piece, and what is written past the
// caches.

#include <algorithm>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "kernel_table.h"
#include "mpistrat/simd.h"

namespace mpistrat {
namespace {

constexpr size_t kLine = 64;
constexpr size_t kBlock = 4096;  // a result on its way to several places waits in the L1 cache

size_t bytes_to_next_line(const void* address) {
  return -reinterpret_cast<uintptr_t>(address) % kLine;
}

#if defined(__x86_64__)

constexpr bool kHasLines = true;

// Copy whole lines to where lines begin. 16 bytes at a time: wider moves are no faster, as the
// caches and memory are what they wait for. Non-temporal stores go past the caches: they fill whole
// lines in a write-combining buffer, so that no line is read only to be overwritten.
template <bool kPast>
void copy_lines(char* to, const char* from, size_t nbytes) {
  const auto store = [](__m128i* at, __m128i value) {
    kPast ? _mm_stream_si128(at, value) : _mm_store_si128(at, value);
  };
  for (size_t i = 0; i < nbytes; i += kLine) {
    const __m128i* source = reinterpret_cast<const __m128i*>(from + i);
    __m128i* line = reinterpret_cast<__m128i*>(to + i);
    const __m128i a = _mm_loadu_si128(source);
    const __m128i b = _mm_loadu_si128(source + 1);
    const __m128i c = _mm_loadu_si128(source + 2);
    const __m128i d = _mm_loadu_si128(source + 3);
    store(line, a);
    store(line + 1, b);
    store(line + 2, c);
    store(line + 3, d);
  }
}

// Streamed data become visible in any order; whoever is told that they are there must find them.
void end_stream() { _mm_sfence(); }

#else

constexpr bool kHasLines = false;

template <bool kPast>
void copy_lines(char* to, const char* from, size_t nbytes) {
  std::memcpy(to, from, nbytes);
}

void end_stream() {}

#endif

template <bool kPast>
void copy_by_lines(char* to, const char* from, size_t nbytes) {
  const size_t head = std::min(bytes_to_next_line(to), nbytes);
  const size_t lines = (nbytes - head) / kLine * kLine;
  const size_t tail = head + lines;
  std::memcpy(to, from, head);
  copy_lines<kPast>(to + head, from + head, lines);
  std::memcpy(to + tail, from + tail, nbytes - tail);
}

// Of many bytes the C library makes one instruction, which is slow where the two ends lie
// differently in their lines, as those of a slot and of NumPy's long arrays do (these begin 16
// bytes after a page). Measured on one AMD EPYC, 2 ranks, 1 MiB: 82 us an all-reduce, and 62.
void copy(char* to, const char* from, size_t nbytes) {
  constexpr size_t kShort = 2048;
  if (kHasLines && nbytes >= kShort && bytes_to_next_line(to) != bytes_to_next_line(from))
    copy_by_lines<false>(to, from, nbytes);
  else
    std::memcpy(to, from, nbytes);
}

// What is asked for.
struct Call {
  ReduceKernel kernel;
  char* const* destinations;
  int num_destinations;
  Sources sources;
  int64_t divisor;
  int num_at_once;  // destinations that the kernel can write, if more than one past the caches, too
};

// Of more destinations than the kernel writes at the same time. The block is in these, still in
// cache, when the others get it; only then may it overwrite a source.
void reduce_block(const Call& call, size_t begin, size_t nbytes) {
  Results to{call.destinations[0] + begin};
  if (call.num_at_once > 1) to.second = call.destinations[1] + begin;
  call.kernel(to, call.sources, begin, nbytes, call.divisor);
  for (int k = call.num_at_once; k < call.num_destinations; ++k) {
    copy(call.destinations[k] + begin, to.first, nbytes);
  }
}

// Where the line begins that holds byte `at` of `to`, of which `to` may have only the end.
size_t line_begin(const char* to, size_t at) {
  return at - std::min(at, (reinterpret_cast<uintptr_t>(to) + at) % kLine);
}

// The block stays in the caches in the first destination; what there is of whole lines goes past
// them to the others, and what begins a line waits for the next block.
void reduce_block_and_stream(const Call& call, size_t begin, size_t nbytes) {
  char* first = call.destinations[0];
  call.kernel({first + begin}, call.sources, begin, nbytes, call.divisor);
  const size_t end = begin + nbytes;
  for (int k = 1; k < call.num_destinations; ++k) {
    char* to = call.destinations[k];
    const size_t from = line_begin(to, begin);
    const size_t until = end == call.sources.nbytes ? end : line_begin(to, end);
    copy_by_lines<true>(to + from, first + from, until - from);
  }
}

void stream_block(const Call& call, size_t begin, size_t nbytes) {
  alignas(kLine) char block[kBlock];
  call.kernel({block}, call.sources, begin, nbytes, call.divisor);
  for (int k = 0; k < call.num_destinations; ++k) {
    copy_by_lines<true>(call.destinations[k] + begin, block, nbytes);
  }
}

// The first block ends where a line of the first destination does, so that no later block shares
// a line with its neighbour, unless elements straddle lines.
size_t first_block(const Call& call, size_t itemsize) {
  const size_t head = bytes_to_next_line(call.destinations[0]);
  return head % itemsize == 0 && head > 0 ? head : kBlock;
}

// Whether the kernel itself can write all results.
bool is_direct(const Call& call, int stream) {
  if (call.num_destinations > call.num_at_once || stream == MPISTRAT_STREAM_REST) return false;
  if (stream == MPISTRAT_STREAM_NONE) return true;
  const auto is_aligned = [](const char* to) {
    return reinterpret_cast<uintptr_t>(to) % kPastAlignment == 0;
  };
  char* const* all = call.destinations;
  return call.num_at_once > 1 && std::all_of(all, all + call.num_destinations, is_aligned);
}

void reduce_directly(const Call& call, bool is_past) {
  Results to{call.destinations[0], nullptr, is_past};
  if (call.num_destinations > 1) to.second = call.destinations[1];
  call.kernel(to, call.sources, 0, call.sources.nbytes, call.divisor);
  if (is_past) end_stream();
}

void reduce(const Call& call, size_t itemsize, int stream) {
  const size_t nbytes = call.sources.nbytes;
  const bool has_rest = call.num_destinations > 1;
  if (!kHasLines || (!has_rest && stream != MPISTRAT_STREAM_ALL)) stream = MPISTRAT_STREAM_NONE;
  if (is_direct(call, stream)) {
    reduce_directly(call, stream == MPISTRAT_STREAM_ALL);
    return;
  }
  const auto one_block = stream == MPISTRAT_STREAM_ALL    ? stream_block
                         : stream == MPISTRAT_STREAM_REST ? reduce_block_and_stream
                                                          : reduce_block;
  size_t block = std::min(first_block(call, itemsize), nbytes);
  for (size_t begin = 0; begin < nbytes; begin += block, block = std::min(kBlock, nbytes - begin)) {
    one_block(call, begin, block);
  }
  if (stream != MPISTRAT_STREAM_NONE) end_stream();
}

}  // namespace
}  // namespace mpistrat

extern "C" size_t mpistrat_itemsize(int dtype) {
  static constexpr size_t kSizes[] = {1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8, 8, 16};
  static_assert(sizeof kSizes / sizeof kSizes[0] == mpistrat::kNumDtypes, "one for each dtype");
  return dtype < 0 || dtype >= mpistrat::kNumDtypes ? 0 : kSizes[dtype];
}

extern "C" int mpistrat_can_reduce(int op, int dtype) {
  if (op < 0 || op >= mpistrat::kNumOps || mpistrat_itemsize(dtype) == 0) return 0;
  return mpistrat::kernel_table().kernels[op][dtype] != nullptr;
}

extern "C" void mpistrat_reduce(void* const* destinations, int num_destinations,
                                const void* const* sources, int num_sources, size_t count,
                                int dtype, int op, int64_t divisor, int stream) {
  if (!mpistrat_can_reduce(op, dtype)) return;
  const size_t itemsize = mpistrat_itemsize(dtype);
  const mpistrat::Sources all = {reinterpret_cast<const char* const*>(sources), num_sources,
                                 count * itemsize};
  const mpistrat::Call call = {mpistrat::kernel_table().kernels[op][dtype],
                               reinterpret_cast<char* const*>(destinations),
                               num_destinations,
                               all,
                               divisor,
                               op == MPISTRAT_SUM ? 2 : 1};
  mpistrat::reduce(call, itemsize, stream);
}

extern "C" void mpistrat_copy(void* destination, const void* source, size_t nbytes, int stream) {
  if (stream == 0) {
    mpistrat::copy(static_cast<char*>(destination), static_cast<const char*>(source), nbytes);
    return;
  }
  mpistrat::copy_by_lines<true>(static_cast<char*>(destination), static_cast<const char*>(source),
                                nbytes);
  mpistrat::end_stream();
}
