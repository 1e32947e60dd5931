#ifndef MPISTRAT_SHM_CACHE_SIZE_H_
#define MPISTRAT_SHM_CACHE_SIZE_H_

// The size of the last-level caches, as the system reports it.

#include <cstdint>
#include <string>

namespace mpistrat {

// Bytes of all last-level caches that `num_cpus` processors have between them, if they share each
// as processor 0 shares its own, which `folder` describes; 0 if it does not. What cpuid says is no
// use: under a hypervisor it counts the caches of the whole machine.
int64_t last_level_cache_bytes(int num_cpus,
                               const std::string& folder = "/sys/devices/system/cpu/cpu0/cache");

}  // namespace mpistrat

#endif  // MPISTRAT_SHM_CACHE_SIZE_H_
