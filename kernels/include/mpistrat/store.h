#ifndef MPISTRAT_STORE_H_
#define MPISTRAT_STORE_H_

// A table that one process changes while others read it, in memory that they share.
//
// There are several buffers, one of which is the current one; a change is made either in place, to
// some rows of the current buffer, or in another buffer, which becomes the current one. Readers
// never write but to take a lease, and nobody waits for a reader:
//
// - A copy is made without a lock. Every block of rows has a mark in each buffer that tells which
//   change last wrote to it; who finds one that is later than when the copying began copies again.
// - A view needs no copy: a lease on the current buffer keeps the owner from writing to it. It has
//   room for so many that it never waits for one to be given back.
//
// Words are copied by atomic loads and stores (acquire, release), which are plain moves on x86 and
// as fast as memcpy where memory is the bound; so no thread sanitizer, nor the language, sees a
// race. Vectors would be undefined behaviour that happens to work.
//
// Of the owner's functions one may run at a time; those of readers may run at any time, in as many
// threads and processes as there are.

#include <stddef.h>
#include <stdint.h>

#include "mpistrat/rows.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
  MPISTRAT_STORE_MAX_BUFFERS = 8,
  MPISTRAT_STORE_LEASES = 128  // at once
};

enum MpistratStoreResult {
  MPISTRAT_STORE_BUSY = -4,  // it was changed all the time; ask the owner
  MPISTRAT_STORE_FULL = -5   // too many leases, or of too many versions: make a copy
};

// The shape of the table and the number of its buffers (3 to MPISTRAT_STORE_MAX_BUFFERS). Views of
// `num_buffers` - 2 versions can be held at once.
typedef struct MpistratStoreShape {
  int64_t num_rows;
  int64_t row_bytes;
  int32_t num_buffers;
} MpistratStoreShape;

// A process's use of a store; what is shared is the memory alone.
typedef struct MpistratStore MpistratStore;

// Bytes that a store takes; and which of them are a buffer's data, or with -1 what comes before
// all of them. The data of a buffer that was never written need not be there.
size_t mpistrat_store_bytes(const MpistratStoreShape* shape);
void mpistrat_store_range(const MpistratStoreShape* shape, int buffer, size_t* start,
                          size_t* nbytes);

// Use a store in `memory`, aligned to a page. `is_new`: of zeros; by the owner, before anybody
// else. Returns null if there is no memory, or no store of this shape.
MpistratStore* mpistrat_store_open(void* memory, const MpistratStoreShape* shape, int is_new);
void mpistrat_store_close(MpistratStore* store);

// How many changes were made, and the current buffer.
uint64_t mpistrat_store_version(const MpistratStore* store);
int mpistrat_store_current(const MpistratStore* store);
void* mpistrat_store_data(const MpistratStore* store, int buffer);

// ------------------------------------------------------------------------------------- readers

// Copy the table, or `count` rows of it, to `out`. With `is_whole` all of it is of one version;
// else each row is, or each block of rows, which succeeds under any load. Returns
// MPISTRAT_ROWS_DONE, or the position of the first index that is no row, or MPISTRAT_STORE_BUSY if
// it had no success in two attempts and `budget_ns`.
int64_t mpistrat_store_read(const MpistratStore* store, void* out, int is_whole,
                            uint64_t budget_ns);
int64_t mpistrat_store_take(const MpistratStore* store, const int64_t* rows, int64_t count,
                            void* out, int is_whole, uint64_t budget_ns);

// Copy `count` rows of a table whose parts are in `num_stores` stores of rows of the same size;
// `starts` has the first row of each, and after them the number of all. What comes from one store
// is of one version. Returns as mpistrat_store_take; `budget_ns` is for all, or
// MPISTRAT_ROWS_NO_MEMORY.
int64_t mpistrat_store_gather(const MpistratStore* const* stores, const int64_t* starts,
                              int num_stores, const int64_t* rows, int64_t count, void* out,
                              uint64_t budget_ns);

// Lease the current version. `tag` (1 to 2^56 - 1) tells the owner who holds the lease. Returns the
// lease, or MPISTRAT_STORE_BUSY, or MPISTRAT_STORE_FULL. `buffer` is where the data are, and
// `version` which they are, until the lease is given back.
int mpistrat_store_lease(const MpistratStore* store, uint64_t tag, uint64_t budget_ns, int* buffer,
                         uint64_t* version);
void mpistrat_store_release(const MpistratStore* store, int lease);

// -------------------------------------------------------------------------------------- owner

// The tags of all leases into `tags`, 0 where there is none; and of those of dead processes, give
// back what they held.
void mpistrat_store_tags(const MpistratStore* store, uint64_t tags[MPISTRAT_STORE_LEASES]);
void mpistrat_store_drop(const MpistratStore* store, int lease, uint64_t tag);

// Bits of the buffers that are leased. One besides the current one is always free, or will be as
// soon as a reader that came late has seen that the buffer it leased is not the current one.
uint64_t mpistrat_store_leased(const MpistratStore* store);

// A change of some rows in place: begin, any number of puts and adds, finish; or cancel, if nothing
// was written. Begin returns 0 and does nothing if there is a lease on the current buffer.
int mpistrat_store_begin(MpistratStore* store);
void mpistrat_store_finish(MpistratStore* store);
void mpistrat_store_cancel(MpistratStore* store);

// A change in another buffer, not leased, which any memory writes may fill between begin and end;
// then it is the current one. One that was given up has no end, and is never current. The current
// buffer may be changed like this, too, after mpistrat_store_begin; its readers then have to wait.
void mpistrat_store_begin_in(MpistratStore* store, int buffer);
void mpistrat_store_finish_in(MpistratStore* store, int buffer);

// Writes to a buffer within a change. Returns as in mpistrat/rows.h.
int64_t mpistrat_store_put(MpistratStore* store, int buffer, const int64_t* rows, int64_t count,
                           const void* values);
int64_t mpistrat_store_add(MpistratStore* store, int buffer, const int64_t* rows, int64_t count,
                           const void* values, int dtype);

// Writes to all of another buffer within a change: `values`, or with null the current buffer's
// data; or the sum of those and `values`.
void mpistrat_store_fill(MpistratStore* store, int buffer, const void* values);
int64_t mpistrat_store_sum(MpistratStore* store, int buffer, const void* values, int dtype);

// ------------------------------------------------------------------------------------ handing over

// A word of memory that two processes share, aligned: all that the one who sets it has read and
// written before is done for the one who finds its value there.
void mpistrat_word_set(void* word, uint64_t value);
uint64_t mpistrat_word_get(const void* word);

#ifdef __cplusplus
}
#endif

#endif  // MPISTRAT_STORE_H_
