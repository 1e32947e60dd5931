#ifndef MPISTRAT_SHM_REGIONS_H_
#define MPISTRAT_SHM_REGIONS_H_

// Registered memory: regions that all ranks of a node have mapped, besides the node's own.

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace mpistrat {

// Where a buffer lies, in words that every rank understands; region -1: nowhere that they can read.
struct Address {
  int64_t region = -1;
  int64_t offset = 0;
};

class Regions {
 public:
  // See mpistrat_region_add().
  int add(void* const* bases, int size, int rank, size_t nbytes);
  void remove(int region);
  bool empty() const { return regions_.empty(); }

  // Where this rank's `nbytes` at `data` lie.
  Address find(const void* data, int64_t nbytes) const;

  // Whether this rank's `nbytes` at `data` are also another rank's.
  bool are_shared(const void* data, int64_t nbytes) const;

  // Where this process sees what `rank` calls `address`.
  uint8_t* resolve(Address address, int rank) const;

 private:
  struct Region {
    std::vector<uint8_t*> bases;
    int rank;
    int64_t nbytes;
  };
  std::map<int, Region> regions_;
  std::map<const uint8_t*, int> by_address_;  // this rank's part
  int next_ = 0;
};

}  // namespace mpistrat

#endif  // MPISTRAT_SHM_REGIONS_H_
