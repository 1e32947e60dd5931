#ifndef MPISTRAT_SHM_NODE_H_
#define MPISTRAT_SHM_NODE_H_

// One rank's end of a node: begin a collective, and advance it by steps.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "../common/futex_wait.h"
#include "exchange_choice.h"
#include "mpistrat/shm.h"
#include "node_view.h"
#include "peer_read/peer_memory.h"
#include "reduction/algorithm_choice.h"
#include "regions.h"

namespace mpistrat {

// One rank's end of the shared memory; see mpistrat/shm.h.
class Node {
 public:
  Node(Memory* memory, int rank, int size, int num_cpus);

  int size() const { return view_.size; }
  uint8_t* line() { return line_; }
  const uint8_t* table() const { return table_.data(); }
  Regions& regions() { return regions_; }
  int add_region(void* const* bases, size_t nbytes) {
    return regions_.add(bases, view_.size, view_.rank, nbytes);
  }
  PeerMemory& peer_memory() { return peer_memory_; }
  void reach(const int32_t* pids) { peer_memory_.open(pids, view_.size); }
  void tune(int kind, bool halves, const MpistratTuning& tuning);

  bool has_gone_past() const { return exchange_choice_.has_gone_past(); }

  void begin(const MpistratSpec& spec);
  MpistratStatus advance(uint64_t budget_ns);
  bool is_moving() const { return is_consuming_; }

 private:
  bool is_line_step() const { return step_ == 0 && spec_.crosses; }
  bool has_come(int rank) const;
  bool have_all_come();
  bool consume(uint64_t budget_ns);
  void end_step();
  void publish();
  void show_line();
  bool do_lines_agree();
  void fill_table();

  int64_t cache_bytes_;
  NodeView view_;
  FutexWait waiting_;
  Regions regions_;
  PeerMemory peer_memory_;
  MpistratTuning tunings_[MPISTRAT_NUM_KINDS][2];  // by kind; of half types, or of the others
  int64_t apart_stream_bytes_[MPISTRAT_NUM_KINDS][2] = {};
  bool is_timed_[MPISTRAT_NUM_KINDS][2] = {};
  MovementChoice movement_choice_;
  // Of all-reduces: of half types or others, of lists or of single arrays, by what is registered.
  AlgorithmChoice choices_[2][2][4];
  std::vector<const void*> sources_;
  std::vector<void*> targets_;
  std::vector<Peer> peers_;
  struct alignas(kPage) Scratch {
    uint8_t bytes[kMaxChunk];
  };
  std::unique_ptr<Scratch> scratch_{new Scratch};  // not touched before it is used
  alignas(kCacheLine) uint8_t line_[MPISTRAT_LINE_BYTES] = {};
  std::vector<uint8_t> table_;

  // The call under way.
  MpistratSpec spec_ = {};
  ExchangeChoice exchange_choice_;
  Exchange* exchange_ = nullptr;
  int64_t step_ = 0;
  bool is_published_ = false, is_consuming_ = false;
  int next_ = 0;  // the ranks before this one have come
};

}  // namespace mpistrat

#endif  // MPISTRAT_SHM_NODE_H_
