#ifndef MPISTRAT_WIRE_TURN_H_
#define MPISTRAT_WIRE_TURN_H_

// A segment on its way: loaded from the node, carried over the wire, stored on the node.

#include <cstdint>
#include <memory>
#include <vector>

#include "links.h"
#include "script.h"
#include "segments.h"

namespace mpistrat::wire {

// Memory that is given out piece by piece, and taken back all at once.
class Scratch {
 public:
  // Take everything back; `nbytes` and some more will be given out.
  void reset(int64_t nbytes);
  uint8_t* take(int64_t nbytes);

 private:
  static constexpr int64_t kAlign = 64;

  std::unique_ptr<uint8_t[]> memory_;  // not initialised: what is never used costs nothing
  int64_t nbytes_ = 0, at_ = 0;
};

struct Turn {
  Segment segment;
  Script script;
  Scratch scratch;
  std::vector<Block> sources, targets;  // this rank's slices of the blocks, before and after
};

// What happens in the turns of a call. load() and store() describe the node's calls; they return
// false where there is none to make.
class Flow {
 public:
  explicit Flow(Links& links) : links_(links) {}
  virtual ~Flow() = default;

  virtual bool load(Turn& turn) = 0;
  virtual void carry(Turn& turn) = 0;
  virtual bool store(Turn& turn) = 0;

 protected:
  const Places& places() const { return links_.places; }
  // How much each rank of this node carries of all blocks, or of the node's own.
  void list_totals(const Segment& segment, int64_t itemsize);
  int64_t list_own(const Segment& segment, int64_t itemsize);
  int64_t lane_count(const Turn& turn) const;
  // Cut `data` in this rank's slices of the blocks.
  void cut(const Turn& turn, uint8_t* data, int64_t itemsize, std::vector<Block>* blocks) const;
  // Point to this rank's slices in the caller's memory, or to copies where they lie in pieces.
  void find(Turn& turn, Pieces& pieces, int64_t itemsize, std::vector<Block>* blocks) const;
  void copy_in(const Turn& turn, Pieces& pieces, int64_t itemsize) const;
  // Describe the segment's parts of `pieces`, lane by lane, as what the node's call writes.
  void receive_all(const Segment& segment, Pieces& pieces, int64_t itemsize);
  bool store_all(Turn& turn, Pieces& pieces, int64_t itemsize);

  Links& links_;
};

}  // namespace mpistrat::wire

#endif  // MPISTRAT_WIRE_TURN_H_
