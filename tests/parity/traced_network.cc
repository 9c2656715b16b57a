#include "tests/parity/traced_network.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/check.h"
#include "core/base/status.h"
#include "tests/testing/forwarding_backend.h"

namespace anyorder {

static std::vector<float> Copy(const ConstTensorView& view) {
  std::vector<float> values(static_cast<size_t>(view.num_elements()));
  const auto fill = [&](const auto* from) {
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(from[i]);
  };
  view.dtype() == DType::kBFloat16 ? fill(view.data<BFloat16>()) : fill(view.data<float>());
  return values;
}

// Recognises the calls that make a level by the weights that they are given.
class TracingBackend final : public testing::ForwardingBackend {
 public:
  explicit TracingBackend(std::unique_ptr<kernels::Backend> inner)
      : ForwardingBackend(std::move(inner)) {}

  // Before a run with these weights; with levels for num_layers > 0.
  void Expect(const ParameterLayout& layout, const ConstTensorView& weights, int64_t num_layers) {
    const auto place = [&](const std::string& name) {
      return weights.Slice(layout.Find(name).offset, {1}).raw();
    };
    const auto find = [&](const char* name) -> const void* {
      return layout.Contains(name) ? place(name) : nullptr;
    };
    word_embedding_ = find("transformer.word_embedding.weight");
    const void* const own = find("lm_loss.weight");
    softmax_ = own != nullptr ? own : word_embedding_;
    summary_ = find("logits_proj.weight");
    levels_.assign(num_layers > 0 ? static_cast<size_t>(num_layers) + 1 : 0, {});
    gammas_.clear();
    for (int64_t layer = 0; layer < num_layers; ++layer)
      gammas_.push_back(place(absl::StrCat("transformer.layer.", layer, ".ff.layer_norm.weight")));
  }
  // Rows of a level as the network orders them: content, then query.
  const std::vector<float>& level(size_t index) const { return levels_[index]; }
  std::vector<float> TakeLogits() { return std::move(logits_); }
  std::vector<float> TakeSummaryLogits() { return std::move(summary_logits_); }
  std::vector<std::vector<float>> TakeTaskLogits() { return std::move(task_logits_); }

  void EmbeddingForward(const kernels::EmbeddingForwardArgs& args, StreamView stream) override {
    ForwardingBackend::EmbeddingForward(args, stream);
    if (levels_.empty()) return;
    const bool is_content = args.table.raw() == word_embedding_;
    ANYORDER_CHECK(is_content == levels_[0].empty()) << "content rows are embedded first";
    const std::vector<float> rows = Copy(args.y);
    levels_[0].insert(levels_[0].end(), rows.begin(), rows.end());
  }
  void LayerNormForward(const kernels::LayerNormForwardArgs& args, StreamView stream) override {
    ForwardingBackend::LayerNormForward(args, stream);
    for (size_t layer = 0; layer < gammas_.size(); ++layer) {
      if (args.gamma.raw() == gammas_[layer]) levels_[layer + 1] = Copy(args.y);
    }
  }
  void HeadLoss(const kernels::HeadLossArgs& args, StreamView stream) override {
    task_logits_.push_back(Copy(args.logits));
    ForwardingBackend::HeadLoss(args, stream);
  }
  // The fused operation never holds the logits: the same product, once more.
  void LinearCrossEntropy(const kernels::LinearCrossEntropyArgs& args, StreamView stream) override {
    if (args.weight.raw() == softmax_) Multiply(args, stream, logits_);
    if (args.weight.raw() == summary_) Multiply(args, stream, summary_logits_);
    ForwardingBackend::LinearCrossEntropy(args, stream);
  }

 private:
  void Multiply(const kernels::LinearCrossEntropyArgs& args, StreamView stream,
                std::vector<float>& logits) {
    const Shape shape{args.x.dim(0), args.weight.dim(0)};
    logits.resize(static_cast<size_t>(shape.num_elements()));
    Gemm({.a = args.x,
          .b = args.weight,
          .transpose_b = true,
          .bias = args.bias,
          .c = TensorView(logits.data(), shape)},
         stream);
  }

  const void* word_embedding_ = nullptr;
  const void* softmax_ = nullptr;  // the embedding, or an output of its own
  const void* summary_ = nullptr;
  std::vector<const void*> gammas_;
  std::vector<std::vector<float>> levels_;
  std::vector<float> logits_, summary_logits_;
  std::vector<std::vector<float>> task_logits_;
};

TracedNetwork::TracedNetwork(const ModelConfig& config, const BatchShape& shape)
    : config_(config), shape_(shape) {}
TracedNetwork::~TracedNetwork() = default;

StepTrace TracedNetwork::Run(const Batch& batch, const std::vector<float>& weights,
                             const std::vector<float>& memory, bool with_gradients) {
  // Rings that start at slot 0, of which the step reads the first rows and leaves the last.
  const int64_t rings = shape_.batch_size * config_.num_layers;
  const int64_t memory_size = shape_.memory_rows * config_.model_dim;
  const int64_t ring_size = shape_.ring_rows() * config_.model_dim;
  std::vector<float> slots(static_cast<size_t>(rings * ring_size));
  StepTrace trace;
  StepArgs args;
  args.batch = &batch;
  const Shape flat{layout().num_elements()};
  const std::vector<BFloat16> rounded = Rounded(weights);
  const ConstTensorView values = rounded.empty() ? ConstTensorView(weights.data(), flat)
                                                 : ConstTensorView(rounded.data(), flat);
  args.weights = values;
  args.training = with_gradients;
  if (shape_.memory_rows > 0) {
    ANYORDER_CHECK(static_cast<int64_t>(memory.size()) == rings * memory_size)
        << memory.size() << " elements of memory";
    for (int64_t ring = 0; ring < rings; ++ring)
      std::copy_n(memory.begin() + ring * memory_size, memory_size,
                  slots.begin() + ring * ring_size);
    args.memory.slots = TensorView(slots.data(), {shape_.batch_size, config_.num_layers,
                                                  shape_.ring_rows(), config_.model_dim});
  }
  if (with_gradients) {
    trace.gradients.resize(weights.size());
    args.gradients = TensorView(trace.gradients.data(), flat);
  }
  backend_->Expect(layout(), values, has_levels() ? config_.num_layers : 0);
  trace.next_sentence_loss = SumNamed("nsp_loss", transformer_->Run(args, {}).sums).sum;
  for (int64_t ring = 0; ring < rings; ++ring) {
    const auto end = slots.begin() + (ring + 1) * ring_size;
    trace.memory.insert(trace.memory.end(), end - memory_size, end);
  }
  trace.losses = transformer_->readout_losses();
  for (const TaskResult& result : transformer_->task_results())
    trace.task_losses.push_back(static_cast<float>(result.loss));
  trace.logits = backend_->TakeLogits();
  trace.summary_logits = backend_->TakeSummaryLogits();
  trace.task_logits = backend_->TakeTaskLogits();
  if (has_levels()) SplitLevels(trace);
  return trace;
}

std::vector<BFloat16> TracedNetwork::Rounded(const std::vector<float>& weights) const {
  std::vector<BFloat16> rounded;
  if (config_.dtype != ComputeType::kBFloat16) return rounded;
  for (const float weight : weights) rounded.push_back(BFloat16(weight));
  return rounded;
}

bool TracedNetwork::has_levels() const {
  return !config_.adaptive() && !config_.sums_embeddings() && !config_.has_distance_bias() &&
         !config_.pre_norm();
}

void TracedNetwork::SplitLevels(StepTrace& trace) const {
  const auto last = static_cast<size_t>(config_.num_layers);
  const int64_t content = shape_.batch_size * shape_.content_rows * config_.model_dim;
  for (size_t index = 0; index <= last; ++index) {
    const std::vector<float>& rows = backend_->level(index);
    const bool has_content = index < last || shape_.content_readout || shape_.query_rows == 0;
    const int64_t split = has_content ? content : 0;
    ANYORDER_CHECK(static_cast<int64_t>(rows.size()) ==
                   split + shape_.batch_size * shape_.query_rows * config_.model_dim)
        << "level " << index << " has " << rows.size() << " elements";
    if (has_content) trace.content.emplace_back(rows.begin(), rows.begin() + split);
    trace.query.emplace_back(rows.begin() + split, rows.end());
  }
}

absl::StatusOr<std::unique_ptr<TracedNetwork>> TracedNetwork::Create(const ModelConfig& config,
                                                                     int64_t vocab_size,
                                                                     const BatchShape& shape,
                                                                     int num_threads) {
  if (config.dropout > 0 || config.attention_dropout > 0)
    return absl::InvalidArgumentError("comparisons take models without dropout");
  if (config.dtype != ComputeType::kFloat32 && shape.memory_rows > 0)
    return absl::InvalidArgumentError("comparisons with memory take fp32 models");
  ASSIGN_OR_RETURN(std::unique_ptr<kernels::Backend> inner,
                   kernels::MakeCpuBackend({.num_threads = num_threads}));
  std::unique_ptr<TracedNetwork> network(new TracedNetwork(config, shape));
  network->backend_ = std::make_unique<TracingBackend>(std::move(inner));
  ASSIGN_OR_RETURN(network->transformer_,
                   Transformer::Create(config, vocab_size, shape, *network->backend_));
  return network;
}

}  // namespace anyorder
