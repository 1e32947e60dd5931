#ifndef MPISTRAT_CALLS_FAST_PATH_H_
#define MPISTRAT_CALLS_FAST_PATH_H_

// The fast path: a collective of one plain array, or a list of them, without the interpreter. Any
// thread may begin one; the thread that claims the calls has them to itself, holding Python's lock
// or not.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "call_state.h"

namespace mpistrat {

constexpr int kMean = 7;  // a sum, divided
constexpr int kMaxDims = 6;
constexpr int64_t kMostGathered = int64_t{1} << 30;  // bytes of a result of rows: gate.py
constexpr uint64_t kStayNs = 2'000'000;  // then Python looks after deadlines and signals

// What a call is, but for its data: what a ticket is made of. MPISTRAT_CROSS is a barrier.
struct Kind {
  int64_t label;
  // No byte is padding: keys are compared as such. `is_of_objects` is 0 or 1.
  int32_t kind, op, root, type_num, ndim, is_of_objects;
  int64_t shape[kMaxDims];

  bool operator==(const Kind& other) const { return std::memcmp(this, &other, sizeof *this) == 0; }
  size_t hash() const;
};

// Of a list: how many dimensions each array has, and which.
using Shapes = std::vector<int64_t>;

// The arrays of a call, which are plain memory.
struct Plain {
  int32_t kind, op, dtype, root;  // MpistratKind, MpistratOp or kMean, MpistratDtype
  void *send, *recv;
  int64_t send_bytes, recv_bytes;
  int64_t rows, row_bytes;  // of the whole array, where ranks get parts of it
  // Of a list how many arrays it has, else 0; the pieces are in the `FastCall`, put there by who
  // has claimed the calls.
  int64_t num_arrays;
};

// Rows of rank `rank`, where `rows` are cut as evenly as can be (even_cut.py).
inline int64_t rows_of(int64_t rows, int size, int rank) {
  return rows / size + (rank < rows % size);
}

struct FastPath {
  CallState* calls = nullptr;
  struct Known {
    Kind kind;
    Shapes shapes;
    MpistratTicket ticket;
    bool is_used;
  };
  std::array<Known, 256> known = {};

  // What follows is for whoever has claimed `calls`.
  const MpistratTicket* find(const Kind& kind, const Shapes& shapes = {}) const;
  void learn(const Kind& kind, const MpistratTicket& ticket, Shapes shapes = {});
  void forget_scatters();
  // `ticket` is null where calls are not compared.
  void begin(const Plain& call, const MpistratTicket* ticket);
  // Begin the call's next transfer; the one before is done.
  void go_on(const Plain& call);
  // Take note of how a call stands. Unless it is done, it stays claimed, and no other begins until
  // it is in the queue: another would pass it.
  void note(int status);
};

// Claim the calls of a node or a wire, if fast calls may be made and none is under way.
bool claim(CallState* calls);

// An array as native code has it.
struct ArrayMemory {
  const void* send;
  void* recv;
  int64_t nbytes, ndim;
  const int64_t* shape;
};

// For threads without the interpreter, such as those of TensorFlow: begin an all-reduce of an array
// of `kind` (packed_kind), and stay with it for 2 ms. Returns its MpistratStatus, with its number
// in `sequence`, or kNotBegun. Unless it is done, Python has to end it (FastCalls.end).
constexpr int kNotBegun = -1;
int allreduce_now(void* path, int64_t kind, const ArrayMemory* array, int64_t* sequence);

// What an array is but for its shape, in one number.
int64_t packed_kind(int op, int dtype, int type_num, int64_t itemsize);

// The key of a call's ticket; `shape` is null for arrays that only the root knows. No byte of it is
// left undefined.
Kind kind_of(const CallState& calls, int kind, int op, int root, int type_num, int64_t ndim,
             const int64_t* shape);

}  // namespace mpistrat

#endif  // MPISTRAT_CALLS_FAST_PATH_H_
