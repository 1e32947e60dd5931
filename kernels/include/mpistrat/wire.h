#ifndef MPISTRAT_WIRE_H_
#define MPISTRAT_WIRE_H_

// Collectives between the ranks of several machines: through shared memory on each (shm.h), by
// messages of the running MPI library between them.
//
// A *wire* is one rank's end of all that. Its calls are made in the same order by all ranks, one at
// a time, and are described as those of a node are (MpistratSpec). A call may cross the gate first,
// as in calls.h: lines are compared on each node and then between the nodes, and small arrays that
// are reduced or broadcast ride along. The node's calls are the wire's alone.

#include <stdint.h>

#include "mpistrat/shm.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { MPISTRAT_NUM_TAGS = 4097 };  // that a wire uses, from `first_tag` on

// How to call the MPI library that the process has loaded; kernels/mpi/messages.h says why this
// fits every library. Its functions are called by one thread at a time.
typedef struct {
  int (*isend)(const void* data, int count, intptr_t type, int to, int tag, intptr_t comm,
               void* request);
  int (*irecv)(void* data, int count, intptr_t type, int from, int tag, intptr_t comm,
               void* request);
  int (*testsome)(int count, void* requests, int* num_done, int* done, void* statuses);
  intptr_t byte;  // MPI_BYTE
  intptr_t comm;  // returns errors, and has all ranks of the wire
  int32_t request_bytes, status_bytes;
  int32_t first_tag;
} MpistratMpi;

// Send `rank`, which is this one, a message; returns 1 if it has arrived, else 0: MPI cannot be
// called like this.
int mpistrat_mpi_probe(const MpistratMpi* mpi, int rank);

// Where one way of doing things gives way to another; equal on all ranks. Sizes that cannot be
// carried are taken for the nearest that can: a short array has 16 KiB at most, a message of a ring
// 4 MiB, and the longest ones are no shorter than the shortest.
typedef struct {
  int64_t short_bytes;      // up to here one rank of a node carries an array, with its line
  int64_t ring_bytes;       // the shortest messages of a ring; what makes none goes in fewer steps
  int64_t ring_most_bytes;  // the longest ones
  int64_t max_count;        // elements in a message
} MpistratWireTuning;

typedef struct MpistratWire MpistratWire;

// Return rank's end, or NULL if there is no memory left. `node_of[r]` is the number of rank r's
// machine; `node` this rank's end of its machine's memory, or NULL if no other rank is there.
MpistratWire* mpistrat_wire_open(const MpistratMpi* mpi, MpistratNode* node, int rank, int size,
                                 const int32_t* node_of, const MpistratWireTuning* tuning);

// Change the figures of the calls to come; between calls, and alike on all ranks.
void mpistrat_wire_tune(MpistratWire* wire, const MpistratWireTuning* tuning);

// Messages that are under way still keep their memory.
void mpistrat_wire_close(MpistratWire* wire);

// How to make calls. Where MPI does not allow its functions to any thread at any time, none may be
// adopted or submitted. The thread has to be halted before MPI is finalized.
MpistratCalls* mpistrat_wire_calls(MpistratWire* wire);

// Whether no call is under way, nor will be without another word; any thread may ask at any time.
int mpistrat_wire_is_over(MpistratWire* wire);

// What MPI returned, once a status was MPISTRAT_MPI_ERROR; else 0. Only while no call is under way.
int mpistrat_wire_error(MpistratWire* wire);

#ifdef __cplusplus
}
#endif

#endif  // MPISTRAT_WIRE_H_
