// ModelTextService's texts that are drawn from left to right, side by side.

#include <algorithm>
#include <cstdint>
#include <deque>
#include <iterator>
#include <list>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/generate/decoder.h"
#include "core/generate/sampling.h"
#include "launcher/texts/model_text_service.h"

namespace anyorder::launcher {
namespace {

// One decoder, whose lanes texts take and leave between two tokens.
class ModelLanes final : public CompletionLanes {
 public:
  ModelLanes(const ModelTextService& service, int64_t most_texts)
      : service_(service), most_texts_(most_texts) {}

  absl::Status Add(const CompletionRequest& request) override;
  void Add(const CompletionRequest& request, EncodedPrompt prompt);
  int64_t num_texts() const override { return std::ssize(waiting_) + std::ssize(lanes_); }
  void Step() override;

 private:
  struct Asked {
    const CompletionRequest* request;
    EncodedPrompt prompt;
    std::vector<Completion> completions;  // by sample
    int64_t num_left;
    absl::Status fault;  // its texts are to leave
  };
  struct Text {
    Asked* asked;  // never null
    int64_t sample;
    SampledText drawn;
    std::vector<WrittenToken> written = {};
    std::string told = {};
    bool is_over = false;
  };

  // Texts that wait take lanes as far as there are any.
  void TakeLanes();
  absl::Status Read(const std::vector<Prompt>& prompts);
  void WriteToken(int64_t lane);
  // Removes texts that are over or whose request has a fault, and answers.
  void Leave();

  const ModelTextService& service_;
  const int64_t most_texts_;
  std::list<Asked> asked_;  // which texts point into
  std::deque<Text> waiting_;
  std::vector<Text> lanes_;           // the decoder's
  std::unique_ptr<Decoder> decoder_;  // null while no text has a lane
};

absl::Status ModelLanes::Add(const CompletionRequest& request) {
  ASSIGN_OR_RETURN(EncodedPrompt prompt, service_.Encode(request));
  Add(request, std::move(prompt));
  return absl::OkStatus();
}

void ModelLanes::Add(const CompletionRequest& request, EncodedPrompt prompt) {
  const SampleOptions options{.cuts = request.write.draw.cuts,
                              .seed = request.write.draw.seed,
                              .rules = service_.RulesOf(request, prompt.max_tokens),
                              .likeliest = request.likeliest};
  Asked& asked = asked_.emplace_back(Asked{
      &request, std::move(prompt), std::vector<Completion>(request.samples), request.samples});
  for (int64_t sample = 0; sample < request.samples; ++sample) {
    const uint64_t stream = request.first_stream + static_cast<uint64_t>(sample);
    waiting_.push_back({&asked, sample, SampledText(options, stream)});
  }
}

void ModelLanes::Step() {
  for (Asked& asked : asked_)
    if (asked.request->check_wanted) asked.fault = asked.request->check_wanted();
  Leave();
  TakeLanes();
  if (lanes_.empty()) return Leave();
  std::vector<int32_t> newest;
  for (const Text& text : lanes_)
    newest.push_back(text.written.empty() ? 0 : text.written.back().token);
  std::vector<int32_t> own(lanes_.size());
  std::iota(own.begin(), own.end(), 0);
  const absl::Status status = decoder_->Next(newest, own);
  for (int64_t b = 0; b < std::ssize(lanes_); ++b) {
    lanes_[b].asked->fault.Update(status);
    if (status.ok()) WriteToken(b);
  }
  Leave();
}

void ModelLanes::TakeLanes() {
  std::vector<Prompt> prompts;
  const Asked* last = nullptr;
  int64_t num_new = 0;
  for (const Text& text : waiting_) {
    if (std::ssize(lanes_) + num_new == most_texts_) break;
    const EncodedPrompt& prompt = text.asked->prompt;
    if (text.asked == std::exchange(last, text.asked))
      ++prompts.back().lanes;
    else
      prompts.push_back({prompt.tokens, prompt.max_tokens});
    ++num_new;
  }
  if (num_new == 0) return;
  absl::Status status = Read(prompts);
  // Those that are written first leave memory; the first that waits has all of it at last.
  if (absl::IsResourceExhausted(status) && !lanes_.empty()) return;
  if (!status.ok() && num_new > 1) {
    num_new = 1;
    status = Read({{prompts[0].tokens, prompts[0].max_tokens}});
  }
  if (!status.ok()) return waiting_.front().asked->fault.Update(status);
  std::move(waiting_.begin(), waiting_.begin() + num_new, std::back_inserter(lanes_));
  waiting_.erase(waiting_.begin(), waiting_.begin() + num_new);
}

absl::Status ModelLanes::Read(const std::vector<Prompt>& prompts) {
  if (decoder_ != nullptr) return decoder_->Add(prompts);
  ASSIGN_OR_RETURN(decoder_, service_.OpenDecoder(prompts, nullptr));
  return absl::OkStatus();
}

void ModelLanes::WriteToken(int64_t lane) {
  Text& text = lanes_[lane];
  const absl::StatusOr<const float*> logits = decoder_->Logits(lane);
  if (!logits.ok()) return text.asked->fault.Update(logits.status());
  const std::optional<WrittenToken> token = text.drawn.Draw(*logits, decoder_->vocab_size());
  text.is_over = text.drawn.is_done();
  if (!token) return;
  WrittenToken& written = text.written.emplace_back(*token);
  written.position += std::ssize(text.asked->prompt.tokens);
  const ShownToken shown = service_.Show(written, text.asked->prompt.spaceless);
  const CompletionRequest& request = *text.asked->request;
  if (request.listener) request.listener(text.sample, shown);
  text.told += shown.piece;
  text.is_over |= HasStop(text.told, shown.piece.size(), request.stop);
}

void ModelLanes::Leave() {
  const auto leaves = [](const Text& text) { return text.is_over || !text.asked->fault.ok(); };
  for (int64_t b = std::ssize(lanes_) - 1; b >= 0; --b) {
    Text& text = lanes_[b];
    if (!leaves(text)) continue;
    if (text.is_over) {
      Asked& asked = *text.asked;
      asked.completions[text.sample] = service_.ToCompletion(*asked.request, asked.prompt.tokens,
                                                             text.drawn.text(), text.written);
      --asked.num_left;
    }
    decoder_->Remove(b);
    lanes_.erase(lanes_.begin() + b);
  }
  if (lanes_.empty()) decoder_ = nullptr;
  std::erase_if(waiting_, leaves);
  for (auto asked = asked_.begin(); asked != asked_.end();) {
    if (asked->num_left > 0 && asked->fault.ok()) {
      ++asked;
      continue;
    }
    const CompletionRequest& request = *asked->request;
    if (asked->fault.ok())
      asked->fault = service_.ScorePrompt(request, asked->prompt.tokens, &asked->completions);
    if (asked->fault.ok())
      request.done(std::move(asked->completions));
    else
      request.done(asked->fault);
    asked = asked_.erase(asked);
  }
}

}  // namespace

std::unique_ptr<CompletionLanes> ModelTextService::OpenLanes(int64_t most_texts) {
  return std::make_unique<ModelLanes>(*this, most_texts);
}

absl::Status ModelTextService::Draw(const std::vector<CompletionRequest>& requests,
                                    const std::vector<EncodedPrompt>& prompts, const Group& group,
                                    std::vector<std::vector<Completion>>* completions) const {
  // A few samples of each prompt at a time, so that memory does not grow with all of them.
  int64_t longest = 1;
  for (const size_t n : group)
    longest = std::max(longest, std::ssize(prompts[n].tokens) + prompts[n].max_tokens);
  ModelLanes lanes(*this, std::max<int64_t>(std::ssize(group), kTokensAtOnce / longest));
  absl::Status status;
  std::deque<CompletionRequest> asked;  // whose answers come here
  for (const size_t n : group) {
    CompletionRequest& request = asked.emplace_back(requests[n]);
    request.done = [&, n](absl::StatusOr<std::vector<Completion>> answer) {
      if (answer.ok()) (*completions)[n] = *answer;
      status.Update(answer.status());
      if (requests[n].done) requests[n].done(std::move(answer));
    };
    lanes.Add(request, prompts[n]);
  }
  while (status.ok() && lanes.num_texts() > 0) lanes.Step();
  return status;
}

}  // namespace anyorder::launcher
