// What the user's process asks of a device's process: one message, one answer, over a socket.
#pragma once

#include <cstdint>

namespace pretend {

enum class Task : uint32_t {
  kConnect,   // serve one more socket (the file), in a thread of its own
  kMap,       // map a file: address, nbytes, value: 1 to fill it with rubbish
  kUnmap,     // address, nbytes
  kCopy,      // address (to), source, nbytes
  kFill,      // address, nbytes, value
  kLoad,      // load a module (the file); answers its number
  kUnload,    // source: the module
  kFunction,  // source: the module, name; answers the entry and the sizes of the arguments
  kShare,     // source: the module, whose variables move to the file; answers where they were
              // (value) and the bytes (sizes[0])
  kVariable,  // source: the module, name; answers where it is (value) and the bytes (sizes[0])
  kLaunch,    // source: the entry, grid, block, nbytes: shared memory, arguments
};

constexpr int kMaxArguments = 64;
constexpr int kMaxArgumentBytes = 8192;
constexpr int kMaxName = 1024;
constexpr unsigned char kRubbish = 0xA5;  // in memory that nobody has written to

struct Request {
  Task task;
  uint32_t exclusive;  // 1 + the physical device whose kernels must not overlap; 0: they may
  uint64_t address, source, nbytes, value;
  uint32_t grid[3], block[3];
  uint32_t num_arguments;
  uint32_t offsets[kMaxArguments];  // of each argument in `data`, multiples of 16
  uint32_t data_bytes;              // how much of `data` is sent
  union {
    char name[kMaxName];
    alignas(16) char data[kMaxArgumentBytes];
  };
};

struct Answer {
  int32_t status;  // 0, or an error of errno.h
  uint32_t num_sizes;
  uint64_t value;
  uint64_t sizes[kMaxArguments];
};

}  // namespace pretend
