#include "threads/shared_memory.h"

#include <link.h>

#include <cstdint>

extern "C" void* __tls_get_addr(
    void* index);  // glibc's: makes the memory where it is not there yet

namespace pretend {
namespace {

struct Image {
  KernelEntry entry;
  size_t module, bytes;
};

bool holds(const dl_phdr_info& object, uintptr_t address) {
  for (int i = 0; i < object.dlpi_phnum; ++i) {
    const ElfW(Phdr) & part = object.dlpi_phdr[i];
    const uintptr_t begin = object.dlpi_addr + part.p_vaddr;
    if (part.p_type == PT_LOAD && address >= begin && address < begin + part.p_memsz) return true;
  }
  return false;
}

// Of the object that holds the kernel. The program itself and this library hold other thread-local
// variables, so kernels that are linked into one of them go without.
int find(dl_phdr_info* object, size_t, void* result) {
  auto* image = static_cast<Image*>(result);
  if (!holds(*object, reinterpret_cast<uintptr_t>(image->entry))) return 0;
  if (holds(*object, reinterpret_cast<uintptr_t>(&find))) return 1;
  for (int i = 0; i < object->dlpi_phnum; ++i)
    if (object->dlpi_phdr[i].p_type == PT_TLS) {
      image->module = object->dlpi_tls_modid;
      image->bytes = object->dlpi_phdr[i].p_memsz;
    }
  return 1;
}

}  // namespace

void fill_with_rubbish(void* at, size_t bytes) {
  auto* to = static_cast<volatile uint64_t*>(at);  // not memset, which a sanitizer would watch
  for (size_t i = 0; i < bytes / 8; ++i) to[i] = 0xA5A5A5A5A5A5A5A5;
  auto* rest = static_cast<volatile unsigned char*>(at);
  for (size_t i = bytes / 8 * 8; i < bytes; ++i) rest[i] = 0xA5;
}

StaticShared::StaticShared(KernelEntry entry) {
  // Looked up for each launch: an image may have been unloaded and another one loaded there.
  Image image{entry, 0, 0};
  dl_iterate_phdr(&find, &image);
  module_ = image.module;
  bytes_ = image.bytes;
}

void StaticShared::fill() const {
  if (!module_) return;
  size_t index[2] = {module_, 0};
  fill_with_rubbish(__tls_get_addr(index), bytes_);
}

}  // namespace pretend
