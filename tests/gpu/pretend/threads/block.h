// One block of a grid: its threads take turns on the OS thread that runs it.
#pragma once
#include <memory>
#include <random>
#include <vector>

#include "threads/fibers/fiber.h"
#include "threads/interface.h"
#include "threads/launch.h"
#include "threads/shared_memory.h"

namespace pretend {

enum class State { kFresh, kReady, kPaused, kAtBlockBarrier, kAtLaneBarrier, kDone };

// A CUDA thread.
struct Thread {
  Here here;
  State state;
  int index;           // in the block
  Site site;           // of the barrier at which it waits
  Mask mask;           // whom it waits for there
  Mask met;            // lanes that the last barrier of lanes let go together
  unsigned met_count;  // barriers of lanes passed, to choose a tag
  Fiber* fiber;
};

// A wavefront: what its lanes exchange, and the tags by which the sanitizer orders them.
struct Wavefront {
  struct alignas(16) Slot {
    unsigned char bytes[16];
  } slots[kLanes];
  char tags[kLanes][2];  // of barriers with a mask: by the first lane of the mask
  char unmasked_tags[2];
  unsigned unmasked_count;
};

struct Launch {
  KernelEntry entry;
  Grid grid;
  void** arguments;
  StaticShared shared;
};

// What a block tells the launch that it belongs to.
class Watcher {
 public:
  virtual void block_waits() = 0;  // all its threads seem to wait for something outside it
  virtual void block_is_too_large(unsigned long long most_threads) = 0;

 protected:
  ~Watcher() = default;
};

class Block {
 public:
  Block() = default;
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  // Run block `number` of the launch from start to end.
  void run(const Launch& launch, unsigned long long number, Watcher& watcher);

  // Give stacks back where there are many: ThreadSanitizer has room for 8000 threads.
  void trim();

  Thread& running() { return *running_; }
  const Thread* running_or_none() const { return running_; }
  const std::vector<Thread>& threads() const { return threads_; }
  Wavefront& wavefront() { return wavefronts_[running_->index / kLanes]; }
  void* shared() { return shared_.data(); }
  void give_way(State state);  // of the running thread, until it may go on
  char* tag() { return &tags_[barriers_ & 1]; }
  Watcher& watcher() { return *watcher_; }
  int* votes() { return votes_[barriers_ & 1]; }

 private:
  static void thread_body();
  void prepare(const Grid& grid, unsigned long long number);
  void order_turns(std::mt19937& random);
  void resume(Thread& thread);
  Fiber* fiber_for(const Thread& thread);
  bool pass_turn();
  bool open_barriers();  // barriers.cc
  bool open_block_barrier();
  bool open_lane_barriers(bool last_resort);
  bool open_lane_barrier(const Thread& first, bool last_resort);
  const Thread* earliest(size_t begin) const;

  const Launch* launch_ = nullptr;
  Watcher* watcher_ = nullptr;
  std::vector<Thread> threads_;
  std::vector<Wavefront> wavefronts_;
  std::vector<unsigned> turns_;
  std::vector<std::unique_ptr<Fiber>> fibers_;  // kept from block to block
  std::vector<Fiber*> free_fibers_;
  std::vector<Wavefront::Slot> shared_;
  Thread* running_ = nullptr;
  size_t live_ = 0;
  unsigned barriers_ = 0;  // block barriers passed
  char tags_[2] = {};      // of block barriers, by turns: who is quick to the next one must not
                           // be taken for ordered before those who are slow to leave this one
  char start_tag_ = 0, end_tag_ = 0;
  int votes_[2][2] = {};  // threads that said no and yes at a barrier
};

// The block that the calling OS thread runs.
extern thread_local Block* block;

}  // namespace pretend
