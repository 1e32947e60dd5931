#include "algorithms.h"

#include <algorithm>

#include "recursive_doubling.h"

namespace mpistrat::wire {

Stops Stops::of(const Topology& topology, int lane) {
  Stops stops{topology.index, {}};
  for (const auto& group : topology.groups) stops.ranks.push_back(group[static_cast<size_t>(lane)]);
  return stops;
}

void ring_reduce_scatter(Script& script, const Stops& stops, const std::vector<Block>& sources,
                         void* into, uint8_t* spare, const Arithmetic& how) {
  const auto source = [&](int behind) -> const Block& {
    return sources[static_cast<size_t>(stops.wrap(stops.index - behind))];
  };
  int64_t longest = 0;
  for (const Block& block : sources) longest = std::max(longest, block.count);
  Block partial = source(1);
  int sent_before = -1;  // the message from the half of `spare` that comes next
  for (int step = 1; step < stops.count(); ++step) {
    int sent = -1;
    if (partial.count)
      sent = script.send(partial.data, partial.count * how.itemsize(), stops.at(1));
    const Block& own = source(1 + step);
    partial = {spare + step % 2 * longest * how.itemsize(), own.count};
    if (sent_before >= 0) script.await(sent_before);
    sent_before = sent;
    if (!own.count) continue;
    script.await(script.receive(partial.data, own.count * how.itemsize(), stops.at(-1)));
    if (step < stops.count() - 1) {
      script.reduce(partial.data, partial.data, own.data, own.count, how);
    } else {
      script.finish(into, partial.data, own.data, own.count, how);
    }
  }
  script.await_all();
}

void ring_allgather(Script& script, const Stops& stops, const std::vector<Block>& blocks,
                    int64_t itemsize) {
  const auto block = [&](int behind) -> const Block& {
    return blocks[static_cast<size_t>(stops.wrap(stops.index - behind))];
  };
  std::vector<int> coming(blocks.size(), -1);
  for (int step = 1; step < stops.count(); ++step)
    if (block(step).count)
      coming[static_cast<size_t>(step)] =
          script.receive(block(step).data, block(step).count * itemsize, stops.at(-1));
  for (int step = 0; step < stops.count() - 1; ++step) {
    const int came = coming[static_cast<size_t>(step)];
    if (came >= 0) script.await(came);
    if (block(step).count) script.send(block(step).data, block(step).count * itemsize, stops.at(1));
  }
  script.await_all();
}

void tree_bcast(Script& script, const Stops& stops, int from, const Block& block,
                int64_t itemsize) {
  if (!block.count) return;
  const int64_t nbytes = block.count * itemsize;
  const int p = stops.count(), me = stops.wrap(stops.index - from);
  const auto rank = [&](int of) { return stops.ranks[static_cast<size_t>(stops.wrap(of + from))]; };
  int step = 1;
  while (step < p && !(me & step)) step *= 2;
  if (me) script.await(script.receive(block.data, nbytes, rank(me - step)));
  for (step /= 2; step > 0; step /= 2)
    if (me + step < p) script.send(block.data, nbytes, rank(me + step));
  script.await_all();
}

void doubling_allreduce(Script& script, const Stops& stops, uint8_t* data, uint8_t* spare,
                        int64_t count, const Arithmetic& how) {
  const int64_t nbytes = count * how.itemsize();
  if (!count) return;
  RecursiveDoubling(stops).write(
      script, data, spare, nbytes, [&](int) { return nbytes; },
      [&](bool is_second) {
        if (is_second) {
          script.reduce(data, spare, data, count, how);
        } else {
          script.reduce(data, data, spare, count, how);
        }
      });
}

}  // namespace mpistrat::wire
