// The digests of passes over datasets, by key: iterators note them, Python reads them.

#pragma once

#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "digest_marks.h"

namespace mpistrat {
namespace {

constexpr size_t kMostBatches = 1U << 22;  // of a pass that are noted

struct Pass {
  int64_t number = 0;           // of all passes of this process
  std::vector<Mark> marks;      // by batch and component
  std::vector<uint8_t> varied;  // by component
};

std::mutex mutex;  // protects everything below
int64_t last_pass = 0;

std::unordered_map<int64_t, Pass>& known() {
  static auto* all = new std::unordered_map<int64_t, Pass>;  // pipelines may run at exit
  return *all;
}

// What an iterator notes of its pass. To be used by one thread at a time.
class Notes {
 public:
  explicit Notes(int64_t key) : key_(key) {}

  void add(const std::vector<const Tensor*>& components) {
    std::vector<Mark> marks;
    varieties_.resize(components.size());
    for (size_t i = 0; i < components.size(); ++i) {
      marks.push_back(mark_of(*components[i]));
      varieties_[i].look_at(*components[i]);
    }
    const std::lock_guard lock(mutex);
    const auto found = known().find(key_);
    if (found == known().end()) return;  // nobody compares any more
    Pass& pass = found->second;
    if (number_ == 0) {
      number_ = ++last_pass;
      pass = {number_, {}, std::vector<uint8_t>(marks.size(), 0)};
    }
    if (pass.number != number_ || pass.marks.size() >= kMostBatches * marks.size()) return;
    pass.marks.insert(pass.marks.end(), marks.begin(), marks.end());
    for (size_t i = 0; i < marks.size(); ++i) pass.varied[i] = varieties_[i].found() ? 1 : 0;
  }

 private:
  const int64_t key_;
  int64_t number_ = 0;  // of this pass; 0 before its first element
  std::vector<Variety> varieties_;
};

}  // namespace
}  // namespace mpistrat
