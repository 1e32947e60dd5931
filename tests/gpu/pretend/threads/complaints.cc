#include "threads/complaints.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>

#include "threads/block.h"
#include "threads/lanes.h"

namespace pretend {
namespace {

constexpr int kMostLines = 16;

const char* place(const Thread& thread) {
  switch (thread.state) {
    case State::kFresh:
      return "not started";
    case State::kAtBlockBarrier:
      return "at __syncthreads";
    case State::kAtLaneBarrier:
      return "at a barrier, shuffle or vote of lanes";
    case State::kDone:
      return "ended";
    default:
      return "running";
  }
}

bool alike(const Thread& a, const Thread& b) {
  return a.state == b.state && a.mask == b.mask && a.site.line == b.site.line &&
         same_text(a.site.file ? a.site.file : "", b.site.file ? b.site.file : "");
}

void print(const Thread& first, const Thread& last) {
  const bool waits = first.state == State::kAtBlockBarrier || first.state == State::kAtLaneBarrier;
  std::fprintf(stderr, "  thread%s %d", first.index == last.index ? "" : "s", first.index);
  if (first.index != last.index) std::fprintf(stderr, " to %d", last.index);
  std::fprintf(stderr, ": %s", place(first));
  if (waits) std::fprintf(stderr, ", %s:%d", first.site.file, first.site.line);
  if (first.state == State::kAtLaneBarrier && first.mask)
    std::fprintf(stderr, ", mask 0x%llx", static_cast<unsigned long long>(first.mask));
  std::fputc('\n', stderr);
}

// One line for each run of threads that are at one place.
void print(const std::vector<Thread>& threads) {
  int lines = 0;
  for (size_t i = 0; i < threads.size();) {
    size_t last = i;
    while (last + 1 < threads.size() && alike(threads[last + 1], threads[i])) ++last;
    if (++lines > kMostLines) {
      std::fprintf(stderr, "  and %zu threads more\n", threads.size() - i);
      return;
    }
    print(threads[i], threads[last]);
    i = last + 1;
  }
}

}  // namespace

void complain(const char* format, ...) {
  std::va_list arguments;
  va_start(arguments, format);
  std::fputs("pretended GPU: ", stderr);
  std::vfprintf(stderr, format, arguments);
  va_end(arguments);
  std::fputc('\n', stderr);
  std::abort();
}

void complain_of(const Block& of, const char* what) {
  const Here& at = of.threads()[0].here;
  std::fprintf(stderr, "pretended GPU: block (%u, %u, %u): %s\n", at.block.x, at.block.y,
               at.block.z, what);
  if (const Thread* thread = of.running_or_none())
    std::fprintf(stderr, "  said of thread %d, %s:%d, mask 0x%llx\n", thread->index,
                 thread->site.file, thread->site.line,
                 static_cast<unsigned long long>(thread->mask));
  print(of.threads());
  std::abort();
}

}  // namespace pretend
