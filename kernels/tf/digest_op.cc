// FilterDatasetV674 and MpistratDigest: note a digest of each element of a dataset, so that ranks
// can compare what they have read.
//
// Python compiles and loads this file (mpistrat/tensorflow/graph/digest_op.py). The dataset
// FilterDatasetV674 gives the elements of another one, and takes their digests on the thread that
// reads. MpistratDigest does the same as the predicate of a filter of TensorFlow's that keeps every
// element; calling it takes 50 us, but it gets the parts of ragged and sparse tensors, of which a
// dataset only has encoded ones. Each iterator makes a new pass over the data. Python reads the
// digests of the newest pass by the key that is an attribute of the operation.
//
// Integers, strings and shapes are digested exactly. Floating-point numbers are not: ranks that
// compute one and the same thing round it differently, since sums depend on where arrays lie in
// memory and on the processor. Of these a weighted sum is noted, to be compared with a tolerance.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "tensorflow/core/framework/dataset.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace mpistrat {
namespace {

namespace model = tensorflow::data::model;

using absl::Status;
using tensorflow::AttrValue;
using tensorflow::DataTypeCanUseMemcpy;
using tensorflow::DataTypeVector;
using tensorflow::Node;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::PartialTensorShape;
using tensorflow::Tensor;
using tensorflow::data::CardinalityOptions;
using tensorflow::data::DatasetBase;
using tensorflow::data::DatasetContext;
using tensorflow::data::DatasetIterator;
using tensorflow::data::IteratorBase;
using tensorflow::data::IteratorContext;
using tensorflow::data::IteratorStateReader;
using tensorflow::data::IteratorStateWriter;
using tensorflow::data::SerializationContext;
using tensorflow::data::UnaryDatasetOpKernel;

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

// Call `read(first, nbytes)` with some strings of a tensor.
template <typename Read>
void for_strings(const Tensor& tensor, Read read) {
  const auto strings = tensor.flat<tensorflow::tstring>();
  const int64_t step = strings.size() / kStrings + 1;
  for (int64_t i = 0; i < strings.size(); i += step) {
    read(strings(i).data(), static_cast<int64_t>(strings(i).size()));
  }
}

// What is noted of a component of an element.
struct Mark {
  uint64_t digest = 1;  // of all that is compared exactly
  double sum = 0;       // of floating-point numbers, weighted by their places
  double allowed = 0;   // how much the sums of two ranks may differ by rounding
};

// Weights from 0.5 to 1.5 that differ between neighbours, so that two rows that change places
// change the sum. As many as numbers of two bytes are read.
const std::vector<double>& weights() {
  static const auto* all = [] {
    auto* made = new std::vector<double>(kWhole / 2);
    for (size_t place = 0; place < made->size(); ++place) {
      const double turns = 0.618033988749895 * static_cast<double>(place);
      (*made)[place] = 0.5 + (turns - std::floor(turns));
    }
    return made;
  }();
  return *all;
}

// Rounding is a part `of_numbers` of the numbers, and what was computed from rounded numbers
// differs by a part of how the numbers vary.
template <typename T>
void add_floats(const Tensor& tensor, double of_numbers, Mark* mark) {
  std::vector<double> numbers(kWhole / sizeof(T));
  size_t count = 0;
  double total = 0;
  const auto add = [&](const char* piece, int64_t length) {
    for (int64_t at = 0; at + static_cast<int64_t>(sizeof(T)) <= length; at += sizeof(T)) {
      T number;
      std::memcpy(&number, piece + at, sizeof(T));
      const auto value = static_cast<double>(number);
      numbers[count] = value - value == 0 ? value : kNoNumber;
      total += numbers[count++];
    }
  };
  read_some(static_cast<const char*>(tensor.data()), static_cast<int64_t>(tensor.TotalBytes()),
            add);
  const double mean = total / static_cast<double>(std::max<size_t>(count, 1));
  const double* weight = weights().data();
  double sum = 0, of_distances = 0, of_sizes = 0;
  for (size_t i = 0; i < count; ++i) {
    sum += weight[i] * numbers[i];
    of_distances += weight[i] * std::abs(numbers[i] - mean);
    of_sizes += weight[i] * std::abs(numbers[i]);
  }
  mark->sum = sum;
  mark->allowed = kOfVariety * of_distances + of_numbers * of_sizes;
}

Mark mark_of(const Tensor& tensor) {
  Mark mark;
  mark.digest = mix(mark.digest, static_cast<uint64_t>(tensor.dtype()));
  for (const auto dim : tensor.shape()) {
    mark.digest = mix(mark.digest, static_cast<uint64_t>(dim.size));
  }
  switch (tensor.dtype()) {
    case tensorflow::DT_STRING:
      for_strings(tensor, [&mark](const char* one, int64_t nbytes) {
        mark.digest = digest_of(one, nbytes, mark.digest);
      });
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
// order of rows. To be asked with the tensors of one pass. Reads what the digests are made of, and
// compares it with the same columns of the first row: so where digests of ranks differ, either
// their first rows do, or one of the ranks finds variety here.
class Variety {
 public:
  bool found() const { return is_found_; }

  void look_at(const Tensor& tensor) {
    if (is_found_ || tensor.NumElements() == 0) return;
    if (tensor.dtype() == tensorflow::DT_STRING) {
      for_strings(tensor,
                  [this](const char* one, int64_t nbytes) { compare(one, nbytes, nbytes); });
    } else if (DataTypeCanUseMemcpy(tensor.dtype())) {
      const auto nbytes = static_cast<int64_t>(tensor.TotalBytes());
      const int64_t rows = tensor.dims() == 0 ? 1 : tensor.dim_size(0);
      compare(static_cast<const char*>(tensor.data()), nbytes, nbytes / rows);
    }
  }

 private:
  // Compare rows of `row` bytes each with the first one.
  void compare(const char* rows, int64_t nbytes, int64_t row) {
    if (!has_first_) {
      first_.assign(rows, static_cast<size_t>(row));
      has_first_ = true;
    }
    is_found_ = is_found_ || row != static_cast<int64_t>(first_.size());
    if (is_found_ || row == 0) return;
    read_some(rows, nbytes, [this, rows, row](const char* piece, int64_t length) {
      for (int64_t done = 0; done < length && !is_found_;) {
        const int64_t column = (piece - rows + done) % row;
        const int64_t part = std::min(length - done, row - column);
        is_found_ =
            std::memcmp(first_.data() + column, piece + done, static_cast<size_t>(part)) != 0;
        done += part;
      }
    });
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

// A dataset that gives the elements of another one, and notes them on the thread that reads.
class NotedDataset : public DatasetBase {
 public:
  NotedDataset(OpKernelContext* ctx, const DatasetBase* input, int64_t key)
      : DatasetBase(DatasetContext(ctx)), input_(input), key_(key) {
    input_->Ref();
  }

  ~NotedDataset() override { input_->Unref(); }

  std::unique_ptr<IteratorBase> MakeIteratorInternal(const std::string& prefix) const override {
    return std::make_unique<Iterator>(Iterator::Params{this, prefix + "::Noted"});
  }

  const DataTypeVector& output_dtypes() const override { return input_->output_dtypes(); }

  const std::vector<PartialTensorShape>& output_shapes() const override {
    return input_->output_shapes();
  }

  std::string DebugString() const override { return "MpistratNotedDataset"; }

  int64_t CardinalityInternal(CardinalityOptions options) const override {
    return input_->Cardinality(options);
  }

  Status InputDatasets(std::vector<const DatasetBase*>* inputs) const override {
    inputs->push_back(input_);
    return absl::OkStatus();
  }

  Status CheckExternalState() const override { return input_->CheckExternalState(); }

 protected:
  Status AsGraphDefInternal(SerializationContext* ctx, DatasetGraphDefBuilder* builder,
                            Node** output) const override {
    Node* input = nullptr;
    TF_RETURN_IF_ERROR(builder->AddInputDataset(ctx, input_, &input));
    AttrValue key;
    builder->BuildAttrValue(key_, &key);
    return builder->AddDataset(this, {input}, {{"key", key}}, output);
  }

 private:
  class Iterator : public DatasetIterator<NotedDataset> {
   public:
    explicit Iterator(const Params& params)
        : DatasetIterator<NotedDataset>(params), notes_(params.dataset->key_) {}

    bool SymbolicCheckpointCompatible() const override { return true; }

    Status Initialize(IteratorContext* ctx) override {
      return dataset()->input_->MakeIterator(ctx, this, prefix(), &input_);
    }

    // Locked over both steps, so that elements are noted in the order in which they are given.
    Status GetNextInternal(IteratorContext* ctx, std::vector<Tensor>* element,
                           bool* is_end) override {
      const std::lock_guard lock(mutex_);
      TF_RETURN_IF_ERROR(input_->GetNext(ctx, element, is_end));
      if (*is_end) return absl::OkStatus();
      std::vector<const Tensor*> components;
      for (const Tensor& one : *element) components.push_back(&one);
      notes_.add(components);
      return absl::OkStatus();
    }

   protected:
    std::shared_ptr<model::Node> CreateNode(IteratorContext* ctx,
                                            model::Node::Args args) const override {
      return model::MakeKnownRatioNode(std::move(args), /*ratio=*/1);
    }

    Status SaveInternal(SerializationContext* ctx, IteratorStateWriter* writer) override {
      const std::lock_guard lock(mutex_);
      return SaveInput(ctx, writer, input_);
    }

    Status RestoreInternal(IteratorContext* ctx, IteratorStateReader* reader) override {
      const std::lock_guard lock(mutex_);
      return RestoreInput(ctx, reader, input_);
    }

   private:
    std::mutex mutex_;  // protects everything below
    std::unique_ptr<IteratorBase> input_;
    Notes notes_;
  };

  const DatasetBase* const input_;
  const int64_t key_;
};

class NotedDatasetOp : public UnaryDatasetOpKernel {
 public:
  explicit NotedDatasetOp(OpKernelConstruction* ctx) : UnaryDatasetOpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("key", &key_));
  }

 protected:
  void MakeDataset(OpKernelContext* ctx, DatasetBase* input, DatasetBase** output) override {
    *output = new NotedDataset(ctx, input, key_);
  }

 private:
  int64_t key_ = 0;
};

// The name says that this is some version of FilterDataset. TensorFlow finds the size of a batch,
// of which each rank gets its part, by walking through a dataset's graph, and stops at what is not
// on a list of its own, in which each name stands for all its versions (ComputeBatchSize). Python
// tries whether it does walk through this, and else takes a filter. 674 is a number that
// TensorFlow's own versions do not reach.
REGISTER_OP("FilterDatasetV674")
    .Input("input_dataset: variant")
    .Output("handle: variant")
    .Attr("key: int")
    .Attr("output_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .Attr("metadata: string = ''")
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* ctx) {
      ctx->set_output(0, ctx->Scalar());
      return absl::OkStatus();
    });

REGISTER_KERNEL_BUILDER(Name("FilterDatasetV674").Device(tensorflow::DEVICE_CPU), NotedDatasetOp);

class DigestOp : public OpKernel {
 public:
  explicit DigestOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("key", &key_));
    notes_ = std::make_unique<Notes>(key_);
  }

  void Compute(OpKernelContext* ctx) override {
    Tensor* kept = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, {}, &kept));
    kept->scalar<bool>()() = true;
    std::vector<const Tensor*> components;
    for (int i = 0; i < ctx->num_inputs(); ++i) components.push_back(&ctx->input(i));
    const std::lock_guard lock(mutex_);
    notes_->add(components);
  }

 private:
  int64_t key_ = 0;
  std::mutex mutex_;  // protects everything below
  std::unique_ptr<Notes> notes_;
};

// Not stateful, though both note something: TensorFlow would warn that it cannot copy the dataset.
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
