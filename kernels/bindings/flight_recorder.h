#ifndef MPISTRAT_BINDINGS_FLIGHT_RECORDER_H_
#define MPISTRAT_BINDINGS_FLIGHT_RECORDER_H_

// The Python class Records, a ring of records.

#include <nanobind/nanobind.h>

#include "mpistrat/flight_recorder.h"

namespace mpistrat {

// A ring of records as Python holds it; see mpistrat/flight_recorder.h.
struct RecordsHandle {
  MpistratRecords* records;

  explicit RecordsHandle(int64_t capacity);
  ~RecordsHandle() { mpistrat_records_close(records); }
  RecordsHandle(const RecordsHandle&) = delete;
};

void bind_records(nanobind::module_& module);

}  // namespace mpistrat

#endif  // MPISTRAT_BINDINGS_FLIGHT_RECORDER_H_
