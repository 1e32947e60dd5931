// MPI's collectives without data, and persistent ones, which count whenever they are started.

#include <pthread.h>

#include "counts.h"

int MPI_Barrier(MPI_Comm comm) {
  note_collective("Barrier", 0, 0);
  return PMPI_Barrier(comm);
}

int MPI_Ibarrier(MPI_Comm comm, MPI_Request* request) {
  note_collective("Barrier", 0, 0);
  return PMPI_Ibarrier(comm, request);
}

int MPI_Comm_dup(MPI_Comm comm, MPI_Comm* made) {
  note_collective("Comm_dup", 0, 0);
  return PMPI_Comm_dup(comm, made);
}

int MPI_Comm_idup(MPI_Comm comm, MPI_Comm* made, MPI_Request* request) {
  note_collective("Comm_dup", 0, 0);
  return PMPI_Comm_idup(comm, made, request);
}

int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm* made) {
  note_collective("Comm_split", 0, 0);
  return PMPI_Comm_split(comm, color, key, made);
}

enum { kMostPersistent = 64 };

static struct {
  MPI_Request request;
  const char* name;
  int64_t nbytes;
} persistent[kMostPersistent];
static int num_persistent;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void keep_persistent(MPI_Request request, const char* name, int64_t nbytes) {
  pthread_mutex_lock(&mutex);
  int i = 0;
  while (i < num_persistent && persistent[i].request != request) ++i;
  if (i < kMostPersistent) {
    persistent[i].request = request;
    persistent[i].name = name;
    persistent[i].nbytes = nbytes;
    if (i == num_persistent) ++num_persistent;
  }
  pthread_mutex_unlock(&mutex);
}

#define ALLGATHER_INIT(NAME, COUNT)                                                        \
  int MPI_##NAME(const void* data, COUNT count, MPI_Datatype type, void* into, COUNT room, \
                 MPI_Datatype of, MPI_Comm comm, MPI_Info info, MPI_Request* request) {    \
    const int code = PMPI_##NAME(data, count, type, into, room, of, comm, info, request);  \
    keep_persistent(*request, "Allgather", bytes_of((int64_t)room * size_of(comm), of));   \
    return code;                                                                           \
  }
ALLGATHER_INIT(Allgather_init, int)
#if MPI_VERSION >= 4
ALLGATHER_INIT(Allgather_init_c, MPI_Count)
#endif

int MPI_Start(MPI_Request* request) {
  pthread_mutex_lock(&mutex);
  for (int i = 0; i < num_persistent; ++i)
    if (persistent[i].request == *request)
      note_collective(persistent[i].name, 0, persistent[i].nbytes);
  pthread_mutex_unlock(&mutex);
  return PMPI_Start(request);
}
