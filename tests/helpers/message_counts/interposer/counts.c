// The counts of the phase under way, and how they are written.

#include "counts.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kMostRanks = 4096, kMostNames = 64 };

typedef struct {
  const char* name;
  int64_t calls, nbytes;
} Collective;

static struct {
  char phase[64];
  int64_t messages, nbytes, datagrams, datagram_bytes, writes, written_bytes, connections;
  int64_t to[kMostRanks];
  Collective collectives[kMostNames];
  int num_collectives;
} now = {.phase = "start"};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static int world_rank_of(MPI_Comm comm, int rank) {
  MPI_Group group, world;
  int found = rank;
  PMPI_Comm_group(comm, &group);
  PMPI_Comm_group(MPI_COMM_WORLD, &world);
  PMPI_Group_translate_ranks(group, 1, &rank, world, &found);
  PMPI_Group_free(&group);
  PMPI_Group_free(&world);
  return found;
}

int64_t bytes_of(int64_t count, MPI_Datatype datatype) {
  int size = 0;
  if (count > 0 && datatype != MPI_DATATYPE_NULL) PMPI_Type_size(datatype, &size);
  return count > 0 ? count * size : 0;
}

int size_of(MPI_Comm comm) {
  int size;
  PMPI_Comm_size(comm, &size);
  return size;
}

void note_message(MPI_Comm comm, int to, int64_t count, MPI_Datatype datatype) {
  int rank;
  PMPI_Comm_rank(comm, &rank);
  if (to == MPI_PROC_NULL || to == rank) return;
  const int other = world_rank_of(comm, to);
  const int64_t nbytes = bytes_of(count, datatype);
  pthread_mutex_lock(&mutex);
  now.messages += 1;
  now.nbytes += nbytes;
  if (0 <= other && other < kMostRanks) now.to[other] += 1;
  pthread_mutex_unlock(&mutex);
}

void note_collective(const char* name, int64_t sent, int64_t received) {
  pthread_mutex_lock(&mutex);
  int i = 0;
  while (i < now.num_collectives && strcmp(now.collectives[i].name, name) != 0) ++i;
  if (i < kMostNames) {
    if (i == now.num_collectives) now.collectives[now.num_collectives++].name = name;
    now.collectives[i].calls += 1;
    now.collectives[i].nbytes += sent > received ? sent : received;
  }
  pthread_mutex_unlock(&mutex);
}

void note_socket(SocketUse use, int64_t nbytes) {
  pthread_mutex_lock(&mutex);
  if (use == kDatagram) {
    now.datagrams += 1;
    now.datagram_bytes += nbytes;
  } else if (use == kWrite) {
    now.writes += 1;
    now.written_bytes += nbytes;
  } else {
    now.connections += 1;
  }
  pthread_mutex_unlock(&mutex);
}

static void write_phase(void) {
  const char* folder = getenv("MESSAGE_COUNTS");
  char path[4096];
  int rank, partners = 0;
  int64_t most = 0;
  if (!folder) return;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  snprintf(path, sizeof path, "%s/rank-%d.jsonl", folder, rank);
  FILE* file = fopen(path, "a");
  if (!file) return;
  for (int i = 0; i < kMostRanks; ++i) {
    partners += now.to[i] > 0;
    if (now.to[i] > most) most = now.to[i];
  }
  fprintf(file,
          "{\"phase\": \"%s\", \"messages\": %lld, \"nbytes\": %lld, \"partners\": %d, "
          "\"most_to_one\": %lld, \"datagrams\": %lld, \"datagram_bytes\": %lld, "
          "\"writes\": %lld, \"written_bytes\": %lld, \"connections\": %lld, \"collectives\": {",
          now.phase, (long long)now.messages, (long long)now.nbytes, partners, (long long)most,
          (long long)now.datagrams, (long long)now.datagram_bytes, (long long)now.writes,
          (long long)now.written_bytes, (long long)now.connections);
  for (int i = 0; i < now.num_collectives; ++i)
    fprintf(file, "%s\"%s\": [%lld, %lld]", i ? ", " : "", now.collectives[i].name,
            (long long)now.collectives[i].calls, (long long)now.collectives[i].nbytes);
  fprintf(file, "}}\n");
  fclose(file);
}

void message_counts_phase(const char* next) {
  pthread_mutex_lock(&mutex);
  write_phase();
  memset(&now, 0, sizeof now);
  snprintf(now.phase, sizeof now.phase, "%s", next);
  pthread_mutex_unlock(&mutex);
}

int MPI_Finalize(void) {
  message_counts_phase("");
  return PMPI_Finalize();
}

int MPI_Abort(MPI_Comm comm, int code) {
  message_counts_phase("");
  return PMPI_Abort(comm, code);
}
