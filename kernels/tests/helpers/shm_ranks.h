#ifndef MPISTRAT_TESTS_HELPERS_SHM_RANKS_H_
#define MPISTRAT_TESTS_HELPERS_SHM_RANKS_H_

// Ranks of one node, as threads on a memory of their own, and how they make calls.

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "call_end.h"
#include "mpistrat/shm.h"

namespace mpistrat_test {

struct Rank {
  MpistratNode* node;
  int rank;
  MpistratCalls* calls = mpistrat_node_calls(node);
  int64_t sequence = 0;
  int num_calls = 0;
};

inline void show(Rank& me, int64_t digest) {
  const int64_t head[4] = {++me.sequence, digest, 0, me.rank};
  std::memcpy(mpistrat_line(me.calls), head, sizeof head);
}

inline int finish(Rank& me, const MpistratSpec& spec) {
  mpistrat_begin(me.calls, &spec);
  const int64_t number = ++me.num_calls % 5 == 0 ? adopt(me.calls) : -1;
  const int status = wait_for(me.calls, number, 3'000'000);
  return status;
}

// The sum of what `from` and those of other ranks hold, of float32, into `to`.
inline MpistratSpec sum_spec(const MpistratPiece* from, const MpistratPiece* to, bool crosses) {
  MpistratSpec spec = {};
  spec.kind = MPISTRAT_ALLREDUCE;
  spec.crosses = crosses;
  spec.dtype = MPISTRAT_FLOAT32;
  spec.num_send = spec.num_recv = 1;
  spec.send = from;
  spec.recv = to;
  return spec;
}

// Call `body(rank)` on threads.
template <class Body>
void on_ranks(int size, Body body) {
  const size_t nbytes = (mpistrat_node_bytes(size) + 4095) / 4096 * 4096;
  void* memory = std::aligned_alloc(4096, nbytes);
  std::memset(memory, 0, nbytes);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      Rank me{mpistrat_node_open(memory, rank, size, 2), rank};
      body(me);
      mpistrat_node_close(me.node);
    });
  for (std::thread& thread : threads) thread.join();
  std::free(memory);
}

// Call `body(size)` for some sizes of a node.
template <class Body>
void on_sizes(Body body) {
  for (int size = 1; size <= 8; size = size < 5 ? size + 1 : size + 3) body(size);
}

}  // namespace mpistrat_test

#endif  // MPISTRAT_TESTS_HELPERS_SHM_RANKS_H_
