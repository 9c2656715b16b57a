// A TextService without a model, whose answers follow from what it is asked: its tokens are words.

#pragma once

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "core/base/status.h"
#include "launcher/texts/text_service.h"

namespace anyorder::launcher {

class FakeTextService : public TextService {
 public:
  FakeTextService() {
    facts_.run_dir = "runs/fake";
    facts_.step = 7;
    facts_.objective = "fake";
    facts_.seq_len = 64;
    facts_.vocab_size = 1000;
    facts_.max_prompt = kMostTokens;
    facts_.methods = {"left-to-right", "llada"};
    facts_.can_score_exactly = true;
    facts_.chat_template = "chatml";
  }

  static std::vector<std::string> Words(const std::string& text) {
    return absl::StrSplit(text, absl::ByAnyChar(" \n"), absl::SkipEmpty());
  }

  ModelFacts& mutable_facts() { return facts_; }
  const ModelFacts& facts() const override { return facts_; }
  absl::StatusOr<int64_t> CountTokens(const std::string& text) override {
    if (absl::StrContains(text, "uncountable")) return Unavailable("no encoder");
    return static_cast<int64_t>(Words(text).size());
  }

  // The prompt's words backwards, from the `sample`th on; a text ends with them. Token n is
  // " tn".
  absl::StatusOr<std::vector<std::vector<Completion>>> Complete(
      const std::vector<CompletionRequest>& requests) override {
    BeginCall(requests.size());
    std::vector<std::vector<Completion>> results;
    for (const CompletionRequest& request : requests) {
      RETURN_IF_ERROR(Check(request.prompt, "prompt"));
      for (int64_t s = 0; s < request.samples; ++s)
        (s == 0 ? results.emplace_back() : results.back()).push_back(CompleteOne(request, s));
    }
    return results;
  }

  // A word of each text a step.
  std::unique_ptr<CompletionLanes> OpenLanes(int64_t most_texts) override {
    return std::make_unique<Lanes>(*this, most_texts);
  }

  // A blank gets "fillN", N counting blanks, and as many x as its alternative's number.
  absl::StatusOr<std::vector<FilledText>> Fill(const FillRequest& request) override {
    BeginCall(1);
    RETURN_IF_ERROR(Check(request.text, "text"));
    if (!absl::StrContains(request.text, "___"))
      return InvalidArgument("request 1: 'text' has no blank");
    std::vector<FilledText> texts;
    for (int64_t a = 0; a < request.alternatives; ++a) texts.push_back(FillOne(request.text, a));
    return texts;
  }

  // -1 nat a word.
  absl::StatusOr<TextScore> Score(const ScoreRequest& request) override {
    BeginCall(1);
    RETURN_IF_ERROR(Check(request.continuation, "continuation"));
    if (request.check_wanted) RETURN_IF_ERROR(request.check_wanted());
    const auto words = static_cast<int64_t>(Words(request.continuation).size());
    const auto context = static_cast<int64_t>(Words(request.context).size());
    if (words + std::max<int64_t>(1, context) > facts_.seq_len)
      return InvalidArgument("a text of more than ", facts_.seq_len, " tokens");
    scored.push_back(request);
    return TextScore{.log_prob = -static_cast<double>(words),
                     .standard_error = 3,
                     .tokens = words,
                     .bytes = static_cast<int64_t>(request.continuation.size())};
  }

  std::function<void()> before_call = [] {};
  std::vector<size_t> calls;  // requests of each call
  std::vector<ScoreRequest> scored;

 private:
  class Lanes final : public CompletionLanes {
   public:
    Lanes(FakeTextService& service, int64_t most_texts)
        : service_(service), most_texts_(most_texts) {}

    absl::Status Add(const CompletionRequest& request) override {
      RETURN_IF_ERROR(Check(request.prompt, "prompt"));
      Asked& asked = asked_.emplace_back(Asked{&request});
      CompletionRequest silent = request;
      for (int64_t s = 0; s < request.samples; ++s) {
        silent.listener = [&tokens = asked.tokens.emplace_back()](int64_t, const ShownToken& one) {
          tokens.push_back(one);
        };
        asked.texts.push_back(CompleteOne(silent, s));
      }
      asked.told.resize(asked.texts.size());
      return absl::OkStatus();
    }
    int64_t num_texts() const override {
      int64_t texts = 0;
      for (const Asked& asked : asked_) texts += asked.NumLeft();
      return texts;
    }
    void Step() override {
      service_.BeginCall(std::min(num_texts(), most_texts_));
      int64_t lanes = most_texts_;
      for (auto asked = asked_.begin(); asked != asked_.end();) {
        const CompletionRequest& request = *asked->request;
        const absl::Status wanted =
            request.check_wanted ? request.check_wanted() : absl::OkStatus();
        for (size_t s = 0; s < asked->texts.size() && wanted.ok(); ++s) {
          if (asked->IsDone(s) || lanes-- <= 0) continue;
          const std::vector<ShownToken>& written = asked->tokens[s];
          const auto n = static_cast<size_t>(asked->told[s]++);
          if (request.listener && n < written.size()) request.listener(s, written[n]);
        }
        const bool is_over = !wanted.ok() || asked->NumLeft() == 0;
        if (!wanted.ok())
          request.done(wanted);
        else if (is_over)
          request.done(asked->texts);
        asked = is_over ? asked_.erase(asked) : std::next(asked);
      }
    }

   private:
    struct Asked {
      const CompletionRequest* request;
      std::vector<Completion> texts = {};
      std::deque<std::vector<ShownToken>> tokens = {};  // of each, as they are told
      std::vector<int64_t> told = {};                   // how many of them were

      bool IsDone(size_t text) const {
        return told[text] >= std::max<int64_t>(1, texts[text].tokens);
      }
      int64_t NumLeft() const {
        int64_t left = 0;
        for (size_t s = 0; s < texts.size(); ++s) left += IsDone(s) ? 0 : 1;
        return left;
      }
    };
    FakeTextService& service_;
    const int64_t most_texts_;
    std::list<Asked> asked_;
  };

  void BeginCall(size_t requests) {
    before_call();
    calls.push_back(requests);
  }
  static absl::Status Check(const std::string& text, const char* name) {
    if (!absl::StrContains(text, "fault")) return absl::OkStatus();
    return InvalidArgument("'", name, "' has the word fault");
  }

  static Completion CompleteOne(const CompletionRequest& request, int64_t sample) {
    Completion completion;
    std::vector<std::string> words = Words(request.prompt);
    for (const int32_t token : request.prompt_tokens.value_or(std::vector<int32_t>()))
      words.push_back(absl::StrCat("t", token));
    for (const std::string& word : words) {
      const bool joins = request.prompt_tokens && completion.prompt_pieces.empty();
      completion.prompt_pieces.push_back(joins ? word : " " + word);
      ShownToken token{.piece = word, .log_prob = -0.5, .token = 1};
      if (completion.prompt_pieces.size() == 1) token.log_prob = std::nan("");
      if (request.scores_prompt) completion.prompt.push_back(WithLikeliest(request, token));
    }
    std::reverse(words.begin(), words.end());
    words.erase(words.begin(), words.begin() + std::min<int64_t>(sample, words.size()));
    const int64_t most = request.max_tokens > 0 ? request.max_tokens : kDefaultMaxTokens;
    completion.ended = static_cast<int64_t>(words.size()) <= most;
    words.resize(request.only_prompt ? 0 : std::min<size_t>(words.size(), most));
    completion.ended &= !request.only_prompt;
    for (const std::string& word : words) {
      const auto n = static_cast<int64_t>(completion.written.size());
      const auto begin = static_cast<int64_t>(completion.prompt_pieces.size());
      completion.written.push_back(
          WithLikeliest(request, {n + 1, begin + n, " " + word, -0.5, 0.6, 1}));
      // As ModelTextService does it.
      const bool drops =
          n == 0 && (request.begins_text || begin == 0 || absl::EndsWith(request.prompt, " "));
      ShownToken told = completion.written.back();
      if (drops) told.piece = word;
      if (request.listener) request.listener(sample, told);
      completion.text += told.piece;
      ++completion.tokens;
      ++completion.passes;
      completion.log_prob -= 0.5;
    }
    for (const std::string& stop : request.stop) {
      completion.ended |= absl::StrContains(completion.text, stop);
      completion.text = completion.text.substr(0, completion.text.find(stop));
    }
    return completion;
  }

  // Token 1 is written; token 2, "other", is likelier.
  static ShownToken WithLikeliest(const CompletionRequest& request, ShownToken token) {
    if (std::isnan(token.log_prob)) return token;
    if (request.likeliest > 0) token.likeliest.push_back({2, " other", -0.25});
    if (request.likeliest > 1) token.likeliest.push_back({1, token.piece, token.log_prob});
    return token;
  }

  static FilledText FillOne(const std::string& text, int64_t alternative) {
    FilledText filled;
    size_t at = 0;
    for (size_t found = text.find("___"); found != text.npos; found = text.find("___", at)) {
      const std::string word =
          absl::StrCat("fill", filled.blanks.size() + 1, std::string(alternative, 'x'));
      absl::StrAppend(&filled.text, text.substr(at, found - at), word);
      at = std::min(text.find_first_not_of('_', found), text.size());
      filled.blanks.push_back(word);
      filled.lengths.push_back(1);
      const auto n = static_cast<int64_t>(filled.written.size());
      filled.written.push_back({n + 1, n, " " + word, -0.25, 0.8});
      filled.log_prob -= 0.25;
    }
    filled.text += text.substr(at);
    filled.score = filled.log_prob - static_cast<double>(alternative);
    return filled;
  }

  ModelFacts facts_;
};

}  // namespace anyorder::launcher
