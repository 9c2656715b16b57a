#include "core/generate/decoder.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

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
    const GenerationForm& form, const std::vector<Prompt>& prompts, kernels::Backend& backend,
    std::function<absl::Status()> before_pass) {
  ANYORDER_CHECK(!prompts.empty()) << "no prompts";
  std::unique_ptr<Decoder> decoder(new Decoder(model, form));
  ASSIGN_OR_RETURN(decoder->network_,
                   SlotNetwork::Create(model, vocab_size, weights,
                                       {.lanes = 0,
                                        .looks_ahead = form.traits().prompt_looks_ahead,
                                        .context_slots = form.traits().context_slots,
                                        .before_pass = std::move(before_pass)},
                                       backend));
  RETURN_IF_ERROR(decoder->Add(prompts));
  return decoder;
}

absl::Status Decoder::Add(const std::vector<Prompt>& prompts) {
  const int64_t first = lanes();
  int64_t more = 0;
  int64_t key_slots = 0;
  int64_t span = 0;
  for (const Prompt& prompt : prompts) {
    ANYORDER_CHECK(prompt.lanes >= 1 && prompt.max_tokens >= 1)
        << prompt.lanes << " lanes, " << prompt.max_tokens << " tokens";
    RETURN_IF_ERROR(CheckFits(model_, form_, prompt.tokens, prompt.max_tokens));
    more += prompt.lanes;
    key_slots = std::max(key_slots, std::ssize(form_.PromptSlots(prompt.tokens)) +
                                        prompt.max_tokens + form_.traits().passing_slots);
    span = std::max(span, Span(form_.StepSlots(prompt.tokens, prompt.max_tokens - 1, 0)));
  }
  RETURN_IF_ERROR(network_->AddLanes(more, key_slots, span));
  const absl::Status status = ReadPrompts(prompts);
  while (!status.ok() && lanes() > first) Remove(lanes() - 1);
  return status;
}

// One lane computes a prompt; others take its keys over, whichever they are.
absl::Status Decoder::ReadPrompts(const std::vector<Prompt>& prompts) {
  const int64_t first = lanes();
  std::vector<LanePass> passes;
  std::vector<int32_t> parents(lanes_.size());
  std::iota(parents.begin(), parents.end(), 0);
  for (const Prompt& one : prompts) {
    const auto same = std::find_if(lanes_.begin(), lanes_.end(), [&one](const Lane& lane) {
      return lane.prompt->tokens == one.tokens;
    });
    const bool is_new = same == lanes_.end();
    const auto parent =
        is_new ? static_cast<int32_t>(first + std::ssize(passes)) : parents[same - lanes_.begin()];
    if (is_new) passes.push_back({.lasting = form_.PromptSlots(one.tokens)});
    parents.insert(parents.end(), static_cast<size_t>(one.lanes), parent);
    lanes_.insert(lanes_.end(), static_cast<size_t>(one.lanes),
                  {std::make_shared<const Prompt>(one)});
  }
  RETURN_IF_ERROR(RunPrompts(passes, first));
  network_->Reorder(parents);
  for (int64_t b = first; b < lanes(); ++b) {
    const std::vector<Slot> slots = form_.PromptSlots(lanes_[b].prompt->tokens);
    network_->Keep(b, static_cast<int64_t>(slots.size()));  // a lane that is there has gone on
  }
  return absl::OkStatus();
}

// In lanes `first` and on. Prompts share a pass while its rows, padding included, are no more than
// a product computes at once; a longer one is computed alone.
absl::Status Decoder::RunPrompts(const std::vector<LanePass>& passes, int64_t first) {
  for (size_t begin = 0; begin < passes.size();) {
    size_t longest = 0;
    size_t end = begin;
    for (; end < passes.size(); ++end) {
      const size_t most = std::max(longest, passes[end].lasting.size());
      if (end > begin && (end + 1 - begin) * most > size_t{kProductRows}) break;
      longest = most;
    }
    const std::vector<LanePass> together(passes.begin() + static_cast<int64_t>(begin),
                                         passes.begin() + static_cast<int64_t>(end));
    if (longest > 0) RETURN_IF_ERROR(network_->Run(together, first + static_cast<int64_t>(begin)));
    begin = end;
  }
  return absl::OkStatus();
}

LanePass Decoder::Step(const Lane& lane, int32_t newest) const {
  LanePass pass;
  const GenerationForm::Traits& traits = form_.traits();
  const std::vector<Slot> slots = form_.StepSlots(lane.prompt->tokens, lane.target, newest);
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
  ANYORDER_CHECK(static_cast<int64_t>(newest.size()) == lanes()) << newest.size() << " tokens";
  ANYORDER_CHECK(static_cast<int64_t>(parents.size()) == lanes()) << parents.size() << " parents";
  std::vector<LanePass> passes;
  for (int64_t b = 0; b < lanes(); ++b) {
    Lane& lane = lanes_[b];
    ANYORDER_CHECK(lanes_[parents[b]].prompt == lane.prompt)
        << "lane " << b << " cannot go on from lane " << parents[b];
    ANYORDER_CHECK(lane.target < lane.prompt->max_tokens) << "step " << lane.target;
    passes.push_back(Step(lane, newest[b]));
  }
  for (Lane& lane : lanes_) ++lane.target;
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
