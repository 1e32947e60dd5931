#include "flight_recorder.h"

#include <new>
#include <vector>

namespace nb = nanobind;

namespace mpistrat {
namespace {

void begin(RecordsHandle& self, int64_t sequence, int64_t nbytes, int32_t op, int32_t reduction,
           int32_t dtype, int32_t label) {
  MpistratRecord call = {};
  call.sequence = sequence;
  call.nbytes = nbytes;
  call.op = op;
  call.reduction = reduction;
  call.dtype = dtype;
  call.label = label;
  mpistrat_record_begin(self.records, &call);
}

// Tuples in the order of MpistratRecord.
nb::list read(const RecordsHandle& self, int64_t first) {
  const int64_t most = mpistrat_records_capacity(self.records);
  std::vector<MpistratRecord> found(static_cast<size_t>(most));
  const int64_t num_found = mpistrat_records_read(self.records, first, found.data(), most);
  nb::list rows;
  for (int64_t i = 0; i < num_found; ++i) {
    const MpistratRecord& r = found[static_cast<size_t>(i)];
    rows.append(nb::make_tuple(r.number, r.sequence, r.begin_ns, r.end_ns, r.nbytes, r.op,
                               r.reduction, r.dtype, r.label, r.state));
  }
  return rows;
}

}  // namespace

RecordsHandle::RecordsHandle(int64_t capacity) : records(mpistrat_records_open(capacity)) {
  if (!records) throw std::bad_alloc();
}

void bind_records(nb::module_& module) {
  nb::class_<RecordsHandle>(module, "Records")
      .def(nb::init<int64_t>())
      .def("begin", &begin)
      .def("end", [](RecordsHandle& self,
                     int state) { return mpistrat_record_end(self.records, state) != 0; })
      .def_prop_ro("count",
                   [](RecordsHandle& self) { return mpistrat_records_count(self.records); })
      .def("read", &read)
      .def("keep",
           [](RecordsHandle& self, int64_t from) { mpistrat_records_keep(self.records, from); });
}

}  // namespace mpistrat
