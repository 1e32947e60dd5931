#ifndef MPISTRAT_TESTS_HELPERS_FAKE_MPI_H_
#define MPISTRAT_TESTS_HELPERS_FAKE_MPI_H_

// An MPI between threads, as far as the wire needs it: messages in queues, matched by sender,
// receiver and tag in the order in which they were started. Requests are ints or pointers, as a
// real library's would be; messages arrive late at random, sends can be made to wait for their
// receivers, as long ones do, and a message can be made to fail.

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstring>
#include <list>
#include <mutex>
#include <random>
#include <utility>
#include <vector>

#include "check.h"
#include "mpistrat/wire.h"

namespace fake {

constexpr intptr_t kByte = 0x4c00010d;
constexpr int kTruncated = 15, kBroken = 16;
constexpr int kFirstTag = 16;  // that of lines

struct Message {
  int from, to, tag;
  std::vector<char> data;
  size_t request;  // of who waits for its receiver, or 0
};

struct Request {
  bool is_used = false, is_receive = false, is_unmatched = false;
  int from = 0, to = 0, tag = 0;
  void* data = nullptr;
  size_t nbytes = 0;
};

// All that the ranks share; a communicator's handle is the rank that uses it.
struct World {
  std::mutex mutex;
  std::list<Message> messages;
  std::vector<Request> requests{1};  // number 0 is none
  std::mt19937 random{7};
  int late_percent = 0;
  bool is_synchronous = false;
  std::atomic<bool> is_broken{false};
  // Messages but for those of lines: how many there were, and what their length may be.
  std::atomic<int> num_sent{0}, most_bytes{INT_MAX};
  std::atomic<int> most_pending{INT_MAX};  // of all messages of a rank
};

inline World& world() {
  static World all;
  return all;
}

// With the world locked; returns the request's place.
inline size_t start(World& all, const Request& request, void* number) {
  size_t index = 1;
  while (index < all.requests.size() && all.requests[index].is_used) ++index;
  if (index == all.requests.size()) all.requests.emplace_back();
  all.requests[index] = request;
  const int as_int = static_cast<int>(index);
  std::memcpy(number, &as_int, sizeof as_int);
  return index;
}

inline bool is_possible(int count, int tag) {
  return tag == kFirstTag || count <= world().most_bytes;
}

inline int isend(const void* data, int count, intptr_t type, int to, int tag, intptr_t comm,
                 void* request) {
  CHECK(type == kByte && count > 0 && is_possible(count, tag));
  World& all = world();
  if (all.is_broken) return kBroken;
  const std::lock_guard<std::mutex> lock(all.mutex);
  const char* bytes = static_cast<const char*>(data);
  const int from = static_cast<int>(comm);
  const Request made{true, false, all.is_synchronous, from, to, tag, nullptr, 0};
  const size_t index = start(all, made, request);
  all.num_sent += tag != kFirstTag;
  all.messages.push_back({from, to, tag, {bytes, bytes + count}, all.is_synchronous ? index : 0});
  return 0;
}

inline int irecv(void* data, int count, intptr_t type, int from, int tag, intptr_t comm,
                 void* request) {
  CHECK(type == kByte && count > 0 && is_possible(count, tag));
  World& all = world();
  if (all.is_broken) return kBroken;
  const std::lock_guard<std::mutex> lock(all.mutex);
  const int to = static_cast<int>(comm);
  start(all, {true, true, false, from, to, tag, data, static_cast<size_t>(count)}, request);
  return 0;
}

// Complete a receive if its message is there. Returns MPI's code, or -1 if it is not.
inline int match(World& all, const Request& wanted) {
  const auto found =
      std::find_if(all.messages.begin(), all.messages.end(), [&](const Message& message) {
        return message.from == wanted.from && message.to == wanted.to && message.tag == wanted.tag;
      });
  if (found == all.messages.end()) return -1;
  if (found->data.size() > wanted.nbytes) return kTruncated;
  std::memcpy(wanted.data, found->data.data(), found->data.size());
  all.requests[found->request].is_unmatched = false;
  all.messages.erase(found);
  return 0;
}

inline int testsome(int count, void* requests, int* num_done, int* done, void*) {
  World& all = world();
  CHECK(count <= all.most_pending);
  if (all.is_broken) return kBroken;
  const std::lock_guard<std::mutex> lock(all.mutex);
  int* numbers = static_cast<int*>(requests);
  std::vector<std::pair<int, int>> held;  // receives that those posted later may not overtake
  *num_done = 0;
  for (int i = 0; i < count; ++i) {
    Request& request = all.requests[static_cast<size_t>(numbers[i])];
    const std::pair<int, int> key{request.from, request.tag};
    const bool is_late = static_cast<int>(all.random() % 100) < all.late_percent ||
                         std::find(held.begin(), held.end(), key) != held.end();
    const int code = is_late              ? -1
                     : request.is_receive ? match(all, request)
                                          : -request.is_unmatched;
    if (code > 0) return code;
    if (code < 0) {
      if (request.is_receive) held.push_back(key);
      continue;
    }
    request.is_used = false;
    numbers[i] = 0;
    done[(*num_done)++] = i;
  }
  return 0;
}

inline MpistratMpi mpi(int rank) {
  return {isend, irecv, testsome, kByte, rank, sizeof(int), 20, kFirstTag};
}

}  // namespace fake

#endif  // MPISTRAT_TESTS_HELPERS_FAKE_MPI_H_
