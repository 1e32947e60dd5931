// The ring of slots: a step's slots never lie where those of the two steps before still are read.

#include "../shm/slot_ring.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <random>

#include "helpers/check.h"

namespace {

using namespace mpistrat;

struct Range {
  int64_t begin, end;
};

int64_t some_bytes(std::mt19937& random) {
  static const int64_t kBytes[] = {0, 1, 2047, 2048, 2049, 5000, 65536, kMaxChunk - 1, kMaxChunk};
  return kBytes[random() % (sizeof kBytes / sizeof *kBytes)];
}

void check_free(const SlotRing& ring, int64_t nbytes, const std::deque<Range>& in_use) {
  const int64_t end = nbytes <= kShortSlot ? kRing + kShortSlots * kShortSlot : kRing;
  CHECK(ring.at() >= 0 && ring.at() + nbytes <= end);
  for (const Range& range : in_use)
    CHECK(nbytes == 0 || ring.at() + nbytes <= range.begin || ring.at() >= range.end);
}

// Two ranks that meet in every step, but for those in which one of them is wrong.
void slots_in_use_are_not_written(unsigned seed) {
  std::mt19937 random(seed);
  SlotRing ring, others;
  std::deque<Range> in_use;
  for (int step = 0; step < 20'000; ++step) {
    const int64_t lap = random() % 2 ? kRing : kShortRing;
    const bool is_mismatch = random() % 10 == 0;
    const int64_t nbytes = some_bytes(random), wrong = is_mismatch ? some_bytes(random) : nbytes;
    ring.begin(nbytes, lap);
    others.begin(wrong, is_mismatch ? kRing : lap);
    check_free(ring, nbytes, in_use);
    check_free(others, wrong, in_use);
    if (is_mismatch) continue;
    CHECK(others.at() == ring.at());
    in_use.push_back({ring.at(), ring.at() + nbytes});
    if (in_use.size() > 2) in_use.pop_front();
    ring.end();
    others.end();
  }
}

// All of a lap is used before a slot is used again.
void slots_go_around(int64_t lap) {
  SlotRing ring;
  int64_t most = 0;
  for (int step = 0; step < 1000; ++step) {
    ring.begin(10'000, lap);
    ring.end();
    most = std::max(most, ring.at());
  }
  CHECK(most > lap - kMaxChunk - 11'000 && most <= lap - kMaxChunk);
}

}  // namespace

int main() {
  for (unsigned seed : {1, 2, 3}) slots_in_use_are_not_written(seed);
  for (int64_t lap : {kRing, kShortRing}) slots_go_around(lap);
}
