#ifndef MPISTRAT_COMMON_CACHE_LINE_H_
#define MPISTRAT_COMMON_CACHE_LINE_H_

// The size of a cache line, by which flags of several writers are kept apart.

#include <cstddef>

namespace mpistrat {

constexpr size_t kCacheLine = 64;

}  // namespace mpistrat

#endif  // MPISTRAT_COMMON_CACHE_LINE_H_
