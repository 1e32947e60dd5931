#ifndef MPISTRAT_CALLS_H_
#define MPISTRAT_CALLS_H_

// Collective calls, as the ranks of one machine (shm.h) and of several (wire.h) make them.
//
// Calls are made in the same order by all ranks, one at a time: mpistrat_begin() starts one,
// mpistrat_wait() advances it. Neither function allocates, blocks beyond its budget, or knows of
// Python. One thread at a time may call the functions of a rank's end, but for those of which it is
// said that any thread may.
//
// A call may *cross the gate* first: each rank shows a line [sequence, digest, failures, extra |
// payload], and if the first three words are not equal on all ranks, no data moves and every rank
// gets MPISTRAT_MISMATCH. Lines travel with the first step of the data where that is possible.

#include <stddef.h>
#include <stdint.h>

#include "mpistrat/flight_recorder.h"
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

enum MpistratStatus {
  MPISTRAT_DONE = 0,
  MPISTRAT_WAITING = 1,
  MPISTRAT_MISMATCH = 2,
  MPISTRAT_MPI_ERROR = 3  // of a wire: MPI refused a message, and no further call is possible
};

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
  int32_t payload_bytes;  // of the line, that the others are to see
  int32_t is_list;        // not 0: of many arrays, for the choice of algorithm; equal on all ranks
  int64_t divisor;        // of reductions: above 1, the result is divided by it
  const MpistratPiece* send;  // every rank's, except that bcast and scatter read the root's only
  const MpistratPiece* recv;  // every rank's, except that reduce and gather write the root's only
  // Bytes by rank of the blocks that `send` or `recv` consist of, in rank order.
  const int64_t* send_bytes;  // reduce_scatter and scatter (equal on all ranks), alltoall
  const int64_t* recv_bytes;  // allgather and gather (equal on all ranks), alltoall
  // scatter, alltoall: the longest block of any rank; equal on all ranks. Of several nodes 0 will
  // do for blocks that may be uneven.
  int64_t most_bytes;
} MpistratSpec;

// One rank's end of what carries the calls.
typedef struct MpistratCalls MpistratCalls;

// This rank's line, MPISTRAT_LINE_BYTES, to be filled in before a call that crosses.
uint8_t* mpistrat_line(MpistratCalls* calls);

// All ranks' lines of the last MPISTRAT_CROSS or mismatch, MPISTRAT_LINE_BYTES each.
const uint8_t* mpistrat_table(MpistratCalls* calls);

// Start a call, whose line is filled in if it crosses; the one before must be over.
void mpistrat_begin(MpistratCalls* calls, const MpistratSpec* spec);

// How a call is shown and recorded.
typedef struct {
  int64_t digest, extra;     // of its line
  int32_t holds;             // not 0: no other begins after it until resume (mpistrat_submit)
  MpistratRecords* records;  // where it is recorded, or NULL
  MpistratRecord record;     // whose `sequence` is filled in
} MpistratTicket;

// Count one more call, fill its line in, record it, and start it. The failures in the line stay as
// they are.
void mpistrat_begin_counted(MpistratCalls* calls, MpistratSpec* spec, MpistratTicket* ticket);

// Advance the call for about `budget_ns` (0: as far as is possible at once); returns an
// MpistratStatus. Once it is not WAITING, the call is over.
int mpistrat_wait(MpistratCalls* calls, uint64_t budget_ns);

// Whether the call, which this thread advances, had data to move for all of the last budget, and so
// will go on at once.
int mpistrat_is_moving(MpistratCalls* calls);

// Calls that follow each other by themselves, in that thread, while no other call is made. Each
// crosses the gate.
//
// Add one and return its number. The lists that `spec` names are copied, their memory has to stay.
// If it does not end well, or holds, no other begins until resume; but then other calls may be
// made, each of which must be over before resume. Such a call's record is still under way, for its
// owner to end.
int64_t mpistrat_submit(MpistratCalls* calls, const MpistratSpec* spec,
                        const MpistratTicket* ticket);
// Make the call that was begun with `ticket`, and is under way, the first of them, and return its
// number; -1 if others are left, or resume is awaited. All that its spec names must stay.
int64_t mpistrat_adopt(MpistratCalls* calls, const MpistratTicket* ticket);
// Wait for about `budget_ns` until it is over; returns an MpistratStatus. In the order of numbers.
// Any thread may call this and what follows, but for halt.
int mpistrat_collect(MpistratCalls* calls, int64_t number, uint64_t budget_ns);
// 1 while some are under way, or will be without another word; then no other call may begin.
int mpistrat_is_queue_busy(MpistratCalls* calls);
void mpistrat_resume(MpistratCalls* calls);

// Give up: forget what has not begun, and no longer advance what has. Waits for the thread's turn
// to end, for milliseconds.
void mpistrat_drop(MpistratCalls* calls);

// Let the thread end, for now. A call under way then needs mpistrat_wait() or mpistrat_collect().
void mpistrat_halt(MpistratCalls* calls);

#ifdef __cplusplus
}
#endif

#endif  // MPISTRAT_CALLS_H_
