#include "core/generate/decoder.h"

#include <algorithm>

#include "core/base/check.h"
#include "core/base/status.h"

namespace anyorder {
namespace {

int64_t Span(const std::vector<Slot>& slots) {
  int64_t span = 0;
  for (const Slot& slot : slots) span = std::max(span, int64_t{slot.pos} + 1);
  return span;
}

}  // namespace

absl::Status CheckFits(const ModelConfig& model, const GenerationForm& form,
                       const std::vector<int32_t>& prompt, int64_t max_tokens) {
  if (prompt.empty() && !form.traits().takes_empty_prompt)
    return absl::InvalidArgumentError("the prompt is empty, but this model rewrites a source text");
  if (!model.learned_positions()) return absl::OkStatus();
  int64_t span = Span(form.StepSlots(prompt, max_tokens - 1, 0));
  if (model.paired_positions()) ++span;  // that of the last token, which is no slot
  if (span <= model.max_positions) return absl::OkStatus();
  return OutOfRange("a prompt of ", prompt.size(), " tokens and ", max_tokens, " to generate need ",
                    span, " positions, but the model has learned ", model.max_positions,
                    " (model.max_positions); shorten the prompt or generate fewer");
}

absl::StatusOr<std::unique_ptr<Decoder>> Decoder::Create(
    const ModelConfig& model, int64_t vocab_size, ConstTensorView weights,
    const GenerationForm& form, const std::vector<std::vector<int32_t>>& prompts,
    const DecoderOptions& options, kernels::Backend& backend) {
  ANYORDER_CHECK(!prompts.empty() && options.lanes_per_prompt >= 1 && options.max_tokens >= 1)
      << prompts.size() << " prompts, " << options.lanes_per_prompt << " lanes each, "
      << options.max_tokens << " tokens";
  const GenerationForm::Traits& traits = form.traits();
  SlotNetworkOptions network{
      .lanes = static_cast<int64_t>(prompts.size()) * options.lanes_per_prompt,
      .looks_ahead = traits.prompt_looks_ahead,
      .context_slots = traits.context_slots};
  for (const std::vector<int32_t>& prompt : prompts) {
    RETURN_IF_ERROR(CheckFits(model, form, prompt, options.max_tokens));
    const auto slots = static_cast<int64_t>(form.PromptSlots(prompt).size());
    network.key_slots =
        std::max(network.key_slots, slots + options.max_tokens + traits.passing_slots);
    network.span = std::max(network.span, Span(form.StepSlots(prompt, options.max_tokens - 1, 0)));
  }
  std::unique_ptr<Decoder> decoder(new Decoder(form, prompts, options));
  ASSIGN_OR_RETURN(decoder->network_,
                   SlotNetwork::Create(model, vocab_size, weights, network, backend));
  RETURN_IF_ERROR(decoder->ReadPrompts());
  return decoder;
}

// One lane computes a prompt; its others take the keys over.
absl::Status Decoder::ReadPrompts() {
  std::vector<LanePass> passes;
  for (const std::vector<int32_t>& prompt : prompts_)
    passes.push_back({.lasting = form_.PromptSlots(prompt)});
  if (std::all_of(passes.begin(), passes.end(),
                  [](const LanePass& pass) { return pass.lasting.empty(); }))
    return absl::OkStatus();
  RETURN_IF_ERROR(network_->Run(passes));
  std::vector<int32_t> lane_of_prompt;
  for (int64_t b = 0; b < lanes(); ++b) lane_of_prompt.push_back(static_cast<int32_t>(PromptOf(b)));
  network_->Reorder(lane_of_prompt);
  return absl::OkStatus();
}

LanePass Decoder::Step(const std::vector<int32_t>& prompt, int32_t newest) const {
  LanePass pass;
  const GenerationForm::Traits& traits = form_.traits();
  const std::vector<Slot> slots = form_.StepSlots(prompt, target_, newest);
  const auto count = static_cast<int64_t>(slots.size());
  ANYORDER_CHECK(count == 1 + traits.passing_slots + traits.query_slots)
      << count << " slots of a step";
  for (int64_t i = 0; i < count; ++i) {
    // Without a newest token there is a pad, so that all steps have as many rows.
    const bool is_lasting = i == 0 && slots[i].doc != kernels::kDocPad;
    const bool is_query = i > traits.passing_slots;
    (is_lasting ? pass.lasting : is_query ? pass.queries : pass.passing).push_back(slots[i]);
  }
  pass.reads = {count - 1};
  return pass;
}

absl::Status Decoder::Next(const std::vector<int32_t>& newest,
                           const std::vector<int32_t>& parents) {
  ANYORDER_CHECK(target_ < options_.max_tokens) << "step " << target_;
  ANYORDER_CHECK(static_cast<int64_t>(newest.size()) == lanes()) << newest.size() << " tokens";
  ANYORDER_CHECK(static_cast<int64_t>(parents.size()) == lanes()) << parents.size() << " parents";
  std::vector<LanePass> passes;
  for (int64_t b = 0; b < lanes(); ++b) {
    ANYORDER_CHECK(PromptOf(parents[b]) == PromptOf(b))
        << "lane " << b << " cannot go on from lane " << parents[b];
    passes.push_back(Step(prompts_[PromptOf(b)], newest[b]));
  }
  ++target_;
  network_->Reorder(parents);
  return network_->Run(passes);
}

absl::StatusOr<const float*> Decoder::Logits(int64_t lane) {
  ASSIGN_OR_RETURN(const ConstTensorView row, Row(lane));
  if (row.dtype() == DType::kFloat32) return row.data<float>();
  float_logits_.assign(row.data<double>(), row.data<double>() + row.num_elements());
  return float_logits_.data();
}

}  // namespace anyorder
