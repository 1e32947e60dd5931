#include "tree.h"

namespace mpistrat::wire {

void tree_bcast(Schedule& schedule, const NodePeers& peers, int from, const Block& block,
                int64_t itemsize) {
  if (!block.count) return;
  const int64_t nbytes = block.count * itemsize;
  const int p = peers.count(), me = peers.wrap(peers.index - from);
  const auto rank = [&](int of) { return peers.ranks[static_cast<size_t>(peers.wrap(of + from))]; };
  int step = 1;
  while (step < p && !(me & step)) step *= 2;
  if (me) schedule.await(schedule.receive(block.data, nbytes, rank(me - step)));
  for (step /= 2; step > 0; step /= 2)
    if (me + step < p) schedule.send(block.data, nbytes, rank(me + step));
  schedule.await_all();
}

}  // namespace mpistrat::wire
