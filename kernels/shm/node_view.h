#ifndef MPISTRAT_SHM_NODE_VIEW_H_
#define MPISTRAT_SHM_NODE_VIEW_H_

// A rank's view of its node during a call: the shared memory, the tuning, and room to work in.

#include <algorithm>
#include <cstdint>

#include "chunks.h"
#include "default_tuning.h"
#include "layout.h"
#include "mpistrat/shm.h"
#include "slot_ring.h"

namespace mpistrat {

class AlgorithmChoice;
class PeerMemory;
class Regions;
struct Peer;

// What an exchange sees of its node.
struct NodeView {
  Memory* memory;
  int rank;
  int size;
  uint64_t counter;            // steps so far, over all calls
  SlotRing slot_ring;          // of the steps in the slots
  int64_t sequence;            // of the call, if it crosses the gate
  MpistratTuning tuning;       // of the call
  int64_t apart_stream_bytes;  // as its stream_bytes, where results are not in place
  Regions* regions;
  const PeerMemory* peer_memory;
  // Of the call, where its own time tells which algorithm to use, else null: with no registered
  // arrays, with registered sources, with registered results, and with both.
  AlgorithmChoice* choices;
  MovementChoice* movement_choice;  // of the call, where that is found out, else null
  // Room for one pointer a rank.
  const void** sources;
  void** targets;
  Peer* peers;       // one for each rank
  uint8_t* scratch;  // kMaxChunk bytes of this rank's own

  int64_t lap_bytes(int64_t nbytes) const {
    return size == 2 && nbytes <= kLongLapBytes ? kRing : kShortRing;
  }
  // Bytes, in whole lines, of a slot's part for each rank, where blocks have at most `most_bytes`.
  int64_t part_bytes(int64_t most_bytes) const {
    const auto line = static_cast<int64_t>(kCacheLine);
    const int64_t room = tuning.chunk_bytes / size / line;
    return std::max<int64_t>(std::min(room, num_pieces(most_bytes, line)), 1) * line;
  }

  const Line& line(int of, int64_t sequence) const {
    return memory->controls()[of].lines[sequence & 1];
  }
  uint8_t* slot(int of) const { return memory->buffers_of(of, size) + slot_ring.at(); }
  uint8_t* last_slot(int of) const { return memory->buffers_of(of, size) + slot_ring.last(); }
  uint8_t* addresses(int of) const { return memory->buffers(size)[of].addresses; }
};

}  // namespace mpistrat

#endif  // MPISTRAT_SHM_NODE_VIEW_H_
