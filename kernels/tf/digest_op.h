// FilterDatasetV674 and MpistratDigest: note a digest of each element of a dataset, so that ranks
// can compare what they have read.
//
// Python's side is mpistrat/tensorflow/graph/digest_op.py. The dataset FilterDatasetV674 gives the
// elements of another one, and takes their digests on the thread that reads. MpistratDigest does
// the same as the predicate of a filter of TensorFlow's that keeps every element; calling it takes
// 50 us, but it gets the parts of ragged and sparse tensors, of which a dataset only has encoded
// ones. Each iterator makes a new pass over the data. Python reads the digests of the newest pass
// by the key that is an attribute of the operation.

#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "digest_passes.h"
#include "tensorflow/core/framework/dataset.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace mpistrat {
namespace {

namespace model = tensorflow::data::model;

using absl::Status;
using tensorflow::AttrValue;
using tensorflow::DataTypeVector;
using tensorflow::Node;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::PartialTensorShape;
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
