// Shuffles and votes of a wavefront.
#pragma once
#include <type_traits>

#include "language/threads.h"

namespace pretend {

// As AMD's headers have it since ROCm 7 where there are 64 lanes: a mask of 32 bits, written for
// CUDA, would leave half of the lanes out without a word.
template <typename M>
Mask checked(M mask) {
  static_assert(std::is_integral_v<M> && sizeof(M) == sizeof(Mask),
                "the mask of a shuffle, vote or __syncwarp must have a bit for each lane");
  return static_cast<Mask>(mask);
}

template <typename T>
T from_lane(Mask mask, T mine, int from, Site site) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 16,
                "a shuffle moves trivially copyable values of up to 16 bytes");
  T theirs;
  exchange(mask, &mine, &theirs, sizeof(T), from, site);
  return theirs;
}

// The lane that a shuffle reads; a lane beyond its group of `width` reads itself.
inline int lane_at(int from, int width) { return (lane() & ~(width - 1)) + (from & (width - 1)); }
inline int lane_down(unsigned by, int width) {
  const int within = (lane() & (width - 1)) + static_cast<int>(by);
  return within < width ? lane() + static_cast<int>(by) : lane();
}
inline int lane_up(unsigned by, int width) {
  const int within = (lane() & (width - 1)) - static_cast<int>(by);
  return within >= 0 ? lane() - static_cast<int>(by) : lane();
}
inline int lane_xor(int by, int width) {
  const int from = lane() ^ by;
  return from < (lane() & ~(width - 1)) + width ? from : lane();
}

}  // namespace pretend

// One shuffle: with a mask, and AMD's own, in which the lanes take part that come.
#define PRETEND_SHUFFLE(name, By, find)                                                      \
  template <typename M, typename T>                                                          \
  T name##_sync(M mask, T mine, By by, int width = PRETEND_LANES,                            \
                pretend::Site site = PRETEND_SITE) {                                         \
    return pretend::from_lane(pretend::checked(mask), mine, pretend::find(by, width), site); \
  }                                                                                          \
  template <typename T>                                                                      \
  T name(T mine, By by, int width = PRETEND_LANES, pretend::Site site = PRETEND_SITE) {      \
    return pretend::from_lane(0, mine, pretend::find(by, width), site);                      \
  }
PRETEND_SHUFFLE(__shfl, int, lane_at)
PRETEND_SHUFFLE(__shfl_down, unsigned, lane_down)
PRETEND_SHUFFLE(__shfl_up, unsigned, lane_up)
PRETEND_SHUFFLE(__shfl_xor, int, lane_xor)
#undef PRETEND_SHUFFLE

inline void __syncwarp(pretend::Site site = PRETEND_SITE) {
  pretend::sync_lanes(static_cast<pretend::Mask>(~0ull), site);
}
template <typename M>
  requires std::is_integral_v<M>
void __syncwarp(M mask, pretend::Site site = PRETEND_SITE) {
  pretend::sync_lanes(pretend::checked(mask), site);
}

inline pretend::Mask __ballot(int yes, pretend::Site site = PRETEND_SITE) {
  return pretend::ballot(0, yes != 0, site);
}
inline int __any(int yes, pretend::Site site = PRETEND_SITE) { return __ballot(yes, site) != 0; }
inline int __all(int yes, pretend::Site site = PRETEND_SITE) { return __ballot(!yes, site) == 0; }
template <typename M>
pretend::Mask __ballot_sync(M mask, int yes, pretend::Site site = PRETEND_SITE) {
  return pretend::ballot(pretend::checked(mask), yes != 0, site);
}
template <typename M>
int __any_sync(M mask, int yes, pretend::Site site = PRETEND_SITE) {
  return __ballot_sync(mask, yes, site) != 0;
}
template <typename M>
int __all_sync(M mask, int yes, pretend::Site site = PRETEND_SITE) {
  return __ballot_sync(mask, !yes, site) == 0;
}
inline pretend::Mask __activemask(pretend::Site site = PRETEND_SITE) {
  return pretend::lanes_here(0, site);
}
inline int __lane_id() { return pretend::lane(); }
