#include "core/objective/causal_lm.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/types/span.h"

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/objective/lane_frame.h"

namespace anyorder {
namespace {

// A slot that predicts `label`.
void SetSlot(int64_t b, int64_t slot, const Slot& value, int32_t label, float weight,
             Batch& batch) {
  SetContentSlot(b, slot, value, batch);
  SetReadout(b, slot, ContentRow(batch.shape, b) + slot, label, weight, batch);
}

class CausalLm : public Objective {
 public:
  using Objective::Objective;

  std::string quantity() const override { return "NLL of next tokens, read as in training"; }

  BatchShape Shape(int64_t batch_size) const override {
    return {.batch_size = batch_size,
            .content_rows = seq_len_,
            .memory_rows = model_.mem_len,
            .targets = seq_len_,
            .advance = seq_len_,
            .min_distance = 0,  // nobody looks ahead
            .num_distances = longest(),
            .content_readout = true};
  }

  void BuildLane(const TextSample& sample, int64_t b, Batch& batch) const override {
    ANYORDER_CHECK(static_cast<int64_t>(sample.next_tokens.size()) == seq_len_)
        << "sample has " << sample.next_tokens.size() << " next tokens, expected " << seq_len_;
    FillLaneIdentity(sample, b, batch);
    FillMemoryKeys(sample, model_.initial_memory, b, batch);
    const std::vector<int32_t> documents =
        DocumentsOf(sample, sampling_.hide_documents, EodPlace::kBeginsNext);
    for (int64_t slot = 0; slot < seq_len_; ++slot) {
      Slot value = CausalSlot(sample.tokens[slot], slot);
      value.doc = documents[slot];
      SetSlot(b, slot, value, sample.next_tokens[slot], 1.0f, batch);
    }
  }

  FormOrStatus Generation(const GenerationTokens& tokens) const override {
    return MakeCausalGeneration(tokens, longest());
  }

  absl::StatusOr<CanvasForm> Canvas(const GenerationTokens& tokens) const override {
    return MakeCanvas(CanvasFamily::kCausal, longest(), tokens);
  }

 private:
  int64_t longest() const { return seq_len_ + model_.mem_len; }
};

class GptSft final : public CausalLm {
 public:
  using CausalLm::CausalLm;

  std::string quantity() const override {
    return "NLL of the tokens of answers, each given all before it, mean over these tokens";
  }

  void BuildLane(const TextSample& sample, int64_t b, Batch& batch) const override {
    FillLaneIdentity(sample, b, batch);
    std::vector<int64_t> ends = sample.packed_ends;
    if (ends.empty()) ends.push_back(std::ssize(sample.parts));
    int64_t slot = 0, part = 0;
    for (size_t i = 0; i < ends.size(); part = ends[i++]) {
      const auto parts = absl::MakeConstSpan(sample.parts).subspan(part, ends[i] - part);
      slot = AddConversation(parts, sample, static_cast<int32_t>(i), b, slot, batch);
    }
    for (; slot < seq_len_; ++slot) SetSlot(b, slot, PadSlot(slot), 0, 0.0f, batch);
  }

 private:
  // Prompts and answers in turn, from `slot` on, as document `document` with positions of its own;
  // then <eod>, unless the last answer has it by its template. Returns the slot behind it.
  int64_t AddConversation(absl::Span<const std::vector<int32_t>> parts, const TextSample& sample,
                          int32_t document, int64_t b, int64_t slot, Batch& batch) const {
    ANYORDER_CHECK(parts.size() >= 2 && parts.size() % 2 == 0) << "example " << sample.example;
    std::vector<int32_t> tokens;
    std::vector<float> weights;  // of each token as a target
    for (size_t part = 0; part < parts.size(); ++part) {
      tokens.insert(tokens.end(), parts[part].begin(), parts[part].end());
      weights.resize(tokens.size(), part % 2 == 1 ? 1.0f : 0.0f);
    }
    const std::vector<int32_t>& last = parts.back();
    const int64_t source = std::ssize(tokens) - std::ssize(last);
    const int32_t end_token = sample.vocabulary.end_of_document;
    if (end_token >= 0 && std::find(last.begin(), last.end(), end_token) == last.end())
      tokens.push_back(end_token);
    weights.resize(tokens.size(), 1.0f);
    const FittedParts fitted = FitParts({source, std::ssize(tokens) - source}, seq_len_);
    ANYORDER_CHECK(slot + fitted.length() <= seq_len_) << "example " << sample.example;
    const int64_t begin = source - fitted.source;
    for (int64_t i = 0; i < fitted.length(); ++i, ++slot) {
      Slot value = CausalSlot(tokens[begin + i], i);
      value.doc = document;
      const int64_t next = begin + i + 1;
      const bool is_last = i + 1 == fitted.length();  // it predicts nothing
      SetSlot(b, slot, value, is_last ? 0 : tokens[next], is_last ? 0.0f : weights[next], batch);
    }
    return slot;
  }
};

}  // namespace

ObjectiveOrStatus MakeCausalLm(const ObjectiveSettings& settings) {
  if (settings.sampling.hide_documents && settings.model.mem_len > 0) {
    return InvalidArgument("[sampling] hide_documents is true but model.mem_len is ",
                           settings.model.mem_len,
                           ": memory holds other documents; set model.mem_len = 0");
  }
  return std::make_unique<CausalLm>(settings);
}

ObjectiveOrStatus MakeGptSft(const ObjectiveSettings& settings) {
  return std::make_unique<GptSft>(settings);
}

}  // namespace anyorder
