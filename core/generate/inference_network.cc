#include "core/generate/inference_network.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/network/forward_pass.h"
#include "core/network/layers/loss_head.h"

namespace anyorder {

namespace {

template <typename T>
double LogSum(const T* scores, int64_t count) {
  const T largest = *std::max_element(scores, scores + count);
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += std::exp(static_cast<double>(scores[i] - largest));
  return static_cast<double>(largest) + std::log(sum);
}

// log p = log softmax_head(w), or log softmax_head(cluster) + log softmax_cluster(w).
template <typename T>
void Join(const std::vector<AdaptiveCluster>& clusters, const std::vector<HostCopy>& scores,
          TensorView logits) {
  const int64_t vocab_size = logits.dim(1);
  for (int64_t row = 0; row < logits.dim(0); ++row) {
    const int64_t head_entries = scores[0].view().dim(1);
    const T* const head = scores[0].view().data<T>() + row * head_entries;
    const double head_sum = LogSum(head, head_entries);
    for (size_t c = 0; c < clusters.size(); ++c) {
      const AdaptiveCluster& cluster = clusters[c];
      const T* const words = scores[c].view().data<T>() + row * scores[c].view().dim(1);
      double before = -head_sum;
      if (c > 0) {
        const int64_t entry = clusters[0].size() + static_cast<int64_t>(c) - 1;
        before += static_cast<double>(head[entry]) - LogSum(words, cluster.size());
      }
      T* const out = logits.data<T>() + row * vocab_size + cluster.begin;
      for (int64_t i = 0; i < cluster.size(); ++i)
        out[i] = static_cast<T>(before + static_cast<double>(words[i]));
    }
  }
}

}  // namespace

absl::Status AdaptiveLogits::Allocate(const NetworkShape& shape, int64_t rows,
                                      kernels::Backend& backend) {
  if (!shape.model.adaptive()) return absl::OkStatus();
  clusters_ = AdaptiveClusters(shape.model, shape.vocab_size);
  const DType dtype = shape.gradient_dtype();
  const auto num_tails = static_cast<int64_t>(clusters_.size()) - 1;
  ASSIGN_OR_RETURN(storage_,
                   backend.Allocate(rows * (shape.vocab_size + num_tails) * SizeOf(dtype)));
  char* place = static_cast<char*>(storage_->data());
  for (const AdaptiveCluster& cluster : clusters_) {
    scores_.emplace_back(place, dtype, Shape{rows, cluster.classes});
    place += scores_.back().num_bytes();
  }
  fetched_.resize(scores_.size());
  return absl::OkStatus();
}

void AdaptiveLogits::Run(const StepContext& context, ConstTensorView x, TensorView logits) {
  for (size_t c = 0; c < clusters_.size(); ++c) {
    const ClusterTensors<ConstTensorView>& cluster = context.weights.clusters[c];
    ConstTensorView input = x;
    if (!cluster.output_projection.is_null()) {
      const TensorView narrow =
          context.activations.cluster_narrow.Slice(0, {x.dim(0), cluster.table.dim(1)});
      context.backend.Gemm({.a = x, .b = cluster.output_projection, .c = narrow}, context.stream);
      input = narrow;
    }
    const TensorView scores = scores_[c].Slice(0, {x.dim(0), scores_[c].dim(1)});
    Dense(context, input, cluster.table, cluster.bias, scores);
    fetched_[c].Fetch(scores, context.backend, context.stream);
  }
  context.backend.Synchronize(context.stream);
  if (logits.dtype() == DType::kFloat64) {
    Join<double>(clusters_, fetched_, logits);
  } else {
    Join<float>(clusters_, fetched_, logits);
  }
}

InferenceNetwork::InferenceNetwork(const NetworkShape& shape, kernels::Backend& backend,
                                   int64_t logit_rows)
    : shape_(shape),
      backend_(backend),
      logit_rows_(logit_rows),
      device_(shape_.batch, inputs_),
      embedding_(shape_, inputs_),
      readout_(shape.num_targets(), inputs_),
      graphs_(backend) {
  shape_.retention = {.learns = false};
}

absl::StatusOr<std::unique_ptr<InferenceNetwork>> InferenceNetwork::Create(
    const NetworkShape& shape, kernels::Backend& backend, std::optional<int64_t> logit_rows) {
  RETURN_IF_ERROR(shape.model.Validate().ToStatus());
  RETURN_IF_ERROR(CheckAdaptiveClusters(shape.model, shape.vocab_size));
  if (!backend.Supports(shape.dtype())) {
    return InvalidArgument("model.dtype ", std::string(Name(shape.dtype())),
                           " is not supported by the ", backend.name(), " backend; choose fp32");
  }
  std::unique_ptr<InferenceNetwork> network(
      new InferenceNetwork(shape, backend, logit_rows.value_or(shape.num_targets())));
  RETURN_IF_ERROR(network->Allocate());
  return network;
}

absl::Status InferenceNetwork::Allocate() {
  RETURN_IF_ERROR(activations_.Allocate(shape_, backend_));
  RETURN_IF_ERROR(tables_.Allocate(shape_, inputs_, backend_));
  RETURN_IF_ERROR(adaptive_.Allocate(shape_, logit_rows_, backend_));
  RETURN_IF_ERROR(inputs_.Allocate(backend_));
  const int64_t elements = logit_rows_ * shape_.vocab_size;
  if (backend_.is_host_memory() || shape_.model.adaptive() || elements == 0)
    return absl::OkStatus();
  ASSIGN_OR_RETURN(logits_, backend_.Allocate(elements * SizeOf(shape_.gradient_dtype())));
  return absl::OkStatus();
}

void InferenceNetwork::SendInputs(const StepContext& context) {
  device_.Set(context.batch());
  embedding_.SetInputs(context.batch());
  tables_.SetInputs(context);
  for (int64_t i = 0; i < readout_.size(); ++i) {
    const int32_t row = context.batch().readout_rows[i];
    readout_.Set(context, i, row, row);
  }
  readout_.Send();
  inputs_.Send(context.stream);
}

void InferenceNetwork::Run(const Batch& batch, ConstTensorView weights, KeyCache* cache) {
  ANYORDER_CHECK(batch.shape == shape_.batch) << "the batch is not of the network's shape";
  ANYORDER_CHECK((cache != nullptr) == (shape_.batch.cached_keys > 0)) << "key cache";
  const StepArgs args{.batch = &batch, .training = false};
  const StepContext context = Context(args, cache);
  BindTensors(shape_, {.trained = weights}, &weights_);
  SendInputs(context);
  Record(ForwardChoices(cache), [&] {
    tables_.Prepare(context);
    ForwardPass(context, embedding_, tables_);
    if (readout_.size() == 0) return;
    readout_.Gather(context, activations_.readout);
    if (shape_.model.mlm_head) PredictionHeadForward(context, activations_.readout);
  });
}

// What else than the network's shape decides: position tables that are there already, and which
// lanes' keys move together (attention_block.cc).
std::vector<int64_t> InferenceNetwork::ForwardChoices(const KeyCache* cache) const {
  std::vector<int64_t> choices = {tables_.bands.data() != nullptr ? 1 : 0,
                                  tables_.relative.num_tables()};
  if (cache == nullptr) return choices;
  choices.push_back(cache->has_tables ? 1 : 0);
  for (size_t b = 1; b < cache->begin.size(); ++b)
    choices.push_back(cache->begin[b] == cache->begin[b - 1] ? 1 : 0);
  return choices;
}

void InferenceNetwork::Record(const std::vector<int64_t>& choices,
                              absl::FunctionRef<void()> operations) {
  // Without kept keys there is more to compute than to start. An adaptive softmax asks the host.
  const bool is_recorded = shape_.batch.cached_keys > 0 && !shape_.model.adaptive() &&
                           graphs_.IsWorthwhile(shape_.batch.num_rows() * shape_.model.model_dim);
  if (!is_recorded) return operations();
  graphs_.Run(choices, {}, operations);
}

void InferenceNetwork::ReadLogits(const Batch& batch, TensorView logits, int64_t first) {
  const int64_t rows = logits.dim(0);
  ANYORDER_CHECK(rows <= logit_rows_) << rows << " rows of logits, room for " << logit_rows_;
  const StepArgs args{.batch = &batch, .training = false};
  const StepContext context = Context(args, nullptr);
  const int64_t dim = shape_.model.model_dim;
  const TensorView& hidden =  // what the softmax multiplies, [B * targets, d] T
      shape_.model.mlm_head ? activations_.head_output : activations_.readout;
  const ConstTensorView x = hidden.Slice(first * dim, {rows, dim});
  if (shape_.model.adaptive()) return adaptive_.Run(context, x, logits);
  const TensorView computed =
      logits_ == nullptr ? logits : TensorView(logits_->data(), logits.dtype(), logits.shape());
  Record({rows}, [&] {
    Dense(context, x, weights_.softmax(shape_.model), weights_.softmax_bias, computed);
  });
  if (logits_ == nullptr) return;
  backend_.CopyToHost(computed.raw(), logits.raw(), logits.num_bytes(), {});
  backend_.Synchronize({});
}

}  // namespace anyorder
