#include "tests/testing/fenced_backend.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/check.h"
#include "kernels/arguments.h"
#include "tests/testing/fenced_memory.h"

namespace anyorder::testing {
namespace {

using Opening = FencedMemory::Opening;

class FencedBuffer final : public kernels::Buffer {
 public:
  FencedBuffer(std::shared_ptr<FencedMemory> memory, void* data, int64_t bytes)
      : memory_(std::move(memory)), data_(data), bytes_(bytes) {}
  ~FencedBuffer() override { memory_->Free(data_); }
  void* data() const override { return data_; }
  int64_t size_bytes() const override { return bytes_; }

 private:
  const std::shared_ptr<FencedMemory> memory_;
  void* const data_;
  const int64_t bytes_;
};

}  // namespace

FencedBackend::FencedBackend(std::unique_ptr<kernels::Backend> inner)
    : ForwardingBackend(std::move(inner)), memory_(std::make_shared<FencedMemory>()) {
  ANYORDER_CHECK(ForwardingBackend::is_host_memory()) << "a fence around device memory";
}

FencedBackend::~FencedBackend() = default;

absl::StatusOr<std::unique_ptr<kernels::Buffer>> FencedBackend::Allocate(int64_t bytes) {
  CheckNotRecording("Allocate");
  void* const data = memory_->Allocate(bytes);
  if (data == nullptr)
    return absl::ResourceExhaustedError(absl::StrCat("allocate ", bytes, " bytes within a fence"));
  return std::make_unique<FencedBuffer>(memory_, data, bytes);
}

void FencedBackend::CopyToDevice(const void* host, void* device, int64_t bytes, StreamView stream) {
  CheckNotRecording("CopyToDevice");
  CheckRange(device, bytes);
  ANYORDER_CHECK(!memory_->Touches(host, bytes)) << "CopyToDevice from device memory";
  const Opening opening(*memory_);
  ForwardingBackend::CopyToDevice(host, device, bytes, stream);
}

void FencedBackend::CopyToHost(const void* device, void* host, int64_t bytes, StreamView stream) {
  CheckNotRecording("CopyToHost");
  CheckRange(device, bytes);
  ANYORDER_CHECK(!memory_->Touches(host, bytes)) << "CopyToHost to device memory";
  if (bytes == 0) return;
  // Until then it is not a number.
  std::memset(host, 0xff, static_cast<size_t>(bytes));
  HostCopy copy{host, std::vector<char>(bytes)};
  {
    const Opening opening(*memory_);
    ForwardingBackend::CopyToHost(device, copy.bytes.data(), bytes, stream);
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  copies_.push_back(std::move(copy));
}

void FencedBackend::Synchronize(StreamView stream) {
  CheckNotRecording("Synchronize");
  ForwardingBackend::Synchronize(stream);
  GiveCopies();
  ++num_synchronizations_;
}

void FencedBackend::BeginGraph(int64_t key, StreamView) {
  CheckNotRecording("BeginGraph");
  is_recording_ = true;
  key_ = key;
  recorded_.clear();
}

void FencedBackend::EndGraph(StreamView) {
  ANYORDER_CHECK(is_recording_) << "EndGraph without BeginGraph";
  is_recording_ = false;
  const auto [before, is_new] = graphs_.emplace(key_, recorded_);
  num_repeated_graphs_ += is_new ? 0 : 1;
  ANYORDER_CHECK(before->second == recorded_)
      << "sequence " << key_ << " has other operations than before";
}

void FencedBackend::CheckNotRecording(const char* what) const {
  ANYORDER_CHECK(!is_recording_) << what << " in a sequence that is recorded";
}

void FencedBackend::GiveCopies() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const HostCopy& copy : copies_)
    std::memcpy(copy.host, copy.bytes.data(), copy.bytes.size());
  copies_.clear();
}

class FencedBackend::QueueEvent final : public kernels::Event {
 public:
  explicit QueueEvent(FencedBackend& backend) : backend_(backend) {}
  void Record(StreamView) override {}
  void Wait(StreamView) override {}
  absl::StatusOr<bool> IsReached() override {
    backend_.GiveCopies();
    return true;
  }
  void Await() override { backend_.GiveCopies(); }

 private:
  FencedBackend& backend_;
};

absl::StatusOr<std::unique_ptr<kernels::Event>> FencedBackend::MakeEvent() {
  return std::make_unique<QueueEvent>(*this);
}

void FencedBackend::CheckRange(const void* data, int64_t bytes) const {
  if (data == nullptr || bytes == 0) return;
  ANYORDER_CHECK(memory_->Contains(data, bytes))
      << bytes << " bytes of an argument are no device memory";
}

void FencedBackend::CheckTensors(std::initializer_list<ConstTensorView> tensors) {
  for (const ConstTensorView& tensor : tensors) {
    const int64_t bytes = tensor.is_null() ? 0 : tensor.num_bytes();
    CheckRange(tensor.raw(), bytes);
    if (is_recording_) recorded_.push_back(bytes);
  }
}

void FencedBackend::CheckAttention(const kernels::AttentionInputs& in) {
  CheckTensors({in.q, in.k, in.v, in.relative, in.content_bias, in.position_bias, in.segment_bias,
                in.segment_embedding, in.distance_bias});
  const int64_t rows = in.shape.num_rows();
  const int64_t keys = in.shape.batch_size * in.shape.num_keys;
  for (const int32_t* array :
       {in.rows.pos, in.rows.lim, in.rows.grp, in.rows.doc, in.rows.seg, in.row_ids})
    CheckArray(array, rows);
  CheckArray(in.rows.glob, rows);
  for (const int32_t* array : {in.keys.pos, in.keys.key, in.keys.grp, in.keys.doc, in.keys.seg})
    CheckArray(array, keys);
  CheckArray(in.keys.glob, keys);
  CheckArray(in.table_of_lane, in.shape.batch_size);
  CheckArray(in.bands, in.shape.num_heads);
}

void FencedBackend::Gemm(const kernels::GemmArgs& args, StreamView stream) {
  CheckTensors({args.a, args.b, args.bias, args.c, args.a_sum, args.b_sum});
  const Opening opening(*memory_);
  ForwardingBackend::Gemm(args, stream);
}

void FencedBackend::ColumnSum(const kernels::ColumnSumArgs& args, StreamView stream) {
  CheckTensors({args.x, args.y});
  const Opening opening(*memory_);
  ForwardingBackend::ColumnSum(args, stream);
}

void FencedBackend::AttentionForward(const kernels::AttentionForwardArgs& args, StreamView stream) {
  CheckAttention(args.in);
  CheckTensors({args.out, args.lse});
  const Opening opening(*memory_);
  ForwardingBackend::AttentionForward(args, stream);
}

void FencedBackend::AttentionBackward(const kernels::AttentionBackwardArgs& args,
                                      StreamView stream) {
  CheckAttention(args.in);
  CheckTensors({args.out, args.lse, args.dout, args.dq, args.dk, args.dv, args.drelative,
                args.dcontent_bias, args.dposition_bias, args.dsegment_bias,
                args.dsegment_embedding, args.ddistance_bias, args.workspace});
  const Opening opening(*memory_);
  ForwardingBackend::AttentionBackward(args, stream);
}

void FencedBackend::ActivationForward(const kernels::ActivationForwardArgs& args,
                                      StreamView stream) {
  CheckTensors({args.x, args.y});
  CheckArray(args.row_ids, kernels::NumRows(args.x));
  const Opening opening(*memory_);
  ForwardingBackend::ActivationForward(args, stream);
}

void FencedBackend::ActivationBackward(const kernels::ActivationBackwardArgs& args,
                                       StreamView stream) {
  CheckTensors({args.x, args.dy, args.dx});
  CheckArray(args.row_ids, kernels::NumRows(args.x));
  const Opening opening(*memory_);
  ForwardingBackend::ActivationBackward(args, stream);
}

void FencedBackend::DropoutApply(const kernels::DropoutArgs& args, StreamView stream) {
  CheckTensors({args.x, args.y});
  CheckArray(args.row_ids, kernels::NumRows(args.x));
  const Opening opening(*memory_);
  ForwardingBackend::DropoutApply(args, stream);
}

void FencedBackend::LayerNormForward(const kernels::LayerNormForwardArgs& args, StreamView stream) {
  CheckTensors(
      {args.x, args.residual, args.gamma, args.beta, args.sum, args.mean, args.rstd, args.y});
  CheckArray(args.row_ids, kernels::NumRows(args.x));
  const Opening opening(*memory_);
  ForwardingBackend::LayerNormForward(args, stream);
}

void FencedBackend::LayerNormBackward(const kernels::LayerNormBackwardArgs& args,
                                      StreamView stream) {
  CheckTensors({args.dy, args.sum, args.mean, args.rstd, args.gamma, args.dx, args.dresidual,
                args.dgamma, args.dbeta});
  CheckArray(args.row_ids, kernels::NumRows(args.dy));
  const Opening opening(*memory_);
  ForwardingBackend::LayerNormBackward(args, stream);
}

void FencedBackend::EmbeddingForward(const kernels::EmbeddingForwardArgs& args, StreamView stream) {
  CheckTensors({args.table, args.y});
  CheckArray(args.ids, kernels::NumRows(args.y));
  CheckArray(args.row_ids, kernels::NumRows(args.y));
  const Opening opening(*memory_);
  ForwardingBackend::EmbeddingForward(args, stream);
}

void FencedBackend::EmbeddingBackward(const kernels::EmbeddingBackwardArgs& args,
                                      StreamView stream) {
  CheckTensors({args.dy, args.dtable});
  CheckArray(args.ids, kernels::NumRows(args.dy));
  CheckArray(args.row_ids, kernels::NumRows(args.dy));
  const Opening opening(*memory_);
  ForwardingBackend::EmbeddingBackward(args, stream);
}

void FencedBackend::LinearCrossEntropy(const kernels::LinearCrossEntropyArgs& args,
                                       StreamView stream) {
  CheckTensors({args.x, args.weight, args.bias, args.loss, args.dx, args.dweight, args.dbias,
                args.workspace});
  CheckArray(args.labels, kernels::NumRows(args.x));
  CheckArray(args.row_weights, kernels::NumRows(args.x));
  const Opening opening(*memory_);
  ForwardingBackend::LinearCrossEntropy(args, stream);
}

void FencedBackend::AdamW(const kernels::AdamWArgs& args, StreamView stream) {
  CheckTensors({args.grad, args.master, args.m, args.v, args.weights});
  CheckArray(args.control, 1);
  const Opening opening(*memory_);
  ForwardingBackend::AdamW(args, stream);
}

void FencedBackend::CopyRows(const kernels::CopyRowsArgs& args, StreamView stream) {
  CheckTensors({args.source, args.destination});
  const Opening opening(*memory_);
  ForwardingBackend::CopyRows(args, stream);
}

void FencedBackend::GatherRows(const kernels::GatherRowsArgs& args, StreamView stream) {
  CheckTensors({args.x, args.y});
  CheckArray(args.rows, args.num_rows);
  const Opening opening(*memory_);
  ForwardingBackend::GatherRows(args, stream);
}

void FencedBackend::RotaryApply(const kernels::RotaryArgs& args, StreamView stream) {
  CheckTensors({args.x, args.angles, args.y});
  const Opening opening(*memory_);
  ForwardingBackend::RotaryApply(args, stream);
}

void FencedBackend::SumOfSquares(ConstTensorView x, TensorView sums, StreamView stream) {
  CheckTensors({x, sums});
  const Opening opening(*memory_);
  ForwardingBackend::SumOfSquares(x, sums, stream);
}

void FencedBackend::ComputeGradientClip(const kernels::ComputeGradientClipArgs& args,
                                        StreamView stream) {
  CheckTensors({args.sums});
  CheckArray(args.control, 1);
  const Opening opening(*memory_);
  ForwardingBackend::ComputeGradientClip(args, stream);
}

void FencedBackend::Add(ConstTensorView a, ConstTensorView b, TensorView y, StreamView stream) {
  CheckTensors({a, b, y});
  const Opening opening(*memory_);
  ForwardingBackend::Add(a, b, y, stream);
}

void FencedBackend::Cast(ConstTensorView x, TensorView y, StreamView stream) {
  CheckTensors({x, y});
  const Opening opening(*memory_);
  ForwardingBackend::Cast(x, y, stream);
}

void FencedBackend::Digest(ConstTensorView x, TensorView digest, StreamView stream) {
  CheckTensors({x, digest});
  const Opening opening(*memory_);
  ForwardingBackend::Digest(x, digest, stream);
}

void FencedBackend::FillZero(TensorView x, StreamView stream) {
  CheckTensors({x});
  const Opening opening(*memory_);
  ForwardingBackend::FillZero(x, stream);
}

}  // namespace anyorder::testing
