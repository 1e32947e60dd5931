#include "recursive_doubling.h"

namespace mpistrat::wire {

void doubling_allreduce(Schedule& schedule, const NodePeers& peers, uint8_t* data, uint8_t* spare,
                        int64_t count, const Arithmetic& how) {
  const int64_t nbytes = count * how.itemsize();
  if (!count) return;
  RecursiveDoubling(peers).write(
      schedule, data, spare, nbytes, [&](int) { return nbytes; },
      [&](bool is_second) {
        if (is_second) {
          schedule.reduce(data, spare, data, count, how);
        } else {
          schedule.reduce(data, data, spare, count, how);
        }
      });
}

}  // namespace mpistrat::wire
