#include "peer_memory.h"

#include <sys/uio.h>

#include <random>

namespace mpistrat {
namespace {

constexpr int kBatch = 64;  // ranges that one system call reads

bool read_process(int32_t pid, const iovec* there, int count, void* to, size_t nbytes) {
  const iovec here{to, nbytes};
  return process_vm_readv(pid, &here, 1, there, static_cast<unsigned long>(count), 0) ==
         static_cast<ssize_t>(nbytes);
}

}  // namespace

PeerMemory::PeerMemory() {
  std::random_device random;
  token_ = static_cast<uint64_t>(random()) << 32 | random();
}

bool PeerMemory::has(int32_t pid, uint64_t address, uint64_t value) {
  uint64_t found = 0;
  const iovec there{reinterpret_cast<void*>(address), sizeof found};
  return read_process(pid, &there, 1, &found, sizeof found) && found == value;
}

bool PeerMemory::can_read(int rank, Pieces* pieces) const {
  const int32_t pid = pids_[static_cast<size_t>(rank)];
  iovec ends[kBatch];
  uint8_t bytes[kBatch];
  int count = 0;
  bool can = true;
  const auto flush = [&] {
    can = can && (count == 0 || read_process(pid, ends, count, bytes, static_cast<size_t>(count)));
    count = 0;
  };
  pieces->for_each(0, pieces->nbytes(), [&](uint8_t* data, int64_t n) {
    ends[count++] = {data, 1};
    ends[count++] = {data + n - 1, 1};
    if (count == kBatch) flush();
  });
  flush();
  return can;
}

bool PeerMemory::read(int rank, Pieces* pieces, int64_t offset, int64_t nbytes, void* to) const {
  const int32_t pid = pids_[static_cast<size_t>(rank)];
  auto* at = static_cast<uint8_t*>(to);
  iovec there[kBatch];
  int count = 0;
  size_t held = 0;
  bool is_read = true;
  const auto flush = [&] {
    if (count > 0) is_read = is_read && read_process(pid, there, count, at, held);
    at += held;
    count = 0;
    held = 0;
  };
  pieces->for_each(offset, nbytes, [&](uint8_t* data, int64_t n) {
    there[count++] = {data, static_cast<size_t>(n)};
    held += static_cast<size_t>(n);
    if (count == kBatch) flush();
  });
  flush();
  return is_read;
}

}  // namespace mpistrat
