#ifndef MPISTRAT_TESTS_MESSAGE_COUNTS_H_
#define MPISTRAT_TESTS_MESSAGE_COUNTS_H_

// Count what a rank hands to MPI and to sockets, by phases of its program.
//
// Loaded by LD_PRELOAD, this library comes before MPI: its functions have MPI's names, count, and
// call MPI's under their profiling names (PMPI). mpistrat's kernels are given the addresses of
// these functions by in_rank.py. Messages to oneself do not count. MPI's own collectives count as
// calls, with the longer of this rank's two buffers: how MPI carries them is its matter.

#include <mpi.h>
#include <stdint.h>

typedef enum { kDatagram, kWrite, kConnection } SocketUse;

int64_t bytes_of(int64_t count, MPI_Datatype datatype);
int size_of(MPI_Comm comm);

void note_message(MPI_Comm comm, int to, int64_t count, MPI_Datatype datatype);
void note_collective(const char* name, int64_t sent, int64_t received);
void note_socket(SocketUse use, int64_t nbytes);

// Write a line of JSON about the phase that ends to the file of this rank in the folder
// $MESSAGE_COUNTS, and begin another one. MPI_Finalize and MPI_Abort end the last one.
void message_counts_phase(const char* next);

#endif  // MPISTRAT_TESTS_MESSAGE_COUNTS_H_
