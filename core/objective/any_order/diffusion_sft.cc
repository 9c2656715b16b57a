#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/objective/any_order/any_order.h"
#include "core/objective/lane_frame.h"

namespace anyorder {
namespace {

// A prompt and its answer as they stand in a lane: [source][target][<eod> ...].
struct PromptAnswer {
  std::vector<int32_t> tokens;  // of both
  int64_t prompt = 0;           // tokens of the first; the others are masked and predicted

  int64_t answer() const { return std::ssize(tokens) - prompt; }
};

// Of a prompt and an answer with one <eod>.
FittedParts FitWithEod(const PartLengths& parts, int64_t seq_len) {
  return FitParts({parts.source, parts.target + 1}, seq_len);
}

class MaskedDiffusionSft final : public AnyOrderObjective {
 public:
  using AnyOrderObjective::AnyOrderObjective;

  absl::StatusOr<CanvasForm> Canvas(const GenerationTokens& tokens) const override {
    return DiffusionCanvas(CanvasFamily::kMasked, config_, seq_len_, tokens);
  }
  std::string quantity() const override {
    return absl::StrCat(DiffusionQuantity(config_), ", of answers given their prompts",
                        config_.loss_divisor == LossDivisor::kAnswers ? ", mean over answers" : "",
                        PaddingQuantity());
  }
  std::string evaluation_note() const override {
    if (config_.answer_padding == AnswerPadding::kNone) return "";
    return "<eod> after an answer's first is easy to predict and lowers the number: sampling."
           "answer_padding=none scores one for each answer; ";
  }

  // The first token is always the prompt's.
  BatchShape Shape(int64_t batch_size) const override {
    return WindowShape(
        {.seq_len = seq_len_, .content = seq_len_, .targets = seq_len_ - 1, .own_divisor = true},
        batch_size);
  }

  void BuildLane(const TextSample& sample, int64_t b, Batch& batch) const override {
    FillLaneIdentity(sample, b, batch);
    const PromptAnswer text = LayOutLane(sample);
    const int64_t length = std::ssize(text.tokens);
    RandomStream random = LaneDraws(sample);
    MaskedText noise = DrawMasks(sample, config_, text.answer(), text.answer(), random);
    batch.divisors[b] = DivisorOf(noise, config_);
    AddPrompt(text, noise);
    const int32_t padding = sample.vocabulary.end_of_document;
    for (int64_t i = 0; i < seq_len_; ++i) {
      const bool is_text = i < length;
      const int32_t truth = is_text ? text.tokens[i] : padding;
      const int32_t token = is_text && noise.masked[i] != 0 ? sample.vocabulary.mask : truth;
      SetContentSlot(b, i, is_text ? RankedSlot(token, i, 0) : PadSlot(i), batch);
      if (i == 0) continue;
      const int64_t slot = config_.shifted_readout ? i - 1 : i;
      SetReadout(b, i - 1, ContentRow(batch.shape, b) + slot, truth,
                 is_text ? noise.weights[i] : 0.0f, batch);
    }
  }

 private:
  // With LLaDA's divisor the sum over a lane is that of its answer by the answer's length.
  void AddPrompt(const PromptAnswer& text, MaskedText& noise) const {
    noise.masked.insert(noise.masked.begin(), text.prompt, 0);
    noise.weights.insert(noise.weights.begin(), text.prompt, 0.0f);
    if (config_.loss_weight == LossWeight::kCart)
      WeighByContext(std::vector<int32_t>(text.tokens.size(), 0), noise);
    if (config_.loss_divisor != LossDivisor::kAnswers) return;
    for (float& weight : noise.weights)
      weight = static_cast<float>(weight / static_cast<double>(text.answer()));
  }

  PromptAnswer LayOutLane(const TextSample& sample) const {
    ANYORDER_CHECK(sample.parts.size() == 2 && sample.vocabulary.end_of_document >= 0)
        << sample.parts.size() << " parts of example " << sample.example;
    const std::vector<int32_t>& source = sample.parts[0];
    const std::vector<int32_t>& target = sample.parts[1];
    FittedParts parts = FitWithEod({std::ssize(source), std::ssize(target)}, seq_len_);
    int64_t length = parts.length();
    if (config_.answer_padding == AnswerPadding::kSeqLen) length = seq_len_;
    if (config_.is_padded_by_step()) length = FitToStep(sample, parts);

    PromptAnswer text{std::vector<int32_t>(source.end() - parts.source, source.end()),
                      parts.source};
    const int64_t kept = std::min(parts.answer, std::ssize(target));
    text.tokens.insert(text.tokens.end(), target.begin(), target.begin() + kept);
    // No end is learned where an answer does not end.
    if (parts.is_whole)
      text.tokens.resize(static_cast<size_t>(length), sample.vocabulary.end_of_document);
    return text;
  }

  // The length of the step's longest example, all being cut as its draw says: these `parts`, too.
  int64_t FitToStep(const TextSample& sample, FittedParts& parts) const {
    ANYORDER_CHECK(sample.step_lengths != nullptr &&
                   std::ssize(*sample.step_lengths) == sample.num_lanes)
        << "lengths of the step's other examples are missing";
    const std::vector<PartLengths>& lanes = *sample.step_lengths;
    int64_t most = seq_len_;
    if (config_.answer_padding == AnswerPadding::kRandomCut) {
      RandomStream random = StepDraws(sample);
      random.Uniform();  // the turn of the rates
      most = FitWithEod(lanes[random.Below64(lanes.size())], seq_len_).answer;
    }
    const auto cut = [most](FittedParts fitted) {
      fitted.is_whole = fitted.is_whole && fitted.answer <= most;
      fitted.answer = std::min(fitted.answer, most);
      return fitted;
    };
    int64_t longest = 0;
    for (const PartLengths& lane : lanes)
      longest = std::max(longest, cut(FitWithEod(lane, seq_len_)).length());
    parts = cut(parts);
    return longest;
  }

  std::string PaddingQuantity() const {
    switch (config_.answer_padding) {
      case AnswerPadding::kNone: return ", one <eod> after each";
      case AnswerPadding::kSeqLen: return ", with <eod> up to seq_len";
      case AnswerPadding::kLongest: return ", with <eod> up to the batch's longest";
      case AnswerPadding::kRandomCut: return ", cut to the length of one of the batch";
    }
    return "";
  }
};

}  // namespace

ObjectiveOrStatus MakeMaskedDiffusionSft(const ObjectiveSettings& settings) {
  RETURN_IF_ERROR(CheckMaskRates(settings.sampling.any_order));
  return std::make_unique<MaskedDiffusionSft>(settings);
}

}  // namespace anyorder
