#ifndef MPISTRAT_WIRE_SCHEDULE_H_
#define MPISTRAT_WIRE_SCHEDULE_H_

// A schedule: the messages and reductions of one rank, in order. It is written first, then run as
// far as is possible whenever messages have come in. It keeps its memory for the next one.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "../mpi/messages.h"
#include "arithmetic.h"

namespace mpistrat::wire {

// A range of elements.
struct Block {
  uint8_t* data;
  int64_t count;
};

class Schedule {
 public:
  using Function = void (*)(void* context, int argument);

  // Begin to write: all messages get `tag`.
  void clear(int tag);

  // Start a message, and go on; returns its number, for await().
  int send(const void* data, int64_t nbytes, int to);
  int receive(void* data, int64_t nbytes, int from);
  void await(int message);
  // Wait for all messages that were written so far.
  void await_all();

  // Write `first` op `second` to `into`, which may be one of them.
  void reduce(void* into, const void* first, const void* second, int64_t count,
              const Arithmetic& how);
  // The same as the last step: divide and round. `first` is overwritten where the result is
  // rounded; without `second` it is all there is.
  void finish(void* into, void* first, const void* second, int64_t count, const Arithmetic& how);
  void call(Function function, void* context, int argument);

  // Go as far as is possible without waiting; returns whether it is over.
  bool run(Messages& messages);
  bool is_over() const { return at_ == steps_.size(); }

 private:
  struct Step {
    enum Kind : uint8_t { kSend, kReceive, kAwait, kReduce, kFinish, kCall } kind;
    int number;  // of the message, or the function's argument
    int peer;
    int64_t amount;  // bytes of a message, elements of a reduction
    void* to;
    void* first;
    const void* second;
    Function function;
  };

  void act(const Step& step, Messages& messages);
  int message(Step::Kind kind, void* data, int64_t nbytes, int peer);

  std::vector<Step> steps_;
  std::vector<uint8_t> done_;  // by message; MPI's side sets them, so it does not grow meanwhile
  Arithmetic how_;
  size_t at_ = 0;
  int tag_ = 0, num_messages_ = 0;
};

}  // namespace mpistrat::wire

#endif  // MPISTRAT_WIRE_SCHEDULE_H_
