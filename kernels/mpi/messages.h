#ifndef MPISTRAT_MPI_MESSAGES_H_
#define MPISTRAT_MPI_MESSAGES_H_

// Send and receive by the MPI library that the process has loaded, without its header.
//
// Nothing of MPI is known when this is compiled: not its header, and so not what its handles are.
// They are ints in MPICH and its descendants, and pointers in Open MPI and in the standard ABI.
// Both are passed as intptr_t, which holds for the two platforms that use this (the adapter in
// Python refuses others):
//
// - x86-64 (System V) and AArch64 (AAPCS64) pass an int and a pointer in a register of 64 bits
//   each; of an int's, the callee uses the lower 32 bits, and what is above them does not count.
//   What does not fit in registers lies in slots of 8 bytes, least significant bytes first.
// - A request is written by MPI through a pointer. It is kept in as many bytes as the library's
//   requests have, side by side, since MPI_Testsome takes an array of them.
// - Statuses are never looked at; they get as many bytes as the library's have.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "mpistrat/wire.h"

namespace mpistrat {

class Messages {
 public:
  explicit Messages(const MpistratMpi& mpi) : mpi_(mpi) {}

  // Start a message of 1 to 2^31 - 1 bytes. `*done` becomes 1 once it is complete; until then
  // `done` and the data must stay.
  void send(const void* data, int64_t nbytes, int to, int tag, uint8_t* done);
  void receive(void* data, int64_t nbytes, int from, int tag, uint8_t* done);

  // Let MPI make progress.
  void poll();

  int num_pending() const { return static_cast<int>(done_.size()); }
  int64_t num_completed() const { return num_completed_; }

  // What MPI returned when it first refused something, or 0.
  int error() const { return error_; }

 private:
  uint8_t* request(size_t index) { return requests_.data() + index * request_bytes(); }
  size_t request_bytes() const { return static_cast<size_t>(mpi_.request_bytes); }
  uint8_t* add(uint8_t* done);
  void check(int code);
  void drop_completed();

  MpistratMpi mpi_;
  // By message, in the same order.
  std::vector<uint8_t> requests_;
  std::vector<uint8_t*> done_;
  // What MPI_Testsome fills in.
  std::vector<int> indices_;
  std::vector<uint8_t> statuses_;
  int64_t num_completed_ = 0;
  int error_ = 0;
};

}  // namespace mpistrat

#endif  // MPISTRAT_MPI_MESSAGES_H_
