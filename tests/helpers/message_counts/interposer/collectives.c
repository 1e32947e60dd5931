// MPI's collectives that move or reduce data.

#include "counts.h"

static int is_root(MPI_Comm comm, int root) {
  int rank;
  PMPI_Comm_rank(comm, &rank);
  return rank == root;
}

// The blocking and the nonblocking function of each, with short and with long counts. All four are
// counted under the name of the first.
#define SHORT(WHAT, NAME, INAME)  \
  WHAT(NAME, #NAME, int, int, , ) \
  WHAT(INAME, #NAME, int, int, COMMA_REQUEST, COMMA_HANDLE)
#define LONG(WHAT, NAME, INAME)                  \
  WHAT(NAME##_c, #NAME, MPI_Count, MPI_Aint, , ) \
  WHAT(INAME##_c, #NAME, MPI_Count, MPI_Aint, COMMA_REQUEST, COMMA_HANDLE)
#if MPI_VERSION >= 4
#define ALL(WHAT, NAME, INAME) SHORT(WHAT, NAME, INAME) LONG(WHAT, NAME, INAME)
#else
#define ALL(WHAT, NAME, INAME) SHORT(WHAT, NAME, INAME)
#endif
#define COMMA_REQUEST , MPI_Request* request
#define COMMA_HANDLE , request

#define BCAST(NAME, PLAIN, COUNT, AT, REQUEST, HANDLE)                                          \
  int MPI_##NAME(void* data, COUNT count, MPI_Datatype type, int root, MPI_Comm comm REQUEST) { \
    note_collective(PLAIN, bytes_of(count, type), 0);                                           \
    return PMPI_##NAME(data, count, type, root, comm HANDLE);                                   \
  }
#define REDUCE(NAME, PLAIN, COUNT, AT, REQUEST, HANDLE)                                   \
  int MPI_##NAME(const void* data, void* into, COUNT count, MPI_Datatype type, MPI_Op op, \
                 int root, MPI_Comm comm REQUEST) {                                       \
    note_collective(PLAIN, bytes_of(count, type), 0);                                     \
    return PMPI_##NAME(data, into, count, type, op, root, comm HANDLE);                   \
  }
#define ALLREDUCE(NAME, PLAIN, COUNT, AT, REQUEST, HANDLE)                                \
  int MPI_##NAME(const void* data, void* into, COUNT count, MPI_Datatype type, MPI_Op op, \
                 MPI_Comm comm REQUEST) {                                                 \
    note_collective(PLAIN, bytes_of(count, type), 0);                                     \
    return PMPI_##NAME(data, into, count, type, op, comm HANDLE);                         \
  }
#define REDUCE_SCATTER(NAME, PLAIN, COUNT, AT, REQUEST, HANDLE)                                    \
  int MPI_##NAME(const void* data, void* into, const COUNT counts[], MPI_Datatype type, MPI_Op op, \
                 MPI_Comm comm REQUEST) {                                                          \
    int64_t all = 0;                                                                               \
    for (int i = 0; i < size_of(comm); ++i) all += counts[i];                                      \
    note_collective(PLAIN, bytes_of(all, type), 0);                                                \
    return PMPI_##NAME(data, into, counts, type, op, comm HANDLE);                                 \
  }
#define ALLGATHER(NAME, PLAIN, COUNT, AT, REQUEST, HANDLE)                                 \
  int MPI_##NAME(const void* data, COUNT count, MPI_Datatype type, void* into, COUNT room, \
                 MPI_Datatype of, MPI_Comm comm REQUEST) {                                 \
    note_collective(PLAIN, 0, bytes_of((int64_t)room * size_of(comm), of));                \
    return PMPI_##NAME(data, count, type, into, room, of, comm HANDLE);                    \
  }
#define ALLGATHERV(NAME, PLAIN, COUNT, AT, REQUEST, HANDLE)                                     \
  int MPI_##NAME(const void* data, COUNT count, MPI_Datatype type, void* into,                  \
                 const COUNT counts[], const AT at[], MPI_Datatype of, MPI_Comm comm REQUEST) { \
    int64_t all = 0;                                                                            \
    for (int i = 0; i < size_of(comm); ++i) all += counts[i];                                   \
    note_collective(PLAIN, 0, bytes_of(all, of));                                               \
    return PMPI_##NAME(data, count, type, into, counts, at, of, comm HANDLE);                   \
  }
#define GATHERV(NAME, PLAIN, COUNT, AT, REQUEST, HANDLE)                            \
  int MPI_##NAME(const void* data, COUNT count, MPI_Datatype type, void* into,      \
                 const COUNT counts[], const AT at[], MPI_Datatype of, int root,    \
                 MPI_Comm comm REQUEST) {                                           \
    int64_t all = 0;                                                                \
    if (is_root(comm, root))                                                        \
      for (int i = 0; i < size_of(comm); ++i) all += counts[i];                     \
    note_collective(PLAIN, bytes_of(count, type), all ? bytes_of(all, of) : 0);     \
    return PMPI_##NAME(data, count, type, into, counts, at, of, root, comm HANDLE); \
  }
#define SCATTERV(NAME, PLAIN, COUNT, AT, REQUEST, HANDLE)                                    \
  int MPI_##NAME(const void* data, const COUNT counts[], const AT at[], MPI_Datatype type,   \
                 void* into, COUNT room, MPI_Datatype of, int root, MPI_Comm comm REQUEST) { \
    int64_t all = 0;                                                                         \
    if (is_root(comm, root))                                                                 \
      for (int i = 0; i < size_of(comm); ++i) all += counts[i];                              \
    note_collective(PLAIN, all ? bytes_of(all, type) : 0, bytes_of(room, of));               \
    return PMPI_##NAME(data, counts, at, type, into, room, of, root, comm HANDLE);           \
  }
#define ALLTOALLV(NAME, PLAIN, COUNT, AT, REQUEST, HANDLE)                                 \
  int MPI_##NAME(const void* data, const COUNT counts[], const AT at[], MPI_Datatype type, \
                 void* into, const COUNT rooms[], const AT to[], MPI_Datatype of,          \
                 MPI_Comm comm REQUEST) {                                                  \
    int64_t sent = 0, received = 0;                                                        \
    for (int i = 0; i < size_of(comm); ++i) sent += counts[i], received += rooms[i];       \
    note_collective(PLAIN, bytes_of(sent, type), bytes_of(received, of));                  \
    return PMPI_##NAME(data, counts, at, type, into, rooms, to, of, comm HANDLE);          \
  }

ALL(BCAST, Bcast, Ibcast)
ALL(REDUCE, Reduce, Ireduce)
ALL(ALLREDUCE, Allreduce, Iallreduce)
ALL(REDUCE_SCATTER, Reduce_scatter, Ireduce_scatter)
ALL(ALLGATHER, Allgather, Iallgather)
ALL(ALLGATHERV, Allgatherv, Iallgatherv)
ALL(GATHERV, Gatherv, Igatherv)
ALL(SCATTERV, Scatterv, Iscatterv)
ALL(ALLTOALLV, Alltoallv, Ialltoallv)
