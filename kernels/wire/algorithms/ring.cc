#include "ring.h"

#include <algorithm>

namespace mpistrat::wire {

void ring_reduce_scatter(Schedule& schedule, const NodePeers& peers,
                         const std::vector<Block>& sources, void* into, uint8_t* spare,
                         const Arithmetic& how) {
  const auto source = [&](int behind) -> const Block& {
    return sources[static_cast<size_t>(peers.wrap(peers.index - behind))];
  };
  int64_t longest = 0;
  for (const Block& block : sources) longest = std::max(longest, block.count);
  Block partial = source(1);
  int sent_before = -1;  // the message from the half of `spare` that comes next
  for (int step = 1; step < peers.count(); ++step) {
    int sent = -1;
    if (partial.count)
      sent = schedule.send(partial.data, partial.count * how.itemsize(), peers.at(1));
    const Block& own = source(1 + step);
    partial = {spare + step % 2 * longest * how.itemsize(), own.count};
    if (sent_before >= 0) schedule.await(sent_before);
    sent_before = sent;
    if (!own.count) continue;
    schedule.await(schedule.receive(partial.data, own.count * how.itemsize(), peers.at(-1)));
    if (step < peers.count() - 1) {
      schedule.reduce(partial.data, partial.data, own.data, own.count, how);
    } else {
      schedule.finish(into, partial.data, own.data, own.count, how);
    }
  }
  schedule.await_all();
}

void ring_allgather(Schedule& schedule, const NodePeers& peers, const std::vector<Block>& blocks,
                    int64_t itemsize) {
  const auto block = [&](int behind) -> const Block& {
    return blocks[static_cast<size_t>(peers.wrap(peers.index - behind))];
  };
  std::vector<int> coming(blocks.size(), -1);
  for (int step = 1; step < peers.count(); ++step)
    if (block(step).count)
      coming[static_cast<size_t>(step)] =
          schedule.receive(block(step).data, block(step).count * itemsize, peers.at(-1));
  for (int step = 0; step < peers.count() - 1; ++step) {
    const int came = coming[static_cast<size_t>(step)];
    if (came >= 0) schedule.await(came);
    if (block(step).count)
      schedule.send(block(step).data, block(step).count * itemsize, peers.at(1));
  }
  schedule.await_all();
}

}  // namespace mpistrat::wire
