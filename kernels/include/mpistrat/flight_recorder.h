#ifndef MPISTRAT_FLIGHT_RECORDER_H_
#define MPISTRAT_FLIGHT_RECORDER_H_

// The flight recorder: the last calls of a communicator, in a ring of fixed size.
//
// One thread at a time writes: begin, then end, then the next begin. Any thread may read at any
// time, without holding the writer up. Nothing allocates but open. Texts (the op's name, ...) are
// numbers here; whoever opens the ring keeps the texts that they stand for.

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum MpistratRecordState { MPISTRAT_UNDER_WAY = 0, MPISTRAT_SUCCEEDED = 1, MPISTRAT_FAILED = 2 };

typedef struct {
  int64_t number;    // of the record, from 0; filled in by begin
  int64_t sequence;  // of the call
  int64_t begin_ns;  // on the monotonic clock; filled in by begin
  int64_t end_ns;    // the same; filled in by end, 0 until then
  int64_t nbytes;
  int32_t op, reduction, dtype, label;  // numbers of texts
  int32_t state;                        // MpistratRecordState
} MpistratRecord;

typedef struct MpistratRecords MpistratRecords;

// Return a ring of at least `capacity` records, or NULL if there is no memory left for it.
MpistratRecords* mpistrat_records_open(int64_t capacity);
void mpistrat_records_close(MpistratRecords* records);

// Record that a call begins; one that is still under way has succeeded.
void mpistrat_record_begin(MpistratRecords* records, const MpistratRecord* call);

// Record that the call under way, if there is one, has ended in `state`.
// Returns 1 if more than half of the ring waits for its reader (see mpistrat_records_keep), else 0.
int mpistrat_record_end(MpistratRecords* records, int state);

// How many records the ring holds.
int64_t mpistrat_records_capacity(const MpistratRecords* records);

// How many calls have begun.
int64_t mpistrat_records_count(const MpistratRecords* records);

// Read records in order, from number `first` on, or from the oldest that is left. Returns how many
// were read, at most `most`; records that were overwritten meanwhile are left out.
int64_t mpistrat_records_read(const MpistratRecords* records, int64_t first, MpistratRecord* found,
                              int64_t most);

// Say that a reader needs all records from number `from` on; a negative one: none.
void mpistrat_records_keep(MpistratRecords* records, int64_t from);

#ifdef __cplusplus
}
#endif

#endif  // MPISTRAT_FLIGHT_RECORDER_H_
