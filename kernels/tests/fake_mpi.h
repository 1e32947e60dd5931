#ifndef MPISTRAT_TESTS_FAKE_MPI_H_
#define MPISTRAT_TESTS_FAKE_MPI_H_

// What the wire needs of MPI, between threads: messages in queues, matched by sender, receiver and
// tag in the order in which they were started. Requests are ints or pointers, as a real library's
// would be; messages arrive late at random, and one can be made to fail.

#include <algorithm>
#include <atomic>
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

struct Message {
  int from, to, tag;
  std::vector<char> data;
};

struct Request {
  bool is_used = false, is_receive = false;
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
  std::atomic<bool> is_broken{false};
};

inline World& world() {
  static World all;
  return all;
}

inline int start(const Request& request, void* number) {
  World& all = world();
  if (all.is_broken) return kBroken;
  const std::lock_guard<std::mutex> lock(all.mutex);
  size_t index = 1;
  while (index < all.requests.size() && all.requests[index].is_used) ++index;
  if (index == all.requests.size()) all.requests.emplace_back();
  all.requests[index] = request;
  const int as_int = static_cast<int>(index);
  std::memcpy(number, &as_int, sizeof as_int);
  return 0;
}

inline int isend(const void* data, int count, intptr_t type, int to, int tag, intptr_t comm,
                 void* request) {
  CHECK(type == kByte && count > 0);
  {
    const std::lock_guard<std::mutex> lock(world().mutex);
    const char* bytes = static_cast<const char*>(data);
    world().messages.push_back({static_cast<int>(comm), to, tag, {bytes, bytes + count}});
  }
  return start({true, false, static_cast<int>(comm), to, tag, nullptr, 0}, request);
}

inline int irecv(void* data, int count, intptr_t type, int from, int tag, intptr_t comm,
                 void* request) {
  CHECK(type == kByte && count > 0);
  return start({true, true, from, static_cast<int>(comm), tag, data, static_cast<size_t>(count)},
               request);
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
  all.messages.erase(found);
  return 0;
}

inline int testsome(int count, void* requests, int* num_done, int* done, void*) {
  World& all = world();
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
    const int code = is_late ? -1 : request.is_receive ? match(all, request) : 0;
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
  return {isend, irecv, testsome, kByte, rank, sizeof(int), 20, 16};
}

}  // namespace fake

#endif  // MPISTRAT_TESTS_FAKE_MPI_H_
