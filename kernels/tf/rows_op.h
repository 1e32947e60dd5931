// MpistratRows: a TensorFlow operation that gathers rows of a NumPy array without copying the
// array.
//
// Python (mpistrat/tensorflow/graph/rows_op.py) registers arrays under keys; the operation gets a
// key as an attribute, so that a graph holds no address. An array stays readable until
// mpistrat_tf_forget_rows returns, which waits for those who read it.

#pragma once

#include <cstdint>
#include <cstring>
#include <shared_mutex>
#include <unordered_map>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace mpistrat::rows {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::PartialTensorShape;
using tensorflow::Tensor;
using tensorflow::TensorShape;

struct Rows {
  const char* first;
  int64_t count, nbytes;  // of a row
};

std::shared_mutex mutex;  // held by those who read rows; for writing by those who change the map

std::unordered_map<int64_t, Rows>& known() {
  static auto* all = new std::unordered_map<int64_t, Rows>;  // pipelines may run at exit
  return *all;
}

// Copies rows; returns false at an index that is none of them, and gives it. Each is loaded once,
// where it is checked and used: another thread may write to the tensor's memory, which may be lent.
// With a size that is known when this is compiled (or 0), a copy of a short row is no call.
template <int64_t kBytes>
bool copy(const Rows& rows, const int64_t* indices, int64_t num, char* target, int64_t* wrong) {
  const int64_t nbytes = kBytes > 0 ? kBytes : rows.nbytes;
  for (int64_t i = 0; i < num; ++i, target += nbytes) {
    const int64_t row = __atomic_load_n(indices + i, __ATOMIC_RELAXED);
    if (row < 0 || row >= rows.count) {
      *wrong = row;
      return false;
    }
    std::memcpy(target, rows.first + row * nbytes, nbytes);
  }
  return true;
}

bool copy_any(const Rows& rows, const int64_t* indices, int64_t num, char* target, int64_t* wrong) {
  if (rows.nbytes == 4) return copy<4>(rows, indices, num, target, wrong);
  if (rows.nbytes == 8) return copy<8>(rows, indices, num, target, wrong);
  return copy<0>(rows, indices, num, target, wrong);
}

absl::Status gather(const Rows& rows, const int64_t* indices, int64_t num, Tensor* result) {
  const auto nbytes = static_cast<int64_t>(result->TotalBytes());
  if (nbytes != num * rows.nbytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("MpistratRows: ", num, " rows of ", rows.nbytes, " bytes, but the result has ",
                     nbytes, "; give the shape and dtype of the array's rows"));
  }
  int64_t wrong = 0;
  if (copy_any(rows, indices, num, static_cast<char*>(result->data()), &wrong)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("MpistratRows: index ", wrong, ", but there are ", rows.count, " rows"));
}

class RowsOp : public OpKernel {
 public:
  explicit RowsOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("key", &key_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("row", &row_));
  }

  void Compute(OpKernelContext* ctx) override {
    const Tensor& indices = ctx->input(0);
    OP_REQUIRES(ctx, indices.dims() == 1,
                absl::InvalidArgumentError("MpistratRows: indices have to be a vector"));
    TensorShape shape({indices.dim_size(0)});
    shape.AppendShape(row_);
    Tensor* result = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, shape, &result));
    const std::shared_lock lock(mutex);
    const auto found = known().find(key_);
    OP_REQUIRES(
        ctx, found != known().end(),
        absl::FailedPreconditionError(absl::StrCat("MpistratRows: the array with the key ", key_,
                                                   " is gone, or of another"
                                                   " process; make the dataset again")));
    const auto* const numbers = indices.flat<int64_t>().data();
    OP_REQUIRES_OK(ctx, gather(found->second, numbers, indices.NumElements(), result));
  }

 private:
  int64_t key_ = 0;
  TensorShape row_;
};

absl::Status shape_of_rows(tensorflow::shape_inference::InferenceContext* ctx) {
  PartialTensorShape row;
  TF_RETURN_IF_ERROR(ctx->GetAttr("row", &row));
  tensorflow::shape_inference::ShapeHandle indices, rest, whole;
  TF_RETURN_IF_ERROR(ctx->WithRank(ctx->input(0), 1, &indices));
  TF_RETURN_IF_ERROR(ctx->MakeShapeFromPartialTensorShape(row, &rest));
  TF_RETURN_IF_ERROR(ctx->Concatenate(indices, rest, &whole));
  ctx->set_output(0, whole);
  return absl::OkStatus();
}

// Stateful, so that TensorFlow does not take two results of one array for equal.
REGISTER_OP("MpistratRows")
    .Input("indices: int64")
    .Output("rows: dtype")
    .Attr("dtype: type")
    .Attr("key: int")
    .Attr("row: shape")
    .SetIsStateful()
    .SetShapeFn(shape_of_rows);

REGISTER_KERNEL_BUILDER(Name("MpistratRows").Device(tensorflow::DEVICE_CPU), RowsOp);

}  // namespace
}  // namespace mpistrat::rows

// Let the operation read `count` rows of `nbytes` each, one after the other from `first` on.
extern "C" void mpistrat_tf_add_rows(int64_t key, const void* first, int64_t count,
                                     int64_t nbytes) {
  const std::unique_lock lock(mpistrat::rows::mutex);
  mpistrat::rows::known()[key] = {static_cast<const char*>(first), count, nbytes};
}

// Nobody reads the array of this key any more once this returns.
extern "C" void mpistrat_tf_forget_rows(int64_t key) {
  const std::unique_lock lock(mpistrat::rows::mutex);
  mpistrat::rows::known().erase(key);
}
