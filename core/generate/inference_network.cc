#include "core/generate/inference_network.h"

#include <string>

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/config/adaptive_clusters.h"
#include "core/network/forward_pass.h"
#include "core/network/layers/loss_head.h"
#include "core/network/tensors/step_context.h"

namespace anyorder {
InferenceNetwork::InferenceNetwork(const NetworkShape& shape, kernels::Backend& backend,
                                   int64_t logit_rows)
    : shape_(shape),
      backend_(backend),
      logit_rows_(logit_rows),
      device_(shape_.batch, inputs_),
      embedding_(shape_, inputs_),
      readout_(shape.num_targets(), inputs_),
      graphs_(backend) {}

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
// lanes' keys move together (StoreKeys).
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
  const ConstTensorView x = hidden().Slice(first * dim, {rows, dim});
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
