#ifndef MPISTRAT_SHM_H_
#define MPISTRAT_SHM_H_

// Collectives between the ranks of one machine, through memory that all of them have mapped.
//
// A *node* is one rank's end of such a memory. Its calls are made in the same order by all ranks,
// one at a time: mpistrat_begin() starts one, mpistrat_wait() advances it. Neither function
// allocates, blocks beyond its budget, or knows of Python and MPI.
//
// A call may *cross the gate* first: each rank shows a line [sequence, digest, failures, extra |
// payload], and if the first three words are not equal on all ranks, no data moves and every rank
// gets MPISTRAT_MISMATCH. Lines travel with the first step of the data: a check costs no message.

#include <stddef.h>
#include <stdint.h>

#include "mpistrat/gate.h"
#include "mpistrat/types.h"

#ifdef __cplusplus
extern "C" {
#endif

enum MpistratKind {
  MPISTRAT_CROSS = 0,  // lines only; afterwards the table holds everyone's
  MPISTRAT_ALLREDUCE = 1,
  MPISTRAT_REDUCE = 2,
  MPISTRAT_REDUCE_SCATTER = 3,
  MPISTRAT_BCAST = 4,
  MPISTRAT_ALLGATHER = 5,
  MPISTRAT_GATHER = 6,
  MPISTRAT_SCATTER = 7,
  MPISTRAT_ALLTOALL = 8,
  MPISTRAT_NUM_KINDS = 9
};

enum MpistratStatus { MPISTRAT_DONE = 0, MPISTRAT_WAITING = 1, MPISTRAT_MISMATCH = 2 };

enum {
  MPISTRAT_HEAD_BYTES = 32,     // of a line: sequence, digest, failures, extra, as int64
  MPISTRAT_AGREED_BYTES = 24,   // of a line: what must be equal
  MPISTRAT_INLINE_BYTES = 224,  // of a line: payload
  MPISTRAT_LINE_BYTES = 256
};

// A range of this rank's memory. A list of them is read and written as if it were one range.
typedef struct {
  void* data;
  int64_t nbytes;
} MpistratPiece;

// A call. All memory that it names must stay until the call is over.
typedef struct {
  int32_t kind;     // MpistratKind
  int32_t crosses;  // not 0: show the line of mpistrat_line() first; MPISTRAT_CROSS always does
  int32_t op;       // MpistratOp, of reductions
  int32_t dtype;    // MpistratDtype, of reductions
  int32_t root;
  int32_t num_send;
  int32_t num_recv;
  int32_t payload_bytes;      // of the line, that the others are to see
  int64_t divisor;            // of reductions: above 1, the result is divided by it
  const MpistratPiece* send;  // every rank's, except that bcast and scatter read the root's only
  const MpistratPiece* recv;  // every rank's, except that reduce and gather write the root's only
  // Bytes by rank of the blocks that `send` or `recv` consist of, in rank order.
  const int64_t* send_bytes;  // reduce_scatter (equal on all ranks), scatter, alltoall
  const int64_t* recv_bytes;  // allgather and gather (equal on all ranks), alltoall
  int64_t most_bytes;         // scatter, alltoall: the longest block of any rank; equal on all
} MpistratSpec;

typedef struct MpistratNode MpistratNode;

// Bytes of shared memory that `size` ranks need; it must be zero when the first one opens it.
size_t mpistrat_node_bytes(int size);

// Return rank's end of `memory`, or NULL if there is no memory left for it. `num_cpus` is how many
// processors the ranks share: if there are fewer than ranks, waits offer theirs at once.
MpistratNode* mpistrat_node_open(void* memory, int rank, int size, int num_cpus);
void mpistrat_node_close(MpistratNode* node);

// This rank's line, MPISTRAT_LINE_BYTES, to be filled in before a call that crosses.
uint8_t* mpistrat_line(MpistratNode* node);

// All ranks' lines of the last MPISTRAT_CROSS or mismatch, MPISTRAT_LINE_BYTES each.
const uint8_t* mpistrat_table(MpistratNode* node);

// Start a call; the one before must be over.
void mpistrat_begin(MpistratNode* node, const MpistratSpec* spec);

// Advance the call for about `budget_ns` (0: as far as is possible at once); returns an
// MpistratStatus. Once it is not WAITING, the call is over.
int mpistrat_wait(MpistratNode* node, uint64_t budget_ns);

// Let a thread of the node's own carry on with the call under way, until mpistrat_wait() has told
// its end. All memory that the call names must stay, and no other function be called meanwhile.
void mpistrat_detach(MpistratNode* node);

// All-reduces that follow each other by themselves, in a thread of the node's own, while no other
// function of the node is called but these and line and table. Each crosses the gate.
//
// Add one, with one piece each, and return its number. `record` is kept in `records` unless that is
// NULL. If one does not end well, no other begins until resume.
int64_t mpistrat_submit(MpistratNode* node, const MpistratSpec* spec, int64_t digest,
                        MpistratRecords* records, const MpistratRecord* record);
// Wait for about `budget_ns` until it is over; returns an MpistratStatus. In the order of numbers.
int mpistrat_collect(MpistratNode* node, int64_t number, uint64_t budget_ns);
// 1 while some are under way, or will be without another word; then no other call may begin.
int mpistrat_is_queue_busy(MpistratNode* node);
void mpistrat_resume(MpistratNode* node);
// Forget those that have not begun, and advance none any more, nor a call that was detached.
void mpistrat_drop(MpistratNode* node);

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

// Where one way of doing things gives way to another; 0: the built-in figure.
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

#ifdef __cplusplus
}
#endif

#endif  // MPISTRAT_SHM_H_
