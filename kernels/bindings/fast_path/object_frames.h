#ifndef MPISTRAT_BINDINGS_FAST_PATH_OBJECT_FRAMES_H_
#define MPISTRAT_BINDINGS_FAST_PATH_OBJECT_FRAMES_H_

// What native code has to know of pickled objects and their frames: how long they are. The rest is
// in mpistrat/collectives/operations/objects.py.

#include <cstdint>
#include <cstring>

#include "../../calls/fast_path.h"

namespace mpistrat {

// The bytes of an object, which its frame begins with.
inline int64_t length_in(const void* frame) {
  int64_t length;
  std::memcpy(&length, frame, sizeof length);
  return length;
}

// Whether each frame that has come has its object in it.
inline bool are_objects_whole(const Plain& call, int64_t frame_bytes) {
  const auto* frames = static_cast<const uint8_t*>(call.recv);
  for (int64_t at = 0; at < call.recv_bytes; at += frame_bytes)
    if (length_in(frames + at) > frame_bytes - static_cast<int64_t>(sizeof(int64_t))) return false;
  return true;
}

// A call of objects is recorded with what this rank brings, in its frame or after it.
inline MpistratTicket ticket_of_objects(const MpistratTicket& ticket, const CallState& calls,
                                        const Plain& call) {
  MpistratTicket mine = ticket;
  const bool is_sender = call.kind != MPISTRAT_BCAST || call.root == calls.rank;
  if (is_sender) mine.record.nbytes = length_in(call.send) + static_cast<int64_t>(sizeof(int64_t));
  return mine;
}

}  // namespace mpistrat

#endif  // MPISTRAT_BINDINGS_FAST_PATH_OBJECT_FRAMES_H_
