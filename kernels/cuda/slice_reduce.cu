// Reduce a slice of several arrays, and write the result to several places. For ranks that share
// memory of a GPU: each reduces its slice of all ranks' inputs into all ranks' outputs, so that
// together they read and write every array once. No thread waits for another process, whose kernels
// may not run before this one has ended: the ranks meet on the host, before and after.
#include "reductions.cuh"

namespace mpistrat {

struct SliceReduce {
  Sources sources;
  Results results;  // each may be one of the sources
  int num_sources, num_results;
  u64 begin, end;  // the slice, in elements
};

template <class Op, class T>
struct SliceBody {
  typedef typename Reduction<Op, T>::Result Result;

  const SliceReduce& call;

  template <int N>
  MPISTRAT_DEVICE void reduce(u64 at) const {
    // All sources are read before any result is written: they may be the same arrays.
    const Pack<Result, N> pack = reduce_pack<Op, T, N>(call.sources, call.num_sources, at);
    MPISTRAT_NO_UNROLL
    for (int i = 0; i < call.num_results; ++i) {
      store_pack<N>(static_cast<Result*>(call.results.of[i]), at, pack);
    }
  }

  MPISTRAT_DEVICE void element(u64 i) const { reduce<1>(call.begin + i); }
  MPISTRAT_DEVICE void pack(u64 i) const { reduce<PackOf<Op, T>::kCount>(call.begin + i); }
};

template <class Op, class T>
MPISTRAT_KERNEL slice_reduce(const SliceReduce& call) {
  typedef SliceBody<Op, T> Body;
  constexpr int kPack = PackOf<Op, T>::kCount;
  Alignment<kPack> alignment(static_cast<const T*>(call.sources.of[0]) + call.begin);
  MPISTRAT_NO_UNROLL
  for (int i = 1; i < call.num_sources; ++i) {
    alignment.add(static_cast<const T*>(call.sources.of[i]) + call.begin);
  }
  MPISTRAT_NO_UNROLL
  for (int i = 0; i < call.num_results; ++i) {
    alignment.add(static_cast<const typename Body::Result*>(call.results.of[i]) + call.begin);
  }
  const u64 count = call.end - call.begin;
  for_each_pack<kPack>(count, alignment.head(count), grid_thread(), grid_threads(), Body{call});
}

}  // namespace mpistrat
