// OS threads that run blocks; they are started when needed, and kept.
#pragma once
#include <memory>

#include "threads/block.h"
#include "threads/fibers/sanitizers.h"

namespace pretend {

class Work {
 public:
  virtual void run_blocks(Block& block) = 0;  // until there is no more to do
  // For the sanitizer, which does not see the counter of a shared_ptr: to be called before one is
  // given up, and by the destructor.
  void give_up() { release(&given_up_); }
  void end() { acquire(&given_up_); }

 protected:
  ~Work() = default;

 private:
  char given_up_ = 0;
};

// Let `count` workers do it, each of which is free now or started for it.
void call_workers(const std::shared_ptr<Work>& work, unsigned count);

// Let the calling thread do it.
void run_here(Work& work);

}  // namespace pretend
