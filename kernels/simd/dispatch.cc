// Choose the instruction set: the best that the processor has, unless a test selects another.

#include <atomic>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "kernel_table.h"
#include "mpistrat/simd.h"

namespace mpistrat {
namespace {

#if defined(__x86_64__)

// Best first.
const KernelTable* const kTables[] = {&avx512::kTable, &avx2::kTable, &baseline::kTable};

// Every processor with AVX2 converts float16, but an emulator may not. Not all compilers know the
// feature by its name.
bool has_f16c() {
  unsigned eax, ebx, ecx, edx;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

// The compiler's test also asks whether the operating system saves the wide registers.
bool is_supported(const KernelTable* table) {
  __builtin_cpu_init();  // for callers that come before the constructors which would do it
  if (table == &baseline::kTable) return true;
  if (!__builtin_cpu_supports("avx2") || !has_f16c()) return false;
  return table == &avx2::kTable ||
         (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"));
}

#else

const KernelTable* const kTables[] = {&baseline::kTable};

bool is_supported(const KernelTable*) { return true; }

#endif

const KernelTable* best() {
  for (const KernelTable* table : kTables) {
    if (is_supported(table)) return table;
  }
  return &baseline::kTable;
}

std::atomic<const KernelTable*>& selected() {
  static std::atomic<const KernelTable*> table{best()};
  return table;
}

}  // namespace

// Tables are constants: nothing is published through the pointer, so relaxed order is enough.
const KernelTable& kernel_table() { return *selected().load(std::memory_order_relaxed); }

}  // namespace mpistrat

extern "C" const char* mpistrat_simd_name(void) { return mpistrat::kernel_table().name; }

extern "C" int mpistrat_simd_select(const char* name) {
  for (const mpistrat::KernelTable* table : mpistrat::kTables) {
    if (std::strcmp(name, table->name) == 0 && mpistrat::is_supported(table)) {
      mpistrat::selected().store(table, std::memory_order_relaxed);
      return 1;
    }
  }
  return 0;
}
