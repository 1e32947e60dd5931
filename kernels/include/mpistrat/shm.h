#ifndef MPISTRAT_SHM_H_
#define MPISTRAT_SHM_H_

// Collectives between the ranks of one machine, through memory that all of them have mapped.
//
// A *node* is one rank's end of such a memory; its calls are those of calls.h. Lines travel with
// the first step of the data: a check costs no message.

#include <stddef.h>
#include <stdint.h>

#include "mpistrat/calls.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct MpistratNode MpistratNode;

// Bytes of shared memory that `size` ranks need; it must be zero when the first one opens it.
size_t mpistrat_node_bytes(int size);

// Return rank's end of `memory`, or NULL if there is no memory left for it. `num_cpus` is how many
// processors the ranks share: if there are fewer than ranks, waits offer theirs at once.
MpistratNode* mpistrat_node_open(void* memory, int rank, int size, int num_cpus);
void mpistrat_node_close(MpistratNode* node);

// How to make calls.
MpistratCalls* mpistrat_node_calls(MpistratNode* node);

// Make memory known that all ranks have mapped, so that calls on it skip their copies. All ranks
// add the same regions in the same order. bases[rank]: where this process has mapped the
// `nbytes` that are rank's part; equal for all ranks if the region is one that all share.
// Returns the region's number.
int mpistrat_region_add(MpistratNode* node, void* const* bases, size_t nbytes);
void mpistrat_region_remove(MpistratNode* node, int region);

// Private memory of the other ranks is read where it is once every rank has been told to, which it
// must not be before each could read every other one's token: a value at an address of its process.
void mpistrat_token(MpistratNode* node, uint64_t* address, uint64_t* value);
int mpistrat_has_token(int32_t pid, uint64_t address, uint64_t value);  // 1 if it can be read
void mpistrat_reach(MpistratNode* node, const int32_t* pids);           // by rank

// Where one way of doing things gives way to another; 0: the built-in figure. Ranks whose
// all-reduces have 0 for remote_bytes time them and take the fastest algorithm
// (algorithm_choice.h): two from 1 KiB on, more from where arrays are too long for one step
// (flat_bytes).
typedef struct {
  int64_t chunk_bytes;   // what of a long array is exchanged in one step
  int64_t flat_bytes;    // all ranks' bytes up to here: one step, every rank reduces all
  int64_t whole_bytes;   // two ranks, up to here: every rank reduces whole chunks
  int64_t stream_bytes;  // results from here on are written past the caches
  int64_t remote_bytes;  // private arrays from here on are read where they are, if not streamed
} MpistratTuning;

// Use it for calls of `kind` from now on, on float16 and bfloat16 if `halves`, else on the rest.
// Equal on all ranks.
void mpistrat_tune(MpistratNode* node, int kind, int halves, const MpistratTuning* tuning);

// 1 if this rank wrote its slots of the last call, an all-reduce, past the caches.
int mpistrat_has_gone_past(const MpistratNode* node);

#ifdef __cplusplus
}
#endif

#endif  // MPISTRAT_SHM_H_
