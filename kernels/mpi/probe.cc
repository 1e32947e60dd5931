// Check that MPI can be called without its header, by a message to oneself.

#include <cstring>

#include "messages.h"

namespace mpistrat {
namespace {

constexpr int kLooks = 100'000;  // a message to oneself needs a few

}  // namespace
}  // namespace mpistrat

int mpistrat_mpi_probe(const MpistratMpi* mpi, int rank) {
  mpistrat::Messages messages(*mpi);
  const char sent[] = "a message to oneself";
  char received[sizeof sent] = {};
  uint8_t done[2];
  messages.receive(received, sizeof received, rank, mpi->first_tag, &done[0]);
  messages.send(sent, sizeof sent, rank, mpi->first_tag, &done[1]);
  for (int i = 0; i < mpistrat::kLooks && messages.num_pending() > 0; ++i) messages.poll();
  return messages.num_pending() == 0 && std::memcmp(sent, received, sizeof sent) == 0;
}
