#ifndef MPISTRAT_SHM_TASK_H_
#define MPISTRAT_SHM_TASK_H_

#include <cstdint>

namespace mpistrat {

// Something that goes on whenever it is given time.
class Task {
 public:
  virtual ~Task() = default;

  // Go on for about `budget_ns` (0: as far as is possible at once); returns MPISTRAT_WAITING, or
  // how it has ended.
  virtual int advance(uint64_t budget_ns) = 0;
};

}  // namespace mpistrat

#endif  // MPISTRAT_SHM_TASK_H_
