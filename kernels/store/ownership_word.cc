// A shared word that hands memory from one process to another (release and acquire).

#include "mpistrat/store.h"

void mpistrat_word_set(void* word, uint64_t value) {
  __atomic_store_n(static_cast<uint64_t*>(word), value, __ATOMIC_RELEASE);
}

uint64_t mpistrat_word_get(const void* word) {
  return __atomic_load_n(static_cast<const uint64_t*>(word), __ATOMIC_ACQUIRE);
}
