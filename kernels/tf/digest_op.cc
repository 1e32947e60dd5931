// MpistratDigest: note a digest of each element of a dataset, so that ranks can compare what they
// have read.
//
// Python compiles and loads this file (mpistrat/tensorflow/digest_op.py) and puts the operation
// into a dataset as a filter that keeps every element. TensorFlow makes a kernel for each iterator,
// so a kernel's first element begins a new pass over the data. Python reads the digests of the
// newest pass by the key that is an attribute of the operation.
//
// Integers, strings and shapes are digested exactly. Floating-point numbers are not: ranks that
// compute one and the same thing round it differently, since sums depend on where arrays lie in
// memory and on the processor. Of these a weighted sum is noted, to be compared with a tolerance.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace mpistrat {
namespace {

using tensorflow::DataTypeCanUseMemcpy;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

constexpr int64_t kWhole = 8 << 10;        // bytes: shorter memory is read whole
constexpr int64_t kPiece = 64;             // bytes of longer memory that are read in a row
constexpr int64_t kPieces = 96;            // how often
constexpr int64_t kStrings = 64;           // of a tensor that are read
constexpr size_t kMostBatches = 1U << 22;  // of a pass that are noted
constexpr double kOfVariety = 1e-4;        // of the numbers' distance from their mean
constexpr double kNoNumber = 1234.5;       // stands for infinities and for what is no number
constexpr uint64_t kFactor = 0x9E3779B97F4A7C15U;

uint64_t mix(uint64_t digest, uint64_t word) {
  digest = (digest ^ word) * kFactor;
  return digest ^ (digest >> 29U);
}

// Call `read(first, nbytes)` with all memory, or with pieces of it if it is long: at places that
// look random, so that they do not all fall into one column of the rows, but are the same on all
// ranks. They begin at multiples of `kPiece`.
template <typename Read>
void read_some(const char* first, int64_t nbytes, Read read) {
  if (nbytes <= kWhole) {
    read(first, nbytes);
    return;
  }
  uint64_t place = 1;
  for (int64_t i = 0; i < kPieces; ++i) {
    place = mix(place, static_cast<uint64_t>(i) + 1);
    const auto piece = static_cast<int64_t>(place % static_cast<uint64_t>(nbytes / kPiece));
    read(first + piece * kPiece, kPiece);
  }
}

uint64_t digest_of(const char* first, int64_t nbytes, uint64_t digest) {
  read_some(first, nbytes, [&digest](const char* piece, int64_t length) {
    int64_t at = 0;
    for (; at + 8 <= length; at += 8) {
      uint64_t word = 0;
      std::memcpy(&word, piece + at, 8);
      digest = mix(digest, word);
    }
    uint64_t rest = 0;
    std::memcpy(&rest, piece + at, static_cast<size_t>(length - at));
    digest = mix(digest, rest);
  });
  return digest;
}

uint64_t digest_of_strings(const Tensor& tensor, uint64_t digest) {
  const auto strings = tensor.flat<tensorflow::tstring>();
  const int64_t step = strings.size() / kStrings + 1;
  for (int64_t i = 0; i < strings.size(); i += step) {
    const tensorflow::tstring& one = strings(i);
    digest = digest_of(one.data(), static_cast<int64_t>(one.size()), digest);
  }
  return digest;
}

// What is noted of a component of an element.
struct Mark {
  uint64_t digest = 1;  // of all that is compared exactly
  double sum = 0;       // of floating-point numbers, weighted by their places
  double allowed = 0;   // how much the sums of two ranks may differ by rounding
};

// Weights from 0.5 to 1.5 that differ between neighbours, so that two rows that change places
// change the sum.
double weight_of(size_t place) {
  const double turns = 0.618033988749895 * static_cast<double>(place);
  return 0.5 + (turns - std::floor(turns));
}

// Rounding is a part `of_numbers` of the numbers, and what was computed from rounded numbers
// differs by a part of how the numbers vary.
template <typename T>
void add_floats(const Tensor& tensor, double of_numbers, Mark* mark) {
  std::vector<double> numbers;
  const auto add = [&numbers](const char* piece, int64_t length) {
    for (int64_t at = 0; at + static_cast<int64_t>(sizeof(T)) <= length; at += sizeof(T)) {
      T number;
      std::memcpy(&number, piece + at, sizeof(T));
      const auto value = static_cast<double>(number);
      numbers.push_back(std::isfinite(value) ? value : kNoNumber);
    }
  };
  read_some(static_cast<const char*>(tensor.data()), static_cast<int64_t>(tensor.TotalBytes()),
            add);
  double total = 0;
  for (const double number : numbers) total += number;
  const double mean = numbers.empty() ? 0 : total / static_cast<double>(numbers.size());
  for (size_t i = 0; i < numbers.size(); ++i) {
    const double weight = weight_of(i);
    mark->sum += weight * numbers[i];
    mark->allowed +=
        weight * (kOfVariety * std::abs(numbers[i] - mean) + of_numbers * std::abs(numbers[i]));
  }
}

Mark mark_of(const Tensor& tensor) {
  Mark mark;
  mark.digest = mix(mark.digest, static_cast<uint64_t>(tensor.dtype()));
  for (const auto dim : tensor.shape()) {
    mark.digest = mix(mark.digest, static_cast<uint64_t>(dim.size));
  }
  switch (tensor.dtype()) {
    case tensorflow::DT_STRING:
      mark.digest = digest_of_strings(tensor, mark.digest);
      break;
    case tensorflow::DT_HALF:
      add_floats<Eigen::half>(tensor, 2e-3, &mark);
      break;
    case tensorflow::DT_BFLOAT16:
      add_floats<Eigen::bfloat16>(tensor, 2e-2, &mark);
      break;
    case tensorflow::DT_FLOAT:
    case tensorflow::DT_COMPLEX64:
      add_floats<float>(tensor, 2e-6, &mark);
      break;
    case tensorflow::DT_DOUBLE:
    case tensorflow::DT_COMPLEX128:
      add_floats<double>(tensor, 1e-11, &mark);
      break;
    default:
      if (!DataTypeCanUseMemcpy(tensor.dtype())) break;  // such as a variant
      mark.digest = digest_of(static_cast<const char*>(tensor.data()),
                              static_cast<int64_t>(tensor.TotalBytes()), mark.digest);
  }
  return mark;
}

// Finds out whether the rows of a component differ at all: a column of ones says nothing about an
// order of rows. To be asked with the tensors of one pass.
class Variety {
 public:
  bool found() const { return is_found_; }

  void look_at(const Tensor& tensor) {
    if (is_found_ || tensor.NumElements() == 0) return;
    const int64_t rows = tensor.dims() == 0 ? 1 : tensor.dim_size(0);
    if (tensor.dtype() == tensorflow::DT_STRING) {
      const auto strings = tensor.flat<tensorflow::tstring>();
      for (int64_t i = 0; i < strings.size(); ++i) compare(strings(i).data(), strings(i).size());
    } else if (DataTypeCanUseMemcpy(tensor.dtype())) {
      const size_t nbytes = tensor.TotalBytes() / static_cast<size_t>(rows);
      const auto* row = static_cast<const char*>(tensor.data());
      for (int64_t i = 0; i < rows && !is_found_; ++i, row += nbytes) compare(row, nbytes);
    }
  }

 private:
  void compare(const char* row, size_t nbytes) {
    if (!has_first_) {
      first_.assign(row, nbytes);
      has_first_ = true;
    } else if (first_.size() != nbytes || std::memcmp(first_.data(), row, nbytes) != 0) {
      is_found_ = true;
    }
  }

  bool has_first_ = false, is_found_ = false;
  std::string first_;  // row of the pass
};

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

class DigestOp : public OpKernel {
 public:
  explicit DigestOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("key", &key_));
  }

  void Compute(OpKernelContext* ctx) override {
    Tensor* kept = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, {}, &kept));
    kept->scalar<bool>()() = true;
    const auto count = static_cast<size_t>(ctx->num_inputs());
    std::vector<Mark> marks(count);
    for (size_t i = 0; i < count; ++i) marks[i] = mark_of(ctx->input(static_cast<int>(i)));
    const std::lock_guard lock(mutex);
    varieties_.resize(count);
    for (size_t i = 0; i < count; ++i) varieties_[i].look_at(ctx->input(static_cast<int>(i)));
    note(marks);
  }

 private:
  void note(const std::vector<Mark>& marks) {
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

  int64_t key_ = 0;
  int64_t number_ = 0;  // of this kernel's pass; 0 before its first element
  std::vector<Variety> varieties_;
};

// Not stateful, though it notes something: TensorFlow would warn that it cannot copy the dataset.
// Nothing is computed twice, or not at all, since each element's result is needed.
REGISTER_OP("MpistratDigest")
    .Input("components: T")
    .Output("kept: bool")
    .Attr("T: list(type)")
    .Attr("key: int")
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* ctx) {
      ctx->set_output(0, ctx->Scalar());
      return absl::OkStatus();
    });

REGISTER_KERNEL_BUILDER(Name("MpistratDigest").Device(tensorflow::DEVICE_CPU), DigestOp);

}  // namespace
}  // namespace mpistrat

// From now on note what passes operations with this key.
extern "C" void mpistrat_tf_open_digests(int64_t key) {
  const std::lock_guard lock(mpistrat::mutex);
  mpistrat::known()[key] = {};
}

// Return the number of batches of the newest pass, and give its number; 0 if there was none.
extern "C" int64_t mpistrat_tf_count_digests(int64_t key, int64_t components, int64_t* pass) {
  const std::lock_guard lock(mpistrat::mutex);
  const auto found = mpistrat::known().find(key);
  const bool is_there = found != mpistrat::known().end();
  *pass = is_there ? found->second.number : 0;
  return is_there ? static_cast<int64_t>(found->second.marks.size()) / components : 0;
}

// Copy what was noted of `count` batches of that pass from number `first` on, by batch and
// component, and whether each component is varied. Return whether all of it is there.
extern "C" bool mpistrat_tf_read_digests(int64_t key, int64_t pass, int64_t first, int64_t count,
                                         int64_t components, uint64_t* digests, double* sums,
                                         double* allowed, uint8_t* varied) {
  const std::lock_guard lock(mpistrat::mutex);
  const auto found = mpistrat::known().find(key);
  if (found == mpistrat::known().end() || found->second.number != pass) return false;
  const std::vector<mpistrat::Mark>& marks = found->second.marks;
  if (static_cast<size_t>((first + count) * components) > marks.size()) return false;
  for (int64_t i = 0; i < count * components; ++i) {
    const mpistrat::Mark& mark = marks[static_cast<size_t>(first * components + i)];
    digests[i] = mark.digest;
    sums[i] = mark.sum;
    allowed[i] = mark.allowed;
  }
  std::memcpy(varied, found->second.varied.data(), static_cast<size_t>(components));
  return true;
}

// Note nothing more for this key.
extern "C" void mpistrat_tf_close_digests(int64_t key) {
  const std::lock_guard lock(mpistrat::mutex);
  mpistrat::known().erase(key);
}
