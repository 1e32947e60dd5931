// The memory that the ranks of a communicator share: who is there, what they call, and their data.
//
// It is a memfd of the process that made the unique id; the other ranks open it through
// /proc/<pid>/fd. It never has a name, so a crash leaves nothing behind.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "nccl/interface/nccl.h"
#include "nccl/process.h"

namespace pretend {

constexpr int kMostRanks = 64;
constexpr size_t kSlotBytes = 1 << 20;     // a rank's part of one step of a collective
constexpr size_t kMessageBytes = 1 << 18;  // one step of a message between two ranks

enum class Presence : uint32_t { kAbsent, kTaken, kJoined, kFinalized, kAborted, kFailed };

// The arguments of a collective that have to be the same on all ranks.
struct CallLine {
  uint32_t kind = 0, dtype = 0, op = 0, root = 0;
  uint64_t count = 0;
  bool operator==(const CallLine&) const = default;
};

// What a rank gave to ncclCommSplit; `id` is written by the first rank of each new communicator.
struct SplitLine {
  int32_t color, key;
  ncclUniqueId id;
};

// Whom a rank's work on streams waits for, as bits, while that lasts: see deadlock.h.
struct Waiting {
  std::atomic<uint64_t> changes;
  std::atomic<uint64_t> meets;            // to come to a meeting
  std::atomic<uint64_t> sends, receives;  // to take a message, to send one
};

// Written by one rank, read by all.
struct alignas(64) Seat {
  std::atomic<Presence> presence;
  std::atomic<uint64_t> host_meetings;    // that this rank has come to, in host calls
  std::atomic<uint64_t> stream_meetings;  // in work on streams
  Process process;
  char gpu[64];  // the physical device
  Waiting waiting;
  CallLine call;        // published by the stream meeting that follows
  SplitLine splits[2];  // of even and odd calls: one is read while the next is written
};

// Messages from one rank to another. The sender owns the channel while sent == taken.
struct alignas(64) Channel {
  std::atomic<uint64_t> sent, taken;
  uint64_t count, nbytes;  // of the whole message, and of this step
  uint32_t dtype;
};

// A mistake that ends the communicator on all ranks; the first rank that finds it writes it.
struct Failure {
  std::atomic<uint32_t> state;  // 0, 1 while it is written, 2
  ncclResult_t result;
  char message[1000];
};

struct SegmentHeader {
  uint64_t token;  // that of the unique id
  std::atomic<int> ranks;
  Failure failure;
  Seat seats[kMostRanks];
};

class Segment {
 public:
  static ncclResult_t make_id(ncclUniqueId* id);
  // Map the memory of `id` for a communicator of so many ranks.
  ncclResult_t open(const ncclUniqueId& id, int ranks);
  // The process that made the id needs its descriptor no more: all ranks have mapped the memory.
  static void release_id(const ncclUniqueId& id);

  SegmentHeader& header() const { return *static_cast<SegmentHeader*>(base_); }
  Seat& seat(int rank) const { return header().seats[rank]; }
  Channel& channel(int from, int to) const;
  char* message(int from, int to) const;
  char* slot(int rank) const;    // what a rank contributes
  char* result(int rank) const;  // where a rank reduces before it copies to its device
  const Process& maker() const { return maker_; }

  Segment() = default;
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;
  ~Segment();

 private:
  void* base_ = nullptr;
  int ranks_ = 0;
  size_t nbytes_ = 0;
  Process maker_;
};

}  // namespace pretend
