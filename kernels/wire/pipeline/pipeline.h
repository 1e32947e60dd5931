#ifndef MPISTRAT_WIRE_PIPELINE_PIPELINE_H_
#define MPISTRAT_WIRE_PIPELINE_PIPELINE_H_

// Put each segment of a call through three stages, several segments at the same time: the network
// is busy while memory is copied.
//
// The node's calls run one at a time, and in the same order on all ranks, however fast the wire is:
// load 0 to depth - 1, store 0, load depth, store 1, ...

#include <memory>
#include <vector>

#include "segment_flow.h"

namespace mpistrat::wire {

class Pipeline {
 public:
  // Begin with `flow`, whose segments are cut already. `depth` is how many are carried at a time.
  void begin(SegmentFlow* flow, Segments* segments, int depth, int first_tag, int num_tags);

  // Go as far as is possible without waiting; returns whether it is over.
  bool advance(Links& links);

 private:
  enum class Doing { kNothing, kLoading, kStoring };

  InFlight& in_flight(int64_t number) { return *in_flight_[static_cast<size_t>(number % depth_)]; }
  void run_schedules(Links& links);
  void load(Links& links);
  void loaded(Links& links);

  std::vector<std::unique_ptr<InFlight>> in_flight_;
  SegmentFlow* flow_ = nullptr;
  Segments* segments_ = nullptr;
  int depth_ = 1, first_tag_ = 0, num_tags_ = 1;
  int64_t num_begun_ = 0;  // over all calls: tags
  int64_t num_loaded_ = 0, num_stored_ = 0;
  bool has_more_ = false;
  Doing doing_ = Doing::kNothing;
};

}  // namespace mpistrat::wire

#endif  // MPISTRAT_WIRE_PIPELINE_PIPELINE_H_
