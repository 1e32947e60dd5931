// MPI's functions that send.

#include "counts.h"

#define SEND(NAME, COUNT)                                                               \
  int MPI_##NAME(const void* data, COUNT count, MPI_Datatype datatype, int to, int tag, \
                 MPI_Comm comm) {                                                       \
    note_message(comm, to, count, datatype);                                            \
    return PMPI_##NAME(data, count, datatype, to, tag, comm);                           \
  }
#define ISEND(NAME, COUNT)                                                              \
  int MPI_##NAME(const void* data, COUNT count, MPI_Datatype datatype, int to, int tag, \
                 MPI_Comm comm, MPI_Request* request) {                                 \
    note_message(comm, to, count, datatype);                                            \
    return PMPI_##NAME(data, count, datatype, to, tag, comm, request);                  \
  }
#define SENDRECV(NAME, COUNT)                                                                      \
  int MPI_##NAME(const void* data, COUNT count, MPI_Datatype datatype, int to, int tag,            \
                 void* into, COUNT room, MPI_Datatype type, int from, int its, MPI_Comm comm,      \
                 MPI_Status* status) {                                                             \
    note_message(comm, to, count, datatype);                                                       \
    return PMPI_##NAME(data, count, datatype, to, tag, into, room, type, from, its, comm, status); \
  }

// Functions with long counts are there from MPI 4 on.
#if MPI_VERSION >= 4
#define BOTH(WHAT, NAME) WHAT(NAME, int) WHAT(NAME##_c, MPI_Count)
#else
#define BOTH(WHAT, NAME) WHAT(NAME, int)
#endif

BOTH(SEND, Send)
BOTH(SEND, Ssend)
BOTH(SEND, Rsend)
BOTH(SEND, Bsend)
BOTH(ISEND, Isend)
BOTH(ISEND, Issend)
BOTH(ISEND, Irsend)
BOTH(ISEND, Ibsend)
BOTH(SENDRECV, Sendrecv)
