// The answer to a question as a part of a passage: where it starts and where it ends, both of which
// are CLS where no part is the answer. A softmax over the lane's valid rows, the passage's tokens
// and CLS.
//
//   conditional   (XLNet's released run_squad.py, Hugging Face's XLNetForQuestionAnswering)
//       start     one dense layer on each token's state
//       end       given a start: tanh of a dense layer on the token's and the start's states,
//                 LayerNorm, one dense layer. Training: the true start. Evaluation: the likeliest
//                 starts, for each its likeliest ends
//       answer    with an answer class: whether there is none: one dense layer on tanh of another
//                 on the start's and CLS's states. Training: the true start's. Evaluation: the
//                 states' mean by the starts' probabilities. The released code has dropout before
//                 its last layer; there is none here
//       loss = (start + end) / 2 [+ answer / 2], of softmaxes and a logistic loss
//   simple        (Devlin et al. 2019, sections 4.2 and 4.3)
//       start and end are one dense layer each; loss = (start + end) / 2. Evaluation: every pair of
//       the 20 likeliest starts and ends of the window, as in write_predictions of the released
//       run_squad.py

#include <algorithm>
#include <cmath>
#include <tuple>

#include "core/network/heads/task_head.h"
#include "core/network/layers/adapter.h"

namespace anyorder {
namespace {

// Ends that are tried for each start of the conditional form; starts and ends of the simple one.
constexpr int64_t kEndsOfStart = 5;
constexpr int64_t kSimpleEnds = 20;

// A row of one lane that a span may begin or end with.
struct Place {
  int64_t row = 0;
  double score = 0;
};

// The valid rows of a lane from `first` on, with what `score(row)` says.
template <typename Score>
std::vector<Place> Places(const Batch& batch, int64_t b, int64_t first, const Score& score) {
  const int64_t rows = batch.shape.task_rows;
  std::vector<Place> places;
  for (int64_t row = first; row < rows; ++row)
    if (batch.task_valid[b * rows + row] != 0) places.push_back({row, score(row)});
  return places;
}

// log of the sum of exp(score).
double LogSum(const std::vector<Place>& places) {
  double largest = -std::numeric_limits<double>::infinity();
  for (const Place& place : places) largest = std::max(largest, place.score);
  double sum = 0;
  for (const Place& place : places) sum += std::exp(place.score - largest);
  return largest + std::log(sum);
}

// The `count` best that are not `left_out`, the first of equals first.
std::vector<Place> Best(std::vector<Place> places, int64_t count, int64_t left_out) {
  std::erase_if(places, [&](const Place& place) { return place.row == left_out; });
  std::stable_sort(places.begin(), places.end(),
                   [](const Place& a, const Place& b) { return a.score > b.score; });
  if (std::ssize(places) > count) places.resize(static_cast<size_t>(count));
  return places;
}

// The best first. All stay: which of them count is decided before the best are taken
// (data/sampling/span_answers.h).
void Sort(std::vector<SpanCandidate>& spans) {
  std::sort(spans.begin(), spans.end(), [](const SpanCandidate& a, const SpanCandidate& b) {
    return std::tuple(-a.log_probability, a.begin, a.end) <
           std::tuple(-b.log_probability, b.begin, b.end);
  });
}

// As tokens of the passage.
void AddSpan(const Batch& batch, int64_t b, int64_t first, int64_t last, double score,
             TaskResult& result) {
  const int32_t passage = batch.task_passages[b];
  result.spans.push_back(
      {static_cast<int32_t>(first) - passage, static_cast<int32_t>(last) - passage + 1, score});
}

// F1 of the tokens of two spans of one window.
double TokenF1(int64_t begin, int64_t end, int64_t other_begin, int64_t other_end) {
  const int64_t shared = std::min(end, other_end) - std::max(begin, other_begin);
  const int64_t both = end - begin + other_end - other_begin;
  return shared > 0 ? 2 * static_cast<double>(shared) / static_cast<double>(both) : 0;
}

// The likeliest of `places` is row `row`.
bool IsBest(const std::vector<Place>& places, int64_t row) {
  const std::vector<Place> best = Best(places, 1, -1);
  return !best.empty() && best[0].row == row;
}

class SpanHead final : public TaskHead {
 public:
  SpanHead(const NetworkShape& shape, DeviceInputs& inputs)
      : TaskHead(shape),
        is_conditional_(shape.model.task.span_head == SpanHeadKind::kConditional),
        has_answer_class_(shape.model.task.answer_class),
        inputs_(inputs),
        states_(lanes_ * rows_, inputs) {
    if (rows_ == 0) return;
    lane_of_row_ = {lanes_ * rows_, inputs};
    for (int64_t i = 0; i < lanes_ * rows_; ++i)
      lane_of_row_.host[i] = static_cast<int32_t>(i / rows_);
    start_rows_ = {lanes_, inputs};
    classifier_rows_ = {lanes_, inputs};
    half_weights_ = {lanes_, inputs};
    ones_ = {lanes_, inputs};
    std::fill(ones_.host.begin(), ones_.host.end(), 1.0f);
    if (!is_conditional_) return;
    for (int64_t k = 0; k < kSearchedStarts; ++k) searched_rows_.emplace_back(lanes_, inputs);
  }

  void SetInputs(const StepContext& context) override {
    if (rows_ == 0) return;
    const Batch& batch = context.batch();
    for (int64_t i = 0; i < lanes_ * rows_; ++i)
      states_.Set(context, i, batch.task_rows[i], batch.task_rows[i]);
    states_.Send();
    for (int64_t b = 0; b < lanes_; ++b) {
      start_rows_.host[b] = static_cast<int32_t>(b * rows_) + batch.task_starts[b];
      classifier_rows_.host[b] = static_cast<int32_t>(b * rows_) + batch.task_classifiers[b];
      half_weights_.host[b] = batch.task_weights[b] / 2;
    }
    for (ComputedArray<int32_t>* array : {&lane_of_row_, &start_rows_, &classifier_rows_})
      array->Set();
    half_weights_.Set();
    ones_.Set();
  }

 private:
  void RunRows(const StepContext& context) const override {
    const TensorView& states = context.activations.task.states;
    const kernels::Dropout dropout = context.ReadoutDropout(kReadoutSite);
    states_.Gather(context, states);
    DropRows(context, dropout, states_.ids(), states);
    if (is_conditional_) {
      RunConditional(context);
    } else {
      RunSimple(context);
    }
    if (!context.learns()) return;
    const TensorView& dstates = context.activations.task.dstates;
    DropRows(context, dropout, states_.ids(), dstates);
    states_.AddGradients(context, dstates);
  }

  void FetchMore(const StepContext& context) override {
    const TaskActivations& a = context.activations.task;
    const auto fetch = [&](const TensorView& tensor, HostCopy& copy) {
      copy.Fetch(tensor, context.backend, context.stream);
    };
    fetch(a.end_logits, ends_);
    fetch(a.end_losses, end_losses_);
    if (!has_answer_class_) return;
    fetch(a.answer_logits, answers_);
    fetch(a.answer_losses, answer_losses_);
  }

  // Evaluation: logits of ends for CLS and the likeliest starts as starts.
  void Search(const StepContext& context) override {
    if (!is_conditional_ || context.args.training) return;
    const Batch& batch = context.batch();
    for (int64_t b = 0; b < lanes_; ++b) {
      const int64_t classifier = batch.task_classifiers[b];
      std::vector<Place> tried = {{classifier}};
      const auto logit = [&](int64_t row) { return logits_.At(b * rows_ + row); };
      const std::vector<Place> best =
          Best(Places(batch, b, 0, logit), kSearchedStarts - 1, classifier);
      tried.insert(tried.end(), best.begin(), best.end());
      // A short passage leaves starts over: CLS once more.
      tried.resize(static_cast<size_t>(kSearchedStarts), tried[0]);
      for (int64_t k = 0; k < kSearchedStarts; ++k)
        searched_rows_[k].host[b] = static_cast<int32_t>(b * rows_ + tried[k].row);
    }
    for (ComputedArray<int32_t>& rows : searched_rows_) rows.Set();
    inputs_.Send(context.stream);
    const TaskActivations& a = context.activations.task;
    for (int64_t k = 0; k < kSearchedStarts; ++k) {
      GatherRows(context, a.states, searched_rows_[k].data(), lanes_, a.starts);
      ScoreEnds(context, Rows(a.searched, k * lanes_ * rows_, lanes_ * rows_));
    }
    searched_.Fetch(a.searched, context.backend, context.stream);
    context.backend.Synchronize(context.stream);
  }

  TaskResult ResultOf(const StepContext& context, int64_t b) const override {
    const Batch& batch = context.batch();
    TaskResult result;
    result.loss = (losses_.At(b) + end_losses_.At(b)) / 2;
    if (has_answer_class_) result.loss += answer_losses_.At(b) / 2;
    const bool has_label = batch.task_weights[b] > 0;
    if (context.args.training) {
      const auto is_best = [&](const HostCopy& logits, int64_t row) {
        return IsBest(Places(batch, b, 0, [&](int64_t i) { return logits.At(b * rows_ + i); }),
                      row);
      };
      if (!has_label) return result;
      result.num_judged = 1;
      const bool is_correct =
          is_best(logits_, batch.task_starts[b]) && is_best(ends_, batch.task_ends[b]);
      result.num_correct = is_correct ? 1 : 0;
      return result;
    }
    if (is_conditional_) {
      AddConditionalSpans(batch, b, result);
    } else {
      AddSimpleSpans(batch, b, result);
    }
    if (!has_label) return result;
    const bool is_none = batch.task_labels[b] == 1;
    if (result.says_none() || is_none) {
      result.span_f1 = result.says_none() == is_none ? 1 : 0;
    } else {
      const int32_t passage = batch.task_passages[b];
      result.span_f1 = TokenF1(result.spans[0].begin, result.spans[0].end,
                               batch.task_starts[b] - passage, batch.task_ends[b] - passage + 1);
    }
    result.num_judged = 1;
    result.num_correct = result.span_f1 == 1 ? 1 : 0;
    return result;
  }

  void RunSimple(const StepContext& context) const {
    const TaskActivations& a = context.activations.task;
    const ConstTensorView& w = context.weights.task.span;
    const ConstTensorView& bias = context.weights.task.span_bias;
    const int64_t dim = context.model_dim();
    const auto row = [dim](const auto& matrix, int64_t i) {
      return matrix.Slice(i * dim, {1, dim});
    };
    Dense(context, a.states, row(w, 0), bias.Slice(0, {1}), a.logits);
    Dense(context, a.states, row(w, 1), bias.Slice(1, {1}), a.end_logits);
    Softmax(context, a.logits, context.device.task_starts.data(), a.losses, a.dlogits);
    Softmax(context, a.end_logits, context.device.task_ends.data(), a.end_losses, a.dend_logits);
    if (!context.learns()) return;
    const TaskTensors<TensorView>& g = context.gradients.task;
    DenseGradients(context, a.states, a.dlogits, row(g.span, 0), g.span_bias.Slice(0, {1}));
    DenseGradients(context, a.states, a.dend_logits, row(g.span, 1), g.span_bias.Slice(1, {1}));
    context.backend.Gemm({.a = a.dlogits, .b = row(w, 0), .c = a.dstates}, context.stream);
    context.backend.Gemm({.a = a.dend_logits, .b = row(w, 1), .beta = 1, .c = a.dstates},
                         context.stream);
  }

  void RunConditional(const StepContext& context) const {
    const TaskActivations& a = context.activations.task;
    const TaskTensors<ConstTensorView>& w = context.weights.task;
    const int64_t dim = context.model_dim();
    Dense(context, a.states, w.start, w.start_bias, a.logits);
    Softmax(context, a.logits, context.device.task_starts.data(), a.losses, a.dlogits);
    GatherRows(context, a.states, start_rows_.data(), lanes_, a.starts);
    Dense(context, a.states, w.end_inner.Slice(0, {dim, dim}), w.end_inner_bias, a.token_part);
    ScoreEnds(context, a.end_logits);
    Softmax(context, a.end_logits, context.device.task_ends.data(), a.end_losses, a.dend_logits);
    if (has_answer_class_) RunAnswer(context);
    if (!context.learns()) return;
    EndsBackward(context);
    if (has_answer_class_) AnswerBackward(context);
    ScatterRows(context, a.dstarts, start_rows_.data(), lanes_, a.dstates);
  }

  // Losses of the lanes' `labels` among their rows by `logits`, and with gradients `dlogits`.
  void Softmax(const StepContext& context, const TensorView& logits, const int32_t* labels,
               const TensorView& losses, const TensorView& dlogits) const {
    const bool learns = context.learns();
    kernels::HeadLossArgs args{.logits = logits.Reshape({lanes_, rows_}),
                               .valid = context.device.task_valid.data(),
                               .labels = labels,
                               .row_weights = half_weights_.data(),
                               .loss = losses};
    if (learns) args.dlogits = dlogits.Reshape({lanes_, rows_});
    if (context.args.training) args.smoothing = context.shape.model.task.label_smoothing;
    context.backend.HeadLoss(args, context.stream);
  }

  // Logits of all tokens as ends of spans that begin with the states a.starts.
  void ScoreEnds(const StepContext& context, const TensorView& logits) const {
    const TaskActivations& a = context.activations.task;
    const TaskTensors<ConstTensorView>& w = context.weights.task;
    const int64_t dim = context.model_dim();
    Dense(context, a.starts, w.end_inner.Slice(dim * dim, {dim, dim}), {}, a.start_part);
    GatherRows(context, a.start_part, lane_of_row_.data(), lanes_ * rows_, a.end_inner);
    context.backend.Add(a.end_inner, a.token_part, a.end_inner, context.stream);
    TanhForward(context, a.end_inner, a.end_norm.sum);
    NormForward(context, {w.end_norm, a.end_norm}, a.end_normed);
    Dense(context, a.end_normed, w.end, w.end_bias, logits);
  }

  // Overwrites dstates with what starts and ends say of tokens, and dstarts with what ends say of
  // the starts.
  void EndsBackward(const StepContext& context) const {
    const TaskActivations& a = context.activations.task;
    const TaskTensors<ConstTensorView>& w = context.weights.task;
    const TaskTensors<TensorView>& g = context.gradients.task;
    kernels::Backend& backend = context.backend;
    const int64_t dim = context.model_dim();
    DenseBackward(context, a.states, a.dlogits, {w.start}, {g.start, g.start_bias}, 0, a.dstates);
    DenseBackward(context, a.end_normed, a.dend_logits, {w.end}, {g.end, g.end_bias}, 0, a.dend);
    NormBackward(context, {w.end_norm, a.end_norm}, g.end_norm, a.dend, a.dend);
    TanhBackward(context, a.end_inner, a.dend);
    const Shape half{dim, dim};
    DenseBackward(context, a.states, a.dend, {w.end_inner.Slice(0, half)},
                  {g.end_inner.Slice(0, half), g.end_inner_bias}, 1, a.dstates);

    for (int64_t b = 0; b < lanes_; ++b) {
      backend.ColumnSum(
          {.x = Rows(a.dend, b * rows_, rows_), .y = a.lane_sums.Slice(b * dim, {dim})},
          context.stream);
    }
    backend.Cast(a.lane_sums, a.start_part, context.stream);
    DenseBackward(context, a.starts, a.start_part, {w.end_inner.Slice(dim * dim, half)},
                  {g.end_inner.Slice(dim * dim, half)}, 0, a.dstarts);
  }

  void RunAnswer(const StepContext& context) const {
    const TaskActivations& a = context.activations.task;
    const TaskTensors<ConstTensorView>& w = context.weights.task;
    kernels::Backend& backend = context.backend;
    const int64_t dim = context.model_dim();
    GatherRows(context, a.states, classifier_rows_.data(), lanes_, a.classifiers);
    if (!context.args.training) {
      // Probabilities are the gradient of a softmax, but for the 1 at its label: CLS.
      GatherRows(context, a.states, classifier_rows_.data(), lanes_, a.starts);
      backend.HeadLoss({.logits = a.logits.Reshape({lanes_, rows_}),
                        .valid = context.device.task_valid.data(),
                        .labels = context.device.task_classifiers.data(),
                        .row_weights = ones_.data(),
                        .loss = a.answer_losses,
                        .dlogits = a.dlogits.Reshape({lanes_, rows_})},
                       context.stream);
      backend.Gemm({.a = a.dlogits.Slice(0, {1, rows_}),
                    .b = Rows(a.states, 0, rows_),
                    .beta = 1,
                    .c = Rows(a.starts, 0, 1),
                    .batch = {.count = lanes_, .a = rows_, .b = rows_ * dim, .c = dim}},
                   context.stream);
    }
    Dense(context, a.starts, w.answer_inner.Slice(0, {dim, dim}), w.answer_inner_bias,
          a.answer_inner);
    backend.Gemm({.a = a.classifiers,
                  .b = w.answer_inner.Slice(dim * dim, {dim, dim}),
                  .transpose_b = true,
                  .beta = 1,
                  .c = a.answer_inner},
                 context.stream);
    TanhForward(context, a.answer_inner, a.answer_hidden);
    Dense(context, a.answer_hidden, w.answer, {}, a.answer_logits);
    kernels::HeadLossArgs loss{.kind = kernels::HeadLossKind::kSigmoid,
                               .logits = a.answer_logits,
                               .labels = context.device.task_labels.data(),
                               .row_weights = half_weights_.data(),
                               .loss = a.answer_losses};
    if (context.learns()) loss.dlogits = a.danswer_logits;
    backend.HeadLoss(loss, context.stream);
  }

  // Adds to dstarts, and to dstates what it says of CLS.
  void AnswerBackward(const StepContext& context) const {
    const TaskActivations& a = context.activations.task;
    const TaskTensors<ConstTensorView>& w = context.weights.task;
    const TaskTensors<TensorView>& g = context.gradients.task;
    const int64_t dim = context.model_dim();
    const Shape half{dim, dim};
    DenseBackward(context, a.answer_hidden, a.danswer_logits, {w.answer}, {g.answer}, 0, a.danswer);
    TanhBackward(context, a.answer_inner, a.danswer);
    DenseBackward(context, a.starts, a.danswer, {w.answer_inner.Slice(0, half)},
                  {g.answer_inner.Slice(0, half), g.answer_inner_bias}, 1, a.dstarts);
    DenseBackward(context, a.classifiers, a.danswer, {w.answer_inner.Slice(dim * dim, half)},
                  {g.answer_inner.Slice(dim * dim, half)}, 0, a.classifiers);
    ScatterRows(context, a.classifiers, classifier_rows_.data(), lanes_, a.dstates);
  }

  void AddConditionalSpans(const Batch& batch, int64_t b, TaskResult& result) const {
    const int64_t classifier = batch.task_classifiers[b];
    const auto start_logit = [&](int64_t row) { return logits_.At(b * rows_ + row); };
    const double all_starts = LogSum(Places(batch, b, 0, start_logit));
    for (int64_t k = 0; k < kSearchedStarts; ++k) {
      const int64_t start = searched_rows_[k].host[b] - b * rows_;
      if (k > 0 && start == classifier) continue;
      const auto end_logit = [&](int64_t row) {
        return searched_.At((k * lanes_ + b) * rows_ + row);
      };
      const double all = all_starts + LogSum(Places(batch, b, 0, end_logit));
      if (k == 0) {
        result.null_log_probability = start_logit(classifier) + end_logit(classifier) - all;
        continue;
      }
      for (const Place& end : Best(Places(batch, b, start, end_logit), kEndsOfStart, classifier))
        AddSpan(batch, b, start, end.row, start_logit(start) + end.score - all, result);
    }
    Sort(result.spans);
    if (has_answer_class_) result.answer_logit = answers_.At(b);
  }

  void AddSimpleSpans(const Batch& batch, int64_t b, TaskResult& result) const {
    const int64_t classifier = batch.task_classifiers[b];
    // As in BERT's write_predictions tokens that no answer begins or ends with compete, too: its
    // question, [CLS] and [SEP].
    const auto best = [&](const HostCopy& logits) {
      std::vector<Place> places;
      for (int64_t row = 0; row < rows_; ++row) {
        const int32_t slot = batch.task_rows[b * rows_ + row];
        if (batch.row_doc[slot] >= 0) places.push_back({row, logits.At(b * rows_ + row)});
      }
      places = Best(std::move(places), kSimpleEnds, -1);
      std::erase_if(places, [&](const Place& place) {
        return place.row == classifier || batch.task_valid[b * rows_ + place.row] == 0;
      });
      return places;
    };
    const std::vector<Place> ends = best(ends_);
    for (const Place& start : best(logits_)) {
      for (const Place& end : ends) {
        if (end.row >= start.row)
          AddSpan(batch, b, start.row, end.row, start.score + end.score, result);
      }
    }
    Sort(result.spans);
    result.null_log_probability =
        logits_.At(b * rows_ + classifier) + ends_.At(b * rows_ + classifier);
  }

  const bool is_conditional_;
  const bool has_answer_class_;
  DeviceInputs& inputs_;
  HeadRows states_;                     // [B * rows], in their order
  ComputedArray<int32_t> lane_of_row_;  // [B * rows]
  ComputedArray<int32_t> start_rows_;   // [B] among the states, like the next
  ComputedArray<int32_t> classifier_rows_;
  std::vector<ComputedArray<int32_t>> searched_rows_;  // [kSearchedStarts] of [B], CLS first
  ComputedArray<float> half_weights_, ones_;           // [B]
  // The base has logits and losses of starts.
  HostCopy ends_, searched_, answers_;
  HostCopy end_losses_, answer_losses_;
};

}  // namespace

std::unique_ptr<TaskHead> MakeSpanHead(const NetworkShape& shape, DeviceInputs& inputs) {
  return std::make_unique<SpanHead>(shape, inputs);
}

}  // namespace anyorder
