#include "core/train/evaluation/token_states.h"

#include <algorithm>
#include <initializer_list>
#include <numeric>

#include "absl/strings/match.h"

#include "core/base/status.h"
#include "core/objective/lane_frame.h"

namespace anyorder {
namespace {

// Whether the objective is the system's own, or its fine-tuning.
bool IsOneOf(const std::string& objective, std::initializer_list<const char*> systems) {
  return std::any_of(systems.begin(), systems.end(),
                     [&](const char* system) { return absl::StartsWith(objective, system); });
}

// Lengths that networks are made for: few, and none twice the text's.
int64_t RoundedSlots(int64_t slots, int64_t most) {
  constexpr int64_t kLeast = 8;
  int64_t rounded = kLeast;
  while (rounded < slots) rounded += std::max(kLeast, rounded / 4);
  return std::min(rounded, most);
}

std::vector<float> ToFloat(const std::vector<char>& bytes, DType dtype) {
  const auto convert = [&](auto* values) {
    std::vector<float> converted(bytes.size() / sizeof(*values));
    for (size_t i = 0; i < converted.size(); ++i) converted[i] = static_cast<float>(values[i]);
    return converted;
  };
  const void* data = bytes.data();
  if (dtype == DType::kFloat64) return convert(static_cast<const double*>(data));
  if (dtype == DType::kBFloat16) return convert(static_cast<const BFloat16*>(data));
  return convert(static_cast<const float*>(data));
}

}  // namespace

TokenEncoder::TokenEncoder(const RunConfig& config, const VocabularyIds& vocabulary,
                           const TokenStateOptions& options, ConstTensorView weights,
                           kernels::Backend& backend)
    : config_(config),
      vocabulary_(vocabulary),
      batch_size_(options.batch_size),
      weights_(weights),
      backend_(backend) {
  const std::string& objective = config.objective.name;
  const SamplingConfig& sampling = config.sampling;
  if (IsOneOf(objective, {"permutation_lm", "xlnet", "dae"})) frame_ = Frame::kXlnet;
  if (IsOneOf(objective, {"bert", "unilm"})) frame_ = Frame::kBert;
  if (IsOneOf(objective, {"longformer"})) frame_ = Frame::kGlobals;
  is_causal_ = IsOneOf(objective, {"causal_lm", "gpt"});
  if (frame_ == Frame::kXlnet || frame_ == Frame::kBert) num_special_ = 2;
  if (frame_ == Frame::kGlobals) num_special_ = sampling.global_classifiers;
  // Longformer's sequence is that of the text alone (core/objective/longformer).
  const int64_t learned = sampling.seq_len + (frame_ == Frame::kGlobals ? num_special_ : 0);
  max_slots_ = options.max_slots > 0 ? options.max_slots : learned;
  // Recurrence memory is not read; the released forms of same_length say a window by it.
  if (config_.model.same_length == SameLength::kOff) config_.model.mem_len = 0;
}

absl::StatusOr<std::unique_ptr<TokenEncoder>> TokenEncoder::Create(const RunConfig& config,
                                                                   const VocabularyIds& vocabulary,
                                                                   const TokenStateOptions& options,
                                                                   ConstTensorView weights,
                                                                   kernels::Backend& backend) {
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

int64_t TokenEncoder::first_token() const {
  if (frame_ == Frame::kBert) return 1;
  return frame_ == Frame::kGlobals ? num_special_ : 0;
}

int64_t TokenEncoder::TokensOf(const std::vector<int32_t>& text) const {
  return std::min(static_cast<int64_t>(text.size()), max_tokens());
}

BatchShape TokenEncoder::ShapeOf(int64_t slots) const {
  BatchShape shape = WindowShape({.seq_len = slots, .content = slots}, batch_size_);
  if (frame_ != Frame::kGlobals) return shape;
  const int64_t stride = config_.sampling.global_stride;
  shape.global_rows = num_special_;
  if (stride > 0) shape.global_rows += (slots - num_special_ + stride - 1) / stride;
  return shape;
}

void TokenEncoder::FillLane(const std::vector<int32_t>& text, int64_t b, Batch& batch) const {
  const int64_t first = first_token();
  const int64_t tokens = TokensOf(text);
  const int64_t used = tokens + num_special_;
  const int64_t stride = frame_ == Frame::kGlobals ? config_.sampling.global_stride : 0;
  int64_t global = b * batch.shape.global_rows;
  batch.lanes[b] = b;
  for (int64_t place = 0; place < batch.shape.content_rows; ++place) {
    const int64_t at = place - first;
    const bool is_text = at >= 0 && at < tokens;
    const bool is_cls = frame_ == Frame::kXlnet ? place == used - 1 : at < 0;
    int32_t token = is_cls ? vocabulary_.classifier : vocabulary_.separator;
    if (is_text) token = text[static_cast<size_t>(at)];
    // XLNet's CLS has a segment of its own (TextSample::segment).
    const int32_t segment = is_cls && frame_ == Frame::kXlnet ? 2 : 0;
    Slot slot = RankedSlot(token, place, is_causal_ ? place : 0, segment);
    if (place >= used) slot = PadSlot(place);
    SetContentSlot(b, place, slot, batch);
    const bool is_global =
        frame_ == Frame::kGlobals && (at < 0 || (stride > 0 && at % stride == 0));
    if (!is_global) continue;
    const int64_t row = ContentRow(batch.shape, b) + place;
    batch.global_slots[global++] = static_cast<int32_t>(row);
    const bool is_seen = place < used;
    batch.row_glob[row] = batch.key_glob[ContentKey(batch.shape, b) + place] = is_seen ? 1 : 0;
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
  const int64_t row_bytes = dim() * SizeOf(output.dtype());
  for (size_t n = 0; n < chosen.size(); ++n) {
    const int64_t tokens = TokensOf(texts[chosen[n]]);
    std::vector<char> bytes(static_cast<size_t>(tokens * row_bytes));
    const int64_t row = ContentRow(batch.shape, static_cast<int64_t>(n)) + first_token();
    if (tokens > 0) {
      backend_.CopyToHost(static_cast<const char*>(output.raw()) + row * row_bytes, bytes.data(),
                          tokens * row_bytes, {});
      backend_.Synchronize({});
    }
    ANYORDER_RETURN_IF_ERROR(take(chosen[n], ToFloat(bytes, output.dtype())));
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
      ANYORDER_ASSIGN_OR_RETURN(
          network,
          InferenceNetwork::Create({config_.model, ShapeOf(slots), vocabulary_.size}, backend_));
    }
    std::vector<size_t> chosen;
    for (; begin < order.size() && static_cast<int64_t>(chosen.size()) < batch_size_ &&
           slots_of(order[begin]) == slots;
         ++begin)
      chosen.push_back(order[begin]);
    ANYORDER_RETURN_IF_ERROR(EncodeBatch(texts, chosen, *network, take));
  }
  return absl::OkStatus();
}

}  // namespace anyorder
