#ifndef MPISTRAT_CALLS_FAST_PATH_H_
#define MPISTRAT_CALLS_FAST_PATH_H_

// The fast path: an all-reduce of one plain array, without the interpreter. Any thread may begin
// one; the thread that claims the calls has them to itself, holding Python's lock or not.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "call_state.h"

namespace mpistrat {

constexpr int kMean = 7;  // a sum, divided
constexpr int kMaxDims = 6;
constexpr uint64_t kStayNs = 2'000'000;  // then Python looks after deadlines and signals

// What a fingerprint is made of.
struct Kind {
  int64_t label;
  int32_t op, type_num, ndim;
  int64_t shape[kMaxDims];

  bool operator==(const Kind& other) const { return std::memcmp(this, &other, sizeof *this) == 0; }
  size_t hash() const;
};

// An array and the one for its result, which are plain memory.
struct Plain {
  int32_t op, dtype;  // MpistratOp or kMean, MpistratDtype
  void *send, *recv;
  int64_t nbytes;
};

struct FastPath {
  CallState* calls = nullptr;
  struct Known {
    Kind kind;
    int64_t digest;
    bool is_used;
  };
  std::array<Known, 256> known = {};

  // What follows is for whoever has claimed `calls`.
  bool find_digest(const Kind& kind, int64_t* digest) const;
  void learn_digest(const Kind& kind, int64_t digest);
  void begin(const Plain& call, int64_t digest);
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

// For threads without the interpreter, such as those of TensorFlow: begin a call of an array of
// `kind` (packed_kind), and stay with it for 2 ms. Returns its MpistratStatus, with its number in
// `sequence`, or kNotBegun. Unless it is done, Python has to end it (FastAllreduce.end).
constexpr int kNotBegun = -1;
int allreduce_now(void* path, int64_t kind, const ArrayMemory* array, int64_t* sequence);

// What an array is but for its shape, in one number.
int64_t packed_kind(int op, int dtype, int type_num, int64_t itemsize);

}  // namespace mpistrat

#endif  // MPISTRAT_CALLS_FAST_PATH_H_
