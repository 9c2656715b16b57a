#include "core/network/transformer.h"

#include <string>

#include "absl/strings/str_cat.h"

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/config/adaptive_clusters.h"
#include "core/network/forward_pass.h"
#include "core/network/heads/task_head.h"
#include "core/network/layers/attention_block.h"
#include "core/network/layers/attention_tables.h"
#include "core/network/layers/embedding_block.h"
#include "core/network/layers/feed_forward_block.h"
#include "core/network/layers/loss_head.h"
#include "core/network/layers/next_sentence_head.h"
#include "core/network/layers/operations.h"
#include "core/network/tensors/activations.h"
#include "core/network/tensors/device_inputs.h"
#include "core/network/tensors/graph_recorder.h"
#include "core/network/tensors/layer_tensors.h"
#include "core/network/tensors/parameter_walk.h"
#include "core/network/tensors/step_context.h"

namespace anyorder {
namespace {

// Elements of frozen parameters whose gradients are written all the same.
int64_t NumUnreadGradients(const NetworkShape& shape) {
  struct NoView {};
  NetworkTensors<NoView> none;
  int64_t elements = 0;
  const auto add = [&elements](const NoView*, const WalkedParameter& parameter) {
    if (parameter.is_frozen && parameter.always_written) elements += parameter.shape.num_elements();
  };
  ParameterWalk(shape.model, shape.vocab_size, none, add);
  return elements;
}

std::unique_ptr<TaskHead> MakeTaskHead(const NetworkShape& shape, DeviceInputs& inputs) {
  if (shape.model.task.has_spans()) return MakeSpanHead(shape, inputs);
  if (shape.model.task.has_tags()) return MakeTagHead(shape, inputs);
  return MakeClassHead(shape, inputs);
}

class TransformerNetwork final : public Transformer {
 public:
  TransformerNetwork(const NetworkShape& shape, kernels::Backend& backend)
      : shape_(shape),
        backend_(backend),
        layout_(shape.model, shape.vocab_size),
        device_(shape_.batch, inputs_),
        embedding_(shape_, inputs_),
        loss_head_(shape_, inputs_),
        next_sentence_head_(shape_, inputs_),
        task_head_(MakeTaskHead(shape_, inputs_)),
        graphs_(backend) {}

  absl::Status Allocate() {
    RETURN_IF_ERROR(activations_.Allocate(shape_, backend_));
    RETURN_IF_ERROR(tables_.Allocate(shape_, inputs_, backend_));
    if (const int64_t unread = NumUnreadGradients(shape_); unread > 0) {
      const DType dtype = shape_.gradient_dtype();
      ASSIGN_OR_RETURN(unread_memory_, backend_.Allocate(unread * SizeOf(dtype)));
      unread_gradients_ = TensorView(unread_memory_->data(), dtype, {unread});
    }
    return inputs_.Allocate(backend_);
  }

  const ParameterLayout& layout() const override { return layout_; }
  std::vector<int64_t> windows() const override {
    return IsWorthRecording() ? std::vector<int64_t>{0} : layout_.windows();
  }
  std::vector<NamedSum> sums() const override {
    std::vector<NamedSum> all = loss_head_.sums();
    for (const std::vector<NamedSum>* head : {&task_head_->sums(), &next_sentence_head_.sums()})
      all.insert(all.end(), head->begin(), head->end());
    return all;
  }
  const std::vector<float>& readout_losses() const override { return loss_head_.losses(); }
  const std::vector<TaskResult>& task_results() const override { return task_head_->results(); }

  void Skip(const StepArgs& args) const override {
    const int64_t num_layers = shape_.model.num_layers;
    for (int64_t layer = 0; layer < num_layers; ++layer) BeginLayer(args, layer);
    if (!args.gradients_ready) return;
    const std::vector<int64_t>& windows = layout_.windows();
    TellReady(args, windows.back());
    for (int64_t layer = num_layers - 1; layer >= 0; --layer) {
      BeginLayer(args, layer);
      TellReady(args, windows[1 + layer]);
    }
    TellReady(args, 0);
  }

  StepResult Run(const StepArgs& args, StreamView stream) override {
    CheckArguments(args);
    const StepContext context{shape_,   args,       activations_, device_,
                              weights_, gradients_, backend_,     stream};
    const bool learns = context.learns();
    BindTensors(shape_, {args.weights, args.frozen}, &weights_);
    if (learns) BindTensors(shape_, {args.gradients, unread_gradients_}, &gradients_);
    SendInputs(context);
    // What is recorded is asked for at once, and no layer's weights may come later.
    is_recorded_ = IsWorthRecording() && !args.layer_begins;
    if (is_recorded_) {
      if (learns) TellBegin(context, 0);
      graphs_.Run(GraphChoices(context), stream, [&] { Compute(context); });
    } else {
      Compute(context);
    }
    if (is_recorded_ && learns) TellReady(args, 0);
    ReadResults(context);
    return {.loss_sum = loss_head_.loss_sum() + task_head_->loss_sum(),
            .divisor = args.batch->Divisor(),
            .sums = sums()};
  }

 private:
  void CheckArguments(const StepArgs& args) const {
    ANYORDER_CHECK(args.batch != nullptr && args.batch->shape == shape_.batch)
        << "the batch is not of the shape that the network was made for";
    ANYORDER_CHECK(!args.weights.is_null() && args.weights.dtype() == shape_.dtype() &&
                   args.weights.num_elements() == layout_.num_elements())
        << "weights of " << args.weights.num_elements() << " elements";
    ANYORDER_CHECK(layout_.num_frozen_elements() == 0 ||
                   (!args.frozen.is_null() && args.frozen.dtype() == shape_.dtype() &&
                    args.frozen.num_elements() == layout_.num_frozen_elements()))
        << "frozen weights of " << args.frozen.num_elements() << " elements";
    const TensorView& slots = args.memory.slots;
    const Shape slots_shape{shape_.batch.batch_size, shape_.model.num_layers,
                            shape_.batch.ring_rows(), shape_.model.model_dim};
    ANYORDER_CHECK(shape_.batch.memory_rows == 0 ||
                   (!slots.is_null() && slots.dtype() == shape_.dtype() &&
                    slots.shape() == slots_shape && args.memory.start >= 0 &&
                    args.memory.start < shape_.batch.ring_rows()))
        << "memory " << slots.shape().ToString() << " from slot " << args.memory.start << ", not "
        << slots_shape.ToString();
    ANYORDER_CHECK(args.gradients.is_null() || shape_.retention.learns)
        << "gradients of a network that was made without a backward";
    ANYORDER_CHECK(args.gradients.is_null() ||
                   (args.gradients.dtype() == shape_.gradient_dtype() &&
                    args.gradients.num_elements() == layout_.num_elements()))
        << "gradients of " << args.gradients.num_elements() << " elements";
  }

  // All that the host computes from the batch.
  void SendInputs(const StepContext& context) {
    device_.Set(context.batch());
    embedding_.SetInputs(context.batch());
    tables_.SetInputs(context);
    loss_head_.SetInputs(context);
    next_sentence_head_.SetInputs(context);
    task_head_->SetInputs(context);
    inputs_.Send(context.stream);
  }

  void Compute(const StepContext& context) {
    tables_.Prepare(context);
    ForwardPass(context, embedding_, tables_);
    if (context.learns()) {
      TellBeginAhead(context, layout_.windows().back());
      TellBeginAhead(context, 0);
      ClearSums(context);
    }
    loss_head_.Run(context);
    next_sentence_head_.Run(context);
    task_head_->Run(context);
    if (context.learns()) Backward(context);
  }

  // The same operations in every microbatch: clusters make their number depend on the text.
  bool IsWorthRecording() const {
    // Its gradient is one window then, which should not take a gigabyte.
    return !shape_.model.adaptive() && layout_.num_elements() < int64_t{1} << 28 &&
           graphs_.IsWorthwhile(shape_.batch.num_rows() * shape_.model.model_dim);
  }

  // All that decides which operations a microbatch of this network needs.
  std::vector<int64_t> GraphChoices(const StepContext& context) const {
    // A run of slots that wraps takes two copies.
    const RingView& memory = context.args.memory;
    const int64_t memory_rows = shape_.batch.memory_rows;
    const auto wraps = [&memory](int64_t row, int64_t rows) {
      return memory.Runs(row, rows)[1].rows > 0;
    };
    return {context.args.training,
            context.learns(),
            wraps(0, memory_rows),
            wraps(memory_rows, shape_.batch.fresh_rows()),
            loss_head_.is_contiguous(),
            tables_.bands.data() != nullptr,
            tables_.relative.num_tables() > 1};
  }

  // The one wait of a microbatch, but for a head that searches.
  void ReadResults(const StepContext& context) {
    loss_head_.FetchLosses(context);
    next_sentence_head_.FetchLosses(context);
    task_head_->FetchResults(context);
    backend_.Synchronize(context.stream);
    loss_head_.ReadLosses(context);
    next_sentence_head_.ReadLosses(context);
    task_head_->ReadResults(context);
  }

  // Gradients that more than one place adds to; all others are overwritten.
  void ClearSums(const StepContext& context) {
    Clear(context, {gradients_.mask_embedding, gradients_.embedding, gradients_.position_table,
                    gradients_.segment_table, gradients_.classifier, gradients_.softmax_bias});
    for (const ClusterTensors<TensorView>& cluster : gradients_.clusters) {
      if (gradients_.embedding.is_null()) Clear(context, {cluster.table});
      Clear(context, {cluster.input_projection, cluster.output_projection, cluster.bias});
    }
    const LayerGradients& shared = gradients_.layers.front();
    Clear(context, {shared.distance_bias});
    if (shape_.model.untie_r) return;
    Clear(context, {shared.content_bias, shared.position_bias, shared.segment_bias});
  }

  void Backward(const StepContext& context) {
    if (shape_.model.pre_norm()) {
      const TensorView dlast = Rows(activations_.dinput, 0, activations_.final_norm.sum.dim(0));
      NormBackward(context, {weights_.final_norm, activations_.final_norm}, gradients_.final_norm,
                   dlast, dlast);
    }
    // Heads come last in the flat space and are done; what they share with the input, as the
    // embedding, comes first.
    TellReadyAhead(context, layout_.windows().back());
    for (int64_t layer = shape_.model.num_layers - 1; layer >= 0; --layer) {
      BeginLayer(context.args, layer);
      TellBeginAhead(context, layout_.windows()[1 + layer]);
      if (shape_.is_overwritten(layer)) {
        AttentionBlockRecompute(context, tables_, layer);
        FeedForwardBlockRecompute(context, layer);
      }
      FeedForwardBlockBackward(context, layer);
      AttentionBlockBackward(context, tables_, layer);
      TellReadyAhead(context, layout_.windows()[1 + layer]);
    }
    embedding_.Backward(context);
    TellReadyAhead(context, 0);
  }

  // What is recorded meets no other stream; then all is one window.
  void TellBeginAhead(const StepContext& context, int64_t begin) const {
    if (!is_recorded_) TellBegin(context, begin);
  }
  void TellReadyAhead(const StepContext& context, int64_t begin) const {
    if (!is_recorded_) TellReady(context.args, begin);
  }

  static void TellBegin(const StepContext& context, int64_t begin) {
    if (context.args.window_begins) context.args.window_begins(begin);
  }
  static void TellReady(const StepArgs& args, int64_t begin) {
    if (args.gradients_ready) args.gradients_ready(begin);
  }

  NetworkShape shape_;
  kernels::Backend& backend_;
  ParameterLayout layout_;
  DeviceInputs inputs_;
  DeviceBatch device_;
  AttentionTables tables_;
  EmbeddingBlock embedding_;
  LossHead loss_head_;
  NextSentenceHead next_sentence_head_;
  std::unique_ptr<TaskHead> task_head_;
  bool is_recorded_ = false;  // the microbatch under way
  Activations activations_;
  NetworkWeights weights_;
  NetworkGradients gradients_;
  std::unique_ptr<kernels::Buffer> unread_memory_;
  TensorView unread_gradients_;  // NumUnreadGradients; null without adapters
  GraphRecorder graphs_;
};

absl::Status CheckShape(const NetworkShape& shape, const kernels::Backend& backend) {
  FaultList faults;
  const BatchShape& batch = shape.batch;
  faults.Require(
      backend.Supports(shape.dtype()),
      absl::StrCat("model.dtype ", std::string(Name(shape.dtype())), " is not supported by the ",
                   backend.name(), " backend; choose fp32"));
  faults.Require(shape.vocab_size >= 1,
                 absl::StrCat("vocabulary size is ", shape.vocab_size, " but must be at least 1"));
  faults.AddError(CheckAdaptiveClusters(shape.model, shape.vocab_size));
  faults.Require(batch.batch_size >= 1 && batch.content_rows >= 1 && batch.query_rows >= 0 &&
                     batch.targets >= 0,
                 absl::StrCat("a microbatch of ", batch.batch_size, " lanes, ", batch.content_rows,
                              " content and ", batch.query_rows, " query slots cannot run"));
  faults.Require(batch.memory_rows == shape.model.mem_len,
                 absl::StrCat("the batch has ", batch.memory_rows,
                              " memory slots but model.mem_len is ", shape.model.mem_len));
  faults.Require(batch.advance >= 1 && batch.advance <= batch.content_rows,
                 absl::StrCat("lanes advance by ", batch.advance, " of ", batch.content_rows,
                              " content slots"));
  faults.Require(
      !batch.next_sentence || shape.model.next_sentence_head,
      "the batch asks for the next-sentence head but the model has none (objective.next_sentence)");
  faults.Require(batch.cached_keys == 0,
                 "a microbatch with cached keys is the generator's, not a step's");
  const TaskConfig& task = shape.model.task;
  faults.Require(
      batch.task_rows == 0 || (task.has_head() && batch.has_spans == task.has_spans() &&
                               batch.has_tags == task.has_tags() &&
                               (!task.has_choices() || batch.task_rows == task.num_classes) &&
                               (!task.reads_all_tokens() || batch.task_rows == batch.content_rows)),
      absl::StrCat("the batch has ", batch.task_rows,
                   " rows a lane for the task head, which the head of ", EnumName(task.task),
                   " of the model does not read"));
  faults.Require(batch.num_distances >= 1,
                 absl::StrCat("num_distances is ", batch.num_distances, " but must be positive"));
  return faults.ToStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Transformer>> Transformer::Create(const ModelConfig& config,
                                                                 int64_t vocab_size,
                                                                 const BatchShape& shape,
                                                                 kernels::Backend& backend,
                                                                 const Retention& retention) {
  RETURN_IF_ERROR(config.Validate().ToStatus());
  const NetworkShape network_shape{config, shape, vocab_size, retention};
  RETURN_IF_ERROR(CheckShape(network_shape, backend));
  auto network = std::make_unique<TransformerNetwork>(network_shape, backend);
  RETURN_IF_ERROR(network->Allocate());
  return std::unique_ptr<Transformer>(std::move(network));
}

}  // namespace anyorder
