// Global variables of modules, which the host copies to and from.
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device/tasks.h"

namespace pretend {
namespace {

struct Range {
  uintptr_t base;  // where the library is loaded
  uintptr_t begin = 0, end = 0;
};

// Find the pages of a library that can be written: it has one such segment.
int find_segment(dl_phdr_info* info, size_t, void* data) {
  Range* const range = static_cast<Range*>(data);
  if (info->dlpi_addr != range->base) return 0;
  const auto page = static_cast<uintptr_t>(getpagesize());
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || !(segment.p_flags & PF_W)) continue;
    const uintptr_t begin = range->base + segment.p_vaddr;
    range->begin = begin / page * page;
    range->end = (begin + segment.p_memsz + page - 1) / page * page;
  }
  return 1;
}

// Put a file with the same content in the place of the pages.
int move_to(int file, const Range& range) {
  void* const at = reinterpret_cast<void*>(range.begin);
  const size_t nbytes = range.end - range.begin;
  if (ftruncate(file, static_cast<off_t>(nbytes))) return errno;
  void* const copy = mmap(nullptr, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (copy == MAP_FAILED) return errno;
  memcpy(copy, at, nbytes);
  munmap(copy, nbytes);
  void* const moved = mmap(at, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0);
  return moved == at ? 0 : errno;
}

}  // namespace

void share_variables(const Request& request, int file, Answer* answer) {
  link_map* library = nullptr;
  if (dlinfo(reinterpret_cast<void*>(request.source), RTLD_DI_LINKMAP, &library)) {
    answer->status = ENOENT;
    return;
  }
  Range range = {library->l_addr};
  dl_iterate_phdr(find_segment, &range);
  answer->value = range.begin;
  answer->sizes[0] = range.end - range.begin;
  answer->status = range.begin ? move_to(file, range) : ENOENT;
}

void find_variable(const Request& request, Answer* answer) {
  void* const at = dlsym(reinterpret_cast<void*>(request.source), request.name);
  Dl_info info;
  const ElfW(Sym)* symbol = nullptr;
  void** const out = reinterpret_cast<void**>(const_cast<ElfW(Sym)**>(&symbol));
  if (!at || !dladdr1(at, &info, out, RTLD_DL_SYMENT) || !symbol || info.dli_saddr != at) {
    answer->status = ENOENT;
    return;
  }
  answer->value = reinterpret_cast<uint64_t>(at);
  answer->sizes[0] = symbol->st_size;
}

}  // namespace pretend
