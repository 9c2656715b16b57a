#include "core/train/evaluation/token_states.h"

#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "core/base/status.h"
#include "core/network/tensors/host_copy.h"
#include "core/objective/finetuning.h"
#include "core/objective/lane_frame.h"

namespace anyorder {
namespace {

// Lengths that networks are made for: few, and none twice the text's.
int64_t RoundedSlots(int64_t slots, int64_t most) {
  constexpr int64_t kLeast = 8;
  int64_t rounded = kLeast;
  while (rounded < slots) rounded += std::max(kLeast, rounded / 4);
  return std::min(rounded, most);
}

}  // namespace

TokenEncoder::TokenEncoder(const RunConfig& config, const VocabularyIds& vocabulary,
                           const TokenStateOptions& options, ConstTensorView weights,
                           kernels::Backend& backend)
    : config_(config),
      vocabulary_(vocabulary),
      batch_size_(options.batch_size),
      weights_(weights),
      backend_(backend),
      traits_(TraitsOf(config)) {
  const SamplingConfig& sampling = config.sampling;
  layout_ = (traits_.has(ObjectiveTraits::kCausal) ? kTextAlone : traits_.layout).Of(1);
  if (traits_.has(ObjectiveTraits::kGlobals)) {
    constexpr char kClassifier[] = "<cls>:0 ";
    std::string classifiers;
    for (int64_t n = 0; n < sampling.global_classifiers; ++n) classifiers += kClassifier;
    layout_ = absl::StrCat(classifiers, absl::StripPrefix(layout_, kClassifier));
  }
  num_special_ = NumSpecials(layout_);
  const std::vector<int32_t> none;
  first_token_ = LayOut(layout_, vocabulary, {&none}, num_special_).begin[0];
  // Of windows of text the sequence is that of the text alone (core/objective/longformer).
  const bool is_window = traits_.sample_kind == SampleKind::kContiguous;
  const int64_t learned = sampling.seq_len + (is_window ? num_special_ : 0);
  max_slots_ = options.max_slots > 0 ? options.max_slots : learned;
  // Recurrence memory is not read; the released forms of same_length say a window by it.
  if (config_.model.same_length == SameLength::kOff) config_.model.mem_len = 0;
}

absl::StatusOr<std::unique_ptr<TokenEncoder>> TokenEncoder::Create(const RunConfig& config,
                                                                   const VocabularyIds& vocabulary,
                                                                   const TokenStateOptions& options,
                                                                   ConstTensorView weights,
                                                                   kernels::Backend& backend) {
  RETURN_IF_ERROR(ObjectiveNamed(config.objective.name).status());
  std::unique_ptr<TokenEncoder> encoder(
      new TokenEncoder(config, vocabulary, options, weights, backend));
  const ModelConfig& model = config.model;
  if (model.paired_positions()) {
    return InvalidArgument("a state of ", config.objective.name,
                           " depends on the position that is predicted next, which a text alone "
                           "does not say; use a model trained with another objective");
  }
  if (model.positions == Positions::kLearned && encoder->max_slots_ > model.max_positions) {
    return InvalidArgument("sequences of ", encoder->max_slots_,
                           " tokens are asked for, but the model has learned ", model.max_positions,
                           " positions (model.max_positions)");
  }
  if (encoder->max_tokens() >= 1) return encoder;
  return InvalidArgument("sequences of ", encoder->max_slots_, " tokens hold ",
                         encoder->num_special_, " special tokens and no text; allow at least ",
                         encoder->num_special_ + 1);
}

BatchShape TokenEncoder::ShapeOf(int64_t slots) const {
  BatchShape shape = WindowShape({.seq_len = slots, .content = slots}, batch_size_);
  if (!traits_.has(ObjectiveTraits::kGlobals)) return shape;
  const int64_t stride = config_.sampling.global_stride;
  shape.global_rows = first_token_;
  if (stride > 0) shape.global_rows += (slots - first_token_ + stride - 1) / stride;
  return shape;
}

void TokenEncoder::FillLane(const std::vector<int32_t>& text, int64_t b, Batch& batch) const {
  const TaskSequence sequence = LayOut(layout_, vocabulary_, {&text}, max_slots_);
  const int64_t used = std::ssize(sequence.tokens);
  const bool is_causal = traits_.has(ObjectiveTraits::kCausal);
  const bool has_globals = traits_.has(ObjectiveTraits::kGlobals);
  const int64_t stride = config_.sampling.global_stride;
  int64_t global = b * batch.shape.global_rows;
  batch.lanes[b] = b;
  for (int64_t place = 0; place < batch.shape.content_rows; ++place) {
    const auto i = static_cast<size_t>(place);
    SetContentSlot(b, place,
                   place >= used ? PadSlot(place)
                                 : RankedSlot(sequence.tokens[i], place, is_causal ? place : 0,
                                              sequence.segments[i]),
                   batch);
    const int64_t at = place - first_token_;
    const bool is_global = has_globals && (at < 0 || (stride > 0 && at % stride == 0));
    if (!is_global) continue;
    const int64_t row = ContentRow(batch.shape, b) + place;
    batch.global_slots[global++] = static_cast<int32_t>(row);
    batch.row_glob[row] = batch.key_glob[ContentKey(batch.shape, b) + place] = place < used ? 1 : 0;
  }
}

absl::Status TokenEncoder::EncodeBatch(const std::vector<std::vector<int32_t>>& texts,
                                       const std::vector<size_t>& chosen, InferenceNetwork& network,
                                       TakeStates take) const {
  Batch batch(network.shape().batch);
  // Lanes that are left over read the last text again.
  for (int64_t b = 0; b < batch_size_; ++b)
    FillLane(texts[chosen[std::min(static_cast<size_t>(b), chosen.size() - 1)]], b, batch);
  network.Run(batch, weights_, nullptr);
  const ConstTensorView output = network.activations().output;
  HostCopy copied;
  for (size_t n = 0; n < chosen.size(); ++n) {
    const int64_t tokens = TokensOf(texts[chosen[n]]);
    const int64_t row = ContentRow(batch.shape, static_cast<int64_t>(n)) + first_token_;
    if (tokens > 0) copied.Fetch(output.Slice(row * dim(), {tokens, dim()}), backend_, {});
    backend_.Synchronize({});
    std::vector<float> states(static_cast<size_t>(tokens * dim()));
    for (int64_t i = 0; i < tokens * dim(); ++i) states[i] = static_cast<float>(copied.At(i));
    RETURN_IF_ERROR(take(chosen[n], std::move(states)));
  }
  return absl::OkStatus();
}

absl::Status TokenEncoder::Encode(const std::vector<std::vector<int32_t>>& texts,
                                  TakeStates take) const {
  const auto slots_of = [&](size_t text) {
    return RoundedSlots(TokensOf(texts[text]) + num_special_, max_slots_);
  };
  std::vector<size_t> order(texts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return slots_of(a) < slots_of(b); });
  std::unique_ptr<InferenceNetwork> network;
  for (size_t begin = 0; begin < order.size();) {
    const int64_t slots = slots_of(order[begin]);
    if (network == nullptr || network->shape().batch.content_rows != slots) {
      network.reset();  // before the next takes memory
      ASSIGN_OR_RETURN(network, InferenceNetwork::Create(
                                    {config_.model, ShapeOf(slots), vocabulary_.size}, backend_));
    }
    std::vector<size_t> chosen;
    for (; begin < order.size() && std::ssize(chosen) < batch_size_ &&
           slots_of(order[begin]) == slots;
         ++begin)
      chosen.push_back(order[begin]);
    RETURN_IF_ERROR(EncodeBatch(texts, chosen, *network, take));
  }
  return absl::OkStatus();
}

}  // namespace anyorder
