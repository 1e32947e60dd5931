#ifndef MPISTRAT_TESTS_HELPERS_WIRE_RANKS_H_
#define MPISTRAT_TESTS_HELPERS_WIRE_RANKS_H_

// Ranks of several nodes, as threads: how they come to their wires, and make calls.

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "call_end.h"
#include "check.h"
#include "fake_mpi.h"
#include "mpistrat/wire.h"

namespace mpistrat_test {

// Which node each rank is on, and the limits: short arrays, then short and long messages of a ring.
struct Setting {
  std::vector<int32_t> node_of;
  MpistratWireTuning tuning;
};

struct Rank {
  MpistratWire* wire;
  int rank, size;
  MpistratCalls* calls = mpistrat_wire_calls(wire);
  int64_t sequence = 0;
  int num_calls = 0;
};

inline void show(Rank& me, int64_t digest, int64_t extra) {
  const int64_t head[4] = {++me.sequence, digest, 0, extra};
  std::memcpy(mpistrat_line(me.calls), head, sizeof head);
}

inline int finish(Rank& me, const MpistratSpec& spec) {
  mpistrat_begin(me.calls, &spec);
  const int64_t number = ++me.num_calls % 5 == 0 ? adopt(me.calls) : -1;
  if (me.num_calls % 15 == 0) mpistrat_halt(me.calls);  // and gives the call back
  const int status = wait_for(me.calls, number, 3'000'000);
  CHECK(mpistrat_wire_is_over(me.wire));
  return status;
}

// Open the ranks' ends, on memory of their nodes, and call `body(rank)` on threads.
template <class Body>
void on_ranks(const Setting& setting, Body body) {
  const int size = static_cast<int>(setting.node_of.size());
  std::vector<std::vector<int>> groups(8);
  for (int rank = 0; rank < size; ++rank)
    groups[static_cast<size_t>(setting.node_of[static_cast<size_t>(rank)])].push_back(rank);
  std::vector<std::thread> threads;
  std::vector<void*> memories;
  for (const auto& group : groups) {
    const size_t nbytes = (mpistrat_node_bytes(static_cast<int>(group.size())) + 4095) & ~4095u;
    void* memory = std::aligned_alloc(4096, nbytes);
    std::memset(memory, 0, nbytes);
    memories.push_back(memory);
    for (size_t local = 0; local < group.size(); ++local)
      threads.emplace_back([&, memory, local] {
        const int mates = static_cast<int>(group.size()), rank = group[local];
        MpistratNode* node =
            mates > 1 ? mpistrat_node_open(memory, static_cast<int>(local), mates, 2) : nullptr;
        const MpistratMpi mpi = fake::mpi(rank);
        CHECK(mpistrat_mpi_probe(&mpi, rank));
        Rank me{mpistrat_wire_open(&mpi, node, rank, size, setting.node_of.data(), &setting.tuning),
                rank, size};
        body(me);
        mpistrat_wire_close(me.wire);
        if (node) mpistrat_node_close(node);
      });
  }
  for (std::thread& thread : threads) thread.join();
  for (void* memory : memories) std::free(memory);
}

}  // namespace mpistrat_test

#endif  // MPISTRAT_TESTS_HELPERS_WIRE_RANKS_H_
