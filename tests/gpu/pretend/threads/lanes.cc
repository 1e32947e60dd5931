// What the lanes of a wavefront do together: barriers, shuffles, votes.
#include "threads/block.h"
#include "threads/complaints.h"
#include "threads/fibers/sanitizers.h"

namespace pretend {
namespace {

constexpr unsigned char kOfAbsentLane = 0xA5;

// The tag of the barrier that the running thread is at. Of two in turn, as for a block's barriers.
char* tag_of(Mask mask) {
  Wavefront& wavefront = block->wavefront();
  if (!mask) return &wavefront.unmasked_tags[wavefront.unmasked_count & 1];
  int leader = 0;
  while (!(mask >> leader & 1)) ++leader;
  const size_t index = block->running().index / kLanes * kLanes + leader;
  const unsigned count = index < block->threads().size() ? block->threads()[index].met_count : 0;
  return &wavefront.tags[leader][count & 1];
}

void put(const void* from, void* to, int bytes) {
  // By hand: a call of memcpy is seen by the race detector, in this file as anywhere.
  const volatile auto* source = static_cast<const volatile unsigned char*>(from);
  auto* target = static_cast<unsigned char*>(to);
  for (int i = 0; i < bytes; ++i) target[i] = source[i];
}

}  // namespace

int lane() { return block->running().index % kLanes; }

void sync_lanes(Mask mask, Site site) {
  Thread& thread = block->running();
  thread.site = site;
  thread.mask = mask;
  if (mask && !(mask >> lane() & 1))
    complain_of(*block, "a thread is not in the mask of its own shuffle, vote or __syncwarp");
  char* tag = tag_of(mask);
  release(tag);
  block->give_way(State::kAtLaneBarrier);
  acquire(tag);
}

void exchange(Mask mask, const void* mine, void* theirs, int bytes, int from, Site site) {
  Wavefront& wavefront = block->wavefront();
  put(mine, wavefront.slots[lane()].bytes, bytes);
  sync_lanes(mask, site);
  const bool there = from >= 0 && from < kLanes && block->running().met >> from & 1;
  auto* result = static_cast<unsigned char*>(theirs);
  for (int i = 0; i < bytes; ++i)
    result[i] = there ? wavefront.slots[from].bytes[i] : kOfAbsentLane;
  sync_lanes(mask, site);  // nobody gives its next value while others still read
}

Mask ballot(Mask mask, bool mine, Site site) {
  Wavefront& wavefront = block->wavefront();
  wavefront.slots[lane()].bytes[0] = mine;
  sync_lanes(mask, site);
  const Mask met = block->running().met;
  Mask yes = 0;
  for (int i = 0; i < kLanes; ++i)
    if (met >> i & 1 && wavefront.slots[i].bytes[0]) yes |= Mask{1} << i;
  sync_lanes(mask, site);
  return yes;
}

Mask lanes_here(Mask mask, Site site) {
  sync_lanes(mask, site);
  return block->running().met;
}

}  // namespace pretend
