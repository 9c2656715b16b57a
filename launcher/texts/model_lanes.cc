// ModelTextService's texts that are drawn from left to right, side by side.

#include <algorithm>
#include <cstdint>
#include <deque>
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
  int64_t num_texts() const override;
  void Step() override;

 private:
  struct Asked {
    const CompletionRequest* request;
    EncodedPrompt prompt;
    SampleOptions options;
    std::vector<Completion> completions;  // by sample
    int64_t num_left;                     // texts that are not over
    int64_t num_begun = 0;                // those that have had a lane, the first ones
    absl::Status fault = {};              // its texts are to leave
  };
  struct Text {
    Asked* asked;  // never null
    int64_t sample;
    SampledText drawn;
    std::vector<WrittenToken> written = {};
    std::string told = {};
    bool is_over = false;
  };

  // Texts take lanes as far as there are any, in the order in which they were asked for.
  void TakeLanes();
  absl::Status Read(const std::vector<Prompt>& prompts);
  void WriteToken(int64_t lane);
  // Removes texts that are over or whose request has a fault, and answers.
  void Leave();

  const ModelTextService& service_;
  const int64_t most_texts_;
  std::list<Asked> asked_;            // which texts point into
  std::vector<Text> lanes_;           // the decoder's
  std::unique_ptr<Decoder> decoder_;  // null while no text has a lane
};

absl::Status ModelLanes::Add(const CompletionRequest& request) {
  ASSIGN_OR_RETURN(EncodedPrompt prompt, service_.Encode(request));
  Add(request, std::move(prompt));
  return absl::OkStatus();
}

void ModelLanes::Add(const CompletionRequest& request, EncodedPrompt prompt) {
  SampleOptions options{.cuts = request.write.draw.cuts,
                        .seed = request.write.draw.seed,
                        .rules = service_.RulesOf(request, prompt.max_tokens),
                        .likeliest = request.likeliest};
  asked_.push_back({&request, std::move(prompt), std::move(options),
                    std::vector<Completion>(request.samples), request.samples});
}

int64_t ModelLanes::num_texts() const {
  int64_t texts = 0;
  for (const Asked& asked : asked_) texts += asked.num_left;
  return texts;
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
  std::vector<Text> texts;
  for (Asked& asked : asked_) {
    const int64_t free = most_texts_ - std::ssize(lanes_) - std::ssize(texts);
    const int64_t end = std::min(asked.request->samples, asked.num_begun + free);
    if (end == asked.num_begun) continue;
    prompts.push_back({asked.prompt.tokens, asked.prompt.max_tokens, end - asked.num_begun});
    for (int64_t sample = asked.num_begun; sample < end; ++sample) {
      const uint64_t stream = asked.request->first_stream + static_cast<uint64_t>(sample);
      texts.push_back({&asked, sample, SampledText(&asked.options, stream)});
    }
  }
  if (texts.empty()) return;
  absl::Status status = Read(prompts);
  // Those that are written first leave memory; the first that waits has all of it at last.
  if (absl::IsResourceExhausted(status) && !lanes_.empty()) return;
  if (!status.ok() && texts.size() > 1) {
    texts.erase(texts.begin() + 1, texts.end());
    status = Read({{prompts[0].tokens, prompts[0].max_tokens}});
  }
  if (!status.ok()) return texts[0].asked->fault.Update(status);
  for (Text& text : texts) {
    ++text.asked->num_begun;
    lanes_.push_back(std::move(text));
  }
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
  for (int64_t b = std::ssize(lanes_) - 1; b >= 0; --b) {
    Text& text = lanes_[b];
    if (!text.is_over && text.asked->fault.ok()) continue;
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

absl::Status ModelTextService::Draw(Call& call, const Group& group) const {
  // So many texts have lanes that the network's memory does not grow with the samples.
  int64_t longest = 1;
  for (const size_t n : group)
    longest = std::max(longest, std::ssize(call.prompts[n].tokens) + call.prompts[n].max_tokens);
  ModelLanes lanes(*this, std::max<int64_t>(std::ssize(group), kTokensAtOnce / longest));
  absl::Status status;
  std::deque<CompletionRequest> asked;  // whose answers come here
  for (const size_t n : group) {
    CompletionRequest& request = asked.emplace_back(call.requests[n]);
    request.done = [&, n](absl::StatusOr<std::vector<Completion>> answer) {
      if (answer.ok()) call.completions[n] = *answer;
      status.Update(answer.status());
      if (call.requests[n].done) call.requests[n].done(std::move(answer));
    };
    lanes.Add(request, call.prompts[n]);
  }
  while (status.ok() && lanes.num_texts() > 0) lanes.Step();
  return status;
}

}  // namespace anyorder::launcher
