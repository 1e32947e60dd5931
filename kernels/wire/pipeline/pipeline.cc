#include "pipeline.h"

namespace mpistrat::wire {

void Pipeline::begin(SegmentFlow* flow, Segments* segments, int depth, int first_tag,
                     int num_tags) {
  flow_ = flow;
  segments_ = segments;
  depth_ = depth;
  first_tag_ = first_tag;
  num_tags_ = num_tags;
  while (in_flight_.size() < static_cast<size_t>(depth))
    in_flight_.push_back(std::make_unique<InFlight>());
  num_loaded_ = num_stored_ = 0;
  has_more_ = true;
  doing_ = Doing::kNothing;
}

bool Pipeline::advance(Links& links) {
  run_schedules(links);
  for (;;) {
    if (doing_ != Doing::kNothing) {
      if (!links.advance_node()) return false;
      doing_ == Doing::kLoading ? loaded(links) : static_cast<void>(++num_stored_);
      doing_ = Doing::kNothing;
    } else if (has_more_ && num_loaded_ - num_stored_ < depth_) {
      load(links);
    } else if (num_stored_ < num_loaded_) {
      if (!in_flight(num_stored_).schedule.is_over()) return false;
      doing_ = Doing::kStoring;
      if (flow_->store(in_flight(num_stored_))) links.begin_node_call();
    } else {
      return true;
    }
  }
}

void Pipeline::run_schedules(Links& links) {
  for (int64_t number = num_stored_; number < num_loaded_; ++number)
    in_flight(number).schedule.run(links.messages);
}

void Pipeline::load(Links& links) {
  InFlight& next = in_flight(num_loaded_);
  has_more_ = segments_->next(&next.segment);
  if (!has_more_) return;
  doing_ = Doing::kLoading;
  if (flow_->load(next)) links.begin_node_call();
}

void Pipeline::loaded(Links& links) {
  InFlight& next = in_flight(num_loaded_);
  next.schedule.clear(first_tag_ + static_cast<int>(num_begun_ % num_tags_));
  flow_->carry(next);
  ++num_loaded_;
  ++num_begun_;
  next.schedule.run(links.messages);
}

}  // namespace mpistrat::wire
