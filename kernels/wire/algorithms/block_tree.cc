#include "block_tree.h"

#include <algorithm>

namespace mpistrat::wire {

// In digits of base kFanOut, a rank's parent has a zero in place of its last digit that is none.
BlockTree::BlockTree(int me, int size) : own{me, size}, parent(-1) {
  int width = 1;
  while (width < size && me % (width * kFanOut) == 0) width *= kFanOut;
  own.end = std::min(me + width, size);
  if (me > 0) parent = me - me % (width * kFanOut);
  for (width /= kFanOut; width > 0; width /= kFanOut)
    for (int first = me + width; first < std::min(me + kFanOut * width, size); first += width)
      children.push_back({first, std::min(first + width, size)});
}

}  // namespace mpistrat::wire
