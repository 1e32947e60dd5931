#ifndef MPISTRAT_SHM_REDUCTION_OPERANDS_H_
#define MPISTRAT_SHM_REDUCTION_OPERANDS_H_

// The arrays of a reduction, and the arithmetic on them, which all its algorithms have in common.

#include <cstdint>

#include "../../common/pieces.h"
#include "../chunks.h"
#include "../node_view.h"
#include "mpistrat/calls.h"
#include "mpistrat/simd.h"

namespace mpistrat {

// Which of an algorithm's writes go past the caches.
struct PastCaches {
  bool results, slots;
};

class Operands {
 public:
  explicit Operands(const MpistratSpec& spec)
      : send(spec.send, spec.num_send),
        recv(spec.recv, spec.num_recv),
        nbytes(send.nbytes()),
        spec_(spec),
        itemsize_(static_cast<int64_t>(mpistrat_itemsize(spec.dtype))) {}

  Pieces send, recv;
  const int64_t nbytes;

  // Whether `rank` gets the result.
  bool wants(int rank) const { return spec_.kind == MPISTRAT_ALLREDUCE || rank == spec_.root; }

  // Whether one rank alone gets it.
  bool is_rooted() const { return spec_.kind == MPISTRAT_REDUCE; }

  // Whether this rank's result is not where its source is.
  bool is_apart() const {
    return spec_.num_send > 0 && spec_.num_recv > 0 && spec_.send[0].data != spec_.recv[0].data;
  }

  // Reduce `nbytes` at each of view.sources to every one of `to`; `stream` is a MpistratStream.
  void reduce(const NodeView& view, void* const* to, int num_to, int64_t nbytes, int stream) const {
    mpistrat_reduce(to, num_to, view.sources, view.size, static_cast<size_t>(nbytes / itemsize_),
                    spec_.dtype, spec_.op, spec_.divisor, stream);
  }

  // Call `function(part)` for each part of `all`, of the chunk that begins at `start`, that lies in
  // one piece of this rank's own source.
  template <class Function>
  void for_each_part(int64_t start, Slice all, Function function) {
    Slice part{all.begin, all.begin};
    send.for_each(start + all.begin, all.nbytes(), [&](uint8_t*, int64_t n) {
      part = {part.end, part.end + n};
      function(part);
    });
  }

 private:
  const MpistratSpec& spec_;
  const int64_t itemsize_;
};

}  // namespace mpistrat

#endif  // MPISTRAT_SHM_REDUCTION_OPERANDS_H_
