// Algorithms between nodes as messages alone, for SimGrid: one rank a node, nothing is computed.
//
// Usage: smpirun ... algorithms NAME BYTES [SEGMENTS]; prints the simulated seconds that the
// slowest rank takes. Ranks are a power of two.

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *out, *in;
static int rank, size;

static void exchange(int to, int from, int nbytes) {
  MPI_Sendrecv(out, nbytes, MPI_BYTE, to, 0, in, nbytes, MPI_BYTE, from, 0, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
}

static void ring(int nbytes) {
  for (int step = 0; step < 2 * (size - 1); ++step)
    exchange((rank + 1) % size, (rank + size - 1) % size, nbytes / size);
}

static void doubling(int nbytes) {
  for (int distance = 1; distance < size; distance *= 2)
    exchange(rank ^ distance, rank ^ distance, nbytes);
}

static void rabenseifner(int nbytes) {
  int part = nbytes;
  for (int distance = size / 2; distance > 0; distance /= 2)
    exchange(rank ^ distance, rank ^ distance, part /= 2);
  for (int distance = 1; distance < size; distance *= 2, part *= 2)
    exchange(rank ^ distance, rank ^ distance, part);
}

static void chain(int nbytes, int segments) {
  MPI_Request* sent = malloc(sizeof *sent * (size_t)segments);
  for (int i = 0; i < segments; ++i) {
    if (rank > 0)
      MPI_Recv(in, nbytes / segments, MPI_BYTE, rank - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    sent[i] = MPI_REQUEST_NULL;
    if (rank < size - 1)
      MPI_Isend(out, nbytes / segments, MPI_BYTE, rank + 1, 0, MPI_COMM_WORLD, &sent[i]);
  }
  MPI_Waitall(segments, sent, MPI_STATUSES_IGNORE);
  free(sent);
}

static void tree(int nbytes) {
  int step = 1;
  while (step < size && !(rank & step)) step *= 2;
  if (rank) MPI_Recv(in, nbytes, MPI_BYTE, rank - step, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  for (step /= 2; step > 0; step /= 2)
    if (rank + step < size) MPI_Send(out, nbytes, MPI_BYTE, rank + step, 0, MPI_COMM_WORLD);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const char* name = argv[1];
  const int nbytes = atoi(argv[2]);
  out = SMPI_SHARED_MALLOC((size_t)nbytes);  // one for all ranks: nobody looks at what it holds
  in = SMPI_SHARED_MALLOC((size_t)nbytes);
  MPI_Barrier(MPI_COMM_WORLD);
  double took = -MPI_Wtime(), most;
  if (!strcmp(name, "ring")) ring(nbytes);
  if (!strcmp(name, "doubling")) doubling(nbytes);
  if (!strcmp(name, "rabenseifner")) rabenseifner(nbytes);
  if (!strcmp(name, "chain")) chain(nbytes, atoi(argv[3]));
  if (!strcmp(name, "tree")) tree(nbytes);
  took += MPI_Wtime();
  MPI_Reduce(&took, &most, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("%.9f\n", most);
  SMPI_SHARED_FREE(out);
  SMPI_SHARED_FREE(in);
  MPI_Finalize();
  return 0;
}
