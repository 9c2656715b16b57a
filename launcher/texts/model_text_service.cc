#include "launcher/texts/model_text_service.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "core/base/status.h"
#include "core/generate/beam_search.h"
#include "core/objective/objective.h"
#include "data/prep/cleaning.h"
#include "data/prep/examples/chat_template.h"
#include "launcher/run/saved_step.h"

namespace anyorder::launcher {
namespace {

using Tokens = std::vector<int32_t>;

constexpr size_t kPartBytes = 1 << 16;  // encoded in some hundredths of a second
constexpr int64_t kCutTokens = 64;      // more than a cut can make of a word

// Requests that can be written together. Drawn ones have their own seeds and lengths.
bool AreAlike(const CompletionRequest& a, const CompletionRequest& b) {
  WriteOptions write = b.write;
  write.draw.seed = a.write.draw.seed;
  return a.beams == b.beams && a.write == write &&
         (!a.beams || (a.min_tokens == b.min_tokens && a.block_ngram == b.block_ngram &&
                       a.cut_context == b.cut_context));
}

BeamOptions BeamsOf(const BeamRequest& request, const TokenRules& rules) {
  return {.width = request.width,
          .length_penalty = request.length_penalty,
          .stop = request.stop_first ? SearchStop::kFirst : SearchStop::kExact,
          .rules = rules};
}

// The text up to its end token, or to the first token that is not there, whatever order it was
// written in.
Hypothesis TextInOrder(std::vector<WrittenToken> written, int64_t begin, int32_t end_token) {
  std::ranges::sort(written, {}, &WrittenToken::position);
  Hypothesis text;
  for (const WrittenToken& token : written) {
    if (token.position != begin++) break;
    text.log_prob += token.log_prob;
    text.ended = token.token == end_token;
    if (text.ended) break;
    text.tokens.push_back(token.token);
  }
  text.score = text.log_prob;
  return text;
}

// Of requests that are computed together: an error if nobody wants any of them.
WantedCheck AnyWanted(const std::vector<CompletionRequest>& requests,
                      const std::vector<size_t>& members) {
  return [&]() -> absl::Status {
    absl::Status last;
    for (const size_t n : members) {
      last = requests[n].check_wanted ? requests[n].check_wanted() : absl::OkStatus();
      if (last.ok()) return last;
    }
    return last;
  };
}

// How the conversations were written that the run learns from, as far as its dataset is there.
std::string ChatTemplateOf(const RunConfig& config) {
  const auto index = ReadTrainingData(config.data.shards, "the chat template", "");
  if (!index.ok()) return "";
  const auto found = index->settings.find("chat_template");
  return found == index->settings.end() ? "" : found->second;
}

// What the chat template of a tokenizer's directory writes behind an answer. "" if there is none,
// or it cannot be used, of which those are told who ask for it.
std::string OwnClosing(const RunVocabulary& vocabulary) {
  const data::ChatMessage messages[] = {{"user", "a"}, {"assistant", ""}};
  const auto chat = data::ChatTemplate::Read("tokenizer");
  const auto tokens = vocabulary.Encode({chat->Render(messages).second}, "the chat template");
  return tokens.ok() ? vocabulary.TextOf(tokens->front()) : "";
}

void KeepLast(int64_t most, Tokens* tokens) {
  const auto size = static_cast<int64_t>(tokens->size());
  if (size > most) tokens->erase(tokens->begin(), tokens->end() - most);
}

// How many of a text's tokens are its context's. Where a piece holds the end of the context and the
// beginning of what follows, it belongs to that, which would else be certain.
int64_t NumGiven(const Tokens& context, const Tokens& whole) {
  const auto [end, unused] =
      std::mismatch(context.begin(), context.end(), whole.begin(), whole.end());
  return end - context.begin();
}

}  // namespace

absl::StatusOr<std::unique_ptr<ModelTextService>> ModelTextService::Open(
    const TextModelOptions& options) {
  ASSIGN_OR_RETURN(const RunConfig config, LoadConfigOfRun(options.run_dir));
  ASSIGN_OR_RETURN(const std::unique_ptr<Objective> objective, MakeObjective(config));
  // Before anything large is read: whether the objective has to do with writing at all.
  const absl::Status generation = objective->Generation({}).status();
  if (!generation.ok() && !objective->Canvas({}).ok()) return generation;
  ASSIGN_OR_RETURN(TextModel model, OpenTextModel(options, config));
  std::unique_ptr<ModelTextService> service(new ModelTextService(std::move(model)));
  service->facts_.run_dir = options.run_dir;
  service->FindForms(*objective);
  return service;
}

void ModelTextService::FindForms(const Objective& objective) {
  const RunConfig& config = model_.config;
  const data::VocabIds& ids = model_.vocabulary.ids();
  const GenerationTokens tokens{
      .classifier = ids.cls, .separator = ids.sep, .mask = ids.mask, .end_of_document = ids.eod};
  end_of_document_ = tokens.end_of_document;
  FormOrStatus form = objective.Generation(tokens);
  if (form.ok()) left_to_right_ = *std::move(form);
  canvas_ = objective.Canvas(tokens);
  for (const data::VocabularyPiece& piece : model_.vocabulary.pieces())
    non_text_.push_back(piece.is_text() ? 0 : 1);
  facts_.step = model_.checkpoint.step();
  facts_.objective = objective.name();
  facts_.seq_len = canvas_.ok() ? canvas_->seq_len : config.sampling.seq_len;
  facts_.vocab_size = model_.vocabulary.size();
  facts_.chat_template = ChatTemplateOf(config);
  if (model_.vocabulary.is_huggingface()) {
    facts_.takes_template_marks = true;
    facts_.own_closing = OwnClosing(model_.vocabulary);
  }
  if (left_to_right_) facts_.methods.emplace_back(EnumName(WriteMethod::kLeftToRight));
  facts_.max_prompt = MostRead();
  if (!canvas_.ok()) return;
  for (const WriteMethod method : MethodsOf(*canvas_))
    facts_.methods.emplace_back(EnumName(method));
  facts_.can_score_exactly = ScoresExactly(*canvas_);
}

absl::StatusOr<WritingModel> ModelTextService::writing_model() const {
  RETURN_IF_ERROR(canvas_.status());
  return WritingModel{.model = &model_.config.model,
                      .vocab_size = model_.vocabulary.size(),
                      .weights = model_.weights.values,
                      .form = *canvas_,
                      .backend = model_.backend.get()};
}

absl::StatusOr<int64_t> ModelTextService::CountTokens(const std::string& text) {
  ASSIGN_OR_RETURN(const std::vector<Tokens> tokens,
                   model_.vocabulary.Encode({text}, "counting tokens"));
  return static_cast<int64_t>(tokens.front().size());
}

ShownToken ModelTextService::Show(const WrittenToken& token, int64_t spaceless) const {
  ShownToken shown{token.pass,     token.position,   TextOf({token.token}),
                   token.log_prob, token.confidence, token.token};
  if (token.position == spaceless && shown.piece.starts_with(' ')) shown.piece.erase(0, 1);
  for (const LikelyToken& one : token.likeliest) {
    std::string text = TextOf({one.token});
    if (text.empty()) text = model_.vocabulary.pieces()[static_cast<size_t>(one.token)].text;
    shown.likeliest.push_back({one.token, std::move(text), one.log_prob});
  }
  return shown;
}

bool ModelTextService::DropsSpace(const CompletionRequest& request, const Tokens& prompt) const {
  const bool rewrites = left_to_right_ && !left_to_right_->traits().takes_empty_prompt;
  const std::string before = request.prompt_tokens ? TextOf(prompt) : request.prompt;
  if (request.begins_text || rewrites || before.empty()) return model_.vocabulary.adds_space();
  // The tokens of most vocabularies do not have the space that a prompt ends with. Bytes of one
  // space may be several tokens; a space before an unknown character, which is no text, is not it.
  const bool has_space = !prompt.empty() && !TextOf({prompt.back()}).empty() &&
                         !data::SpaceAtEnd(TextOf(prompt)).empty();
  return !data::SpaceAtEnd(before).empty() && !has_space;
}

// Whether the model reads seq_len tokens at most; recurrent memory reaches further back, and blocks
// follow one another without end.
bool ModelTextService::IsBounded(WriteMethod method) const {
  const ModelConfig& model = model_.config.model;
  if (model.learned_positions()) return true;
  return method == WriteMethod::kLeftToRight ? model.mem_len == 0
                                             : canvas_->family != CanvasFamily::kBlocks;
}

int64_t ModelTextService::MostRead() const {
  const ModelConfig& model = model_.config.model;
  if (model.learned_positions()) return std::max<int64_t>(facts_.seq_len, model.max_positions);
  const bool is_bounded = (!left_to_right_ || IsBounded(WriteMethod::kLeftToRight)) &&
                          (!canvas_.ok() || canvas_->family != CanvasFamily::kBlocks);
  return is_bounded ? facts_.seq_len : kMemoryReach * facts_.seq_len;
}

absl::Status CheckLength(int64_t num_tokens, int64_t most) {
  if (num_tokens <= most) return absl::OkStatus();
  return OutOfRange("a text of ", num_tokens, " tokens is longer than the ", most,
                    " that are read (--max-prompt); shorten it");
}

absl::StatusOr<std::string> ModelTextService::PartToEncode(const std::string& text, int64_t most,
                                                           bool cuts) const {
  for (auto bytes = std::max<size_t>(kPartBytes, most); bytes < text.size() / 2; bytes *= 2) {
    std::string part = text.substr(cuts ? text.size() - bytes : 0, bytes);
    ASSIGN_OR_RETURN(const std::vector<Tokens> tokens,
                     model_.vocabulary.Encode({part}, "encoding the text"));
    if (std::ssize(tokens[0]) <= most + kCutTokens) continue;
    if (cuts) return part;
    return OutOfRange("the first ", bytes, " bytes of a text have ", tokens[0].size(),
                      " tokens, but at most ", most, " are read (--max-prompt); shorten it");
  }
  return text;
}

absl::StatusOr<int64_t> ModelTextService::MaxTokens(const CompletionRequest& request,
                                                    Tokens* prompt) const {
  int64_t most = request.max_tokens > 0 ? request.max_tokens : kDefaultMaxTokens;
  const bool is_bounded = IsBounded(request.write.method);
  if (request.cut_context && is_bounded) {
    most = std::min(most, std::max<int64_t>(1, facts_.seq_len / 2));
    KeepLast(facts_.seq_len - most, prompt);
  }
  if (request.write.method == WriteMethod::kLeftToRight) {
    absl::Status fits = CheckFits(model_.config.model, *left_to_right_, *prompt, most);
    while (absl::IsOutOfRange(fits) && request.max_tokens == 0 && most > 1)
      fits = CheckFits(model_.config.model, *left_to_right_, *prompt, --most);
    RETURN_IF_ERROR(fits);
    return most;
  }
  const auto given = std::max<int64_t>(1, static_cast<int64_t>(prompt->size()));
  if (!is_bounded || given + most <= canvas_->seq_len) return most;
  if (request.max_tokens == 0 && given < canvas_->seq_len) return canvas_->seq_len - given;
  return OutOfRange("a prompt of ", prompt->size(), " tokens and ", most,
                    " to write are more than the ", canvas_->seq_len,
                    " tokens that this model has learned to read; shorten the prompt or write "
                    "fewer");
}

absl::Status ModelTextService::CheckWrite(const WriteOptions& options) const {
  if (options.method != WriteMethod::kLeftToRight) {
    ASSIGN_OR_RETURN(const WritingModel writer, writing_model());
    return CheckCanWrite(writer, {}, options);
  }
  if (left_to_right_ != nullptr) return options.Validate();
  return InvalidArgument(
      "method \"left-to-right\" does not fit what this model has learned; choose ",
      absl::StrJoin(facts_.methods, ", "));
}

TokenRules ModelTextService::RulesOf(const CompletionRequest& request, int64_t max_tokens) const {
  const bool is_plain = request.write.method == WriteMethod::kLeftToRight;
  const bool never_ends = request.min_tokens == kMostTokens;
  const int64_t min_tokens =
      request.cut_context ? std::min(request.min_tokens, max_tokens - 1) : request.min_tokens;
  return {.end_token = is_plain ? left_to_right_->traits().end_token : canvas_->end_token,
          .min_tokens = never_ends ? 0 : min_tokens,
          .never_ends = never_ends,
          .max_tokens = max_tokens,
          .block_ngram = request.block_ngram,
          .banned = non_text_};
}

bool HasStop(const std::string& text, size_t new_bytes, const std::vector<std::string>& words) {
  const size_t before = text.size() - new_bytes;
  return std::any_of(words.begin(), words.end(), [&](const std::string& word) {
    return text.find(word, before - std::min(before, word.size() - 1)) != text.npos;
  });
}

absl::StatusOr<EncodedPrompt> ModelTextService::Check(const CompletionRequest& request,
                                                      Tokens prompt) const {
  if (request.prompt_tokens) prompt = *request.prompt_tokens;
  if (request.scores_prompt && !facts_.can_score_exactly)
    return FailedPrecondition(
        "this model cannot say how probable each token of a prompt is given those before it; "
        "leave out 'echo' or 'logprobs'",
        canvas_.ok() ? ", or ask for the bound of a whole text (POST /v1/score)" : "");
  RETURN_IF_ERROR(
      CheckLength(std::ssize(prompt), request.cut_context ? kMostTokens : request.max_prompt));
  if (request.scores_prompt && !prompt.empty()) RETURN_IF_ERROR(AskedText({}, 1, prompt).status());
  if (request.only_prompt) return EncodedPrompt{std::move(prompt)};
  RETURN_IF_ERROR(CheckWrite(request.write));
  const bool is_plain = request.write.method == WriteMethod::kLeftToRight;
  if (!is_plain && (request.block_ngram > 0 || request.beams)) {
    return InvalidArgument(request.beams ? "beams have" : "blocked n-grams have",
                           " an effect with method \"left-to-right\" only; leave them out");
  }
  if (request.cut_context) KeepLast(request.max_prompt, &prompt);
  ASSIGN_OR_RETURN(const int64_t most, MaxTokens(request, &prompt));
  const TokenRules rules = RulesOf(request, most);
  RETURN_IF_ERROR(request.beams ? BeamsOf(*request.beams, rules).Validate() : rules.Validate());
  const int64_t begin = std::max<int64_t>(is_plain ? 0 : 1, std::ssize(prompt));
  const int64_t spaceless = DropsSpace(request, prompt) ? begin : -1;
  return EncodedPrompt{std::move(prompt), most, spaceless};
}

absl::StatusOr<EncodedPrompt> ModelTextService::Encode(const CompletionRequest& request) const {
  ASSIGN_OR_RETURN(const std::string text,
                   PartToEncode(request.prompt, request.max_prompt, request.cut_context));
  ASSIGN_OR_RETURN(std::vector<Tokens> tokens,
                   model_.vocabulary.Encode({text}, "encoding the prompt"));
  return Check(request, std::move(tokens.front()));
}

absl::StatusOr<std::vector<EncodedPrompt>> ModelTextService::Encode(
    const std::vector<CompletionRequest>& requests) const {
  std::vector<std::string> texts;
  for (const CompletionRequest& request : requests) {
    ASSIGN_OR_RETURN(texts.emplace_back(),
                     Annotate(PartToEncode(request.prompt, request.max_prompt, request.cut_context),
                              absl::StrCat("prompt ", texts.size() + 1)));
  }
  ASSIGN_OR_RETURN(std::vector<Tokens> tokens,
                   model_.vocabulary.Encode(texts, "encoding the prompts"));
  std::vector<EncodedPrompt> prompts;
  for (size_t n = 0; n < requests.size(); ++n) {
    ASSIGN_OR_RETURN(prompts.emplace_back(), Annotate(Check(requests[n], std::move(tokens[n])),
                                                      absl::StrCat("prompt ", n + 1)));
  }
  return prompts;
}

absl::StatusOr<std::vector<std::vector<Completion>>> ModelTextService::Complete(
    const std::vector<CompletionRequest>& requests) {
  Call call{requests, {}, std::vector<std::vector<Completion>>(requests.size())};
  ASSIGN_OR_RETURN(call.prompts, Encode(requests));
  Group drawn;
  std::vector<Group> others;
  for (size_t n = 0; n < requests.size(); ++n) {
    if (requests[n].only_prompt) {
      call.completions[n].assign(static_cast<size_t>(requests[n].samples),
                                 ToCompletion(requests[n], call.prompts[n].tokens, {}, {}));
      continue;
    }
    Group* group = CompletionLanes::Take(requests[n]) ? &drawn : nullptr;
    for (Group& one : others) {
      const bool has_length =
          !requests[n].beams || call.prompts[one[0]].max_tokens == call.prompts[n].max_tokens;
      if (group == nullptr && has_length && AreAlike(requests[one[0]], requests[n])) group = &one;
    }
    (group == nullptr ? others.emplace_back() : *group).push_back(n);
  }
  RETURN_IF_ERROR(Draw(call, drawn));
  for (const Group& group : others)
    RETURN_IF_ERROR(requests[group[0]].beams ? Search(call, group) : WriteCanvases(call, group));
  for (size_t n = 0; n < requests.size(); ++n) {
    if (CompletionLanes::Take(requests[n])) continue;  // which do so
    const absl::Status scored =
        ScorePrompt(requests[n], call.prompts[n].tokens, &call.completions[n]);
    if (!scored.ok() && requests[n].done)
      requests[n].done(scored);  // no fault of the others
    else
      RETURN_IF_ERROR(Annotate(scored, absl::StrCat("prompt ", n + 1)));
  }
  return std::move(call.completions);
}

absl::Status ModelTextService::ScorePrompt(const CompletionRequest& request, const Tokens& prompt,
                                           std::vector<Completion>* completions) const {
  if (!request.scores_prompt || prompt.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(WritingModel writer, writing_model());
  writer.before_pass = request.check_wanted;
  ASSIGN_OR_RETURN(ScoredText text, AskedText({}, 1, prompt));
  text.likeliest = request.likeliest;
  LogLikelihood score;
  if (!text.asked.empty()) {
    ASSIGN_OR_RETURN(std::vector<LogLikelihood> scores, ScoreTexts(writer, {text}, {}));
    score = std::move(scores.front());
  }
  std::vector<ShownToken> shown = {Show({.token = prompt[0], .log_prob = std::nan("")})};
  score.token_likeliest.resize(text.asked.size());
  for (size_t i = 0; i < text.asked.size(); ++i)
    shown.push_back(Show({.position = text.asked[i],
                          .token = prompt[i + 1],
                          .log_prob = score.token_log_probs[i],
                          .likeliest = std::move(score.token_likeliest[i])}));
  for (Completion& completion : *completions) completion.prompt = shown;
  return absl::OkStatus();
}

absl::Status ModelTextService::Search(Call& call, const Group& group) const {
  const CompletionRequest& alike = call.requests[group[0]];
  const BeamOptions options =
      BeamsOf(*alike.beams, RulesOf(alike, call.prompts[group[0]].max_tokens));
  std::vector<Prompt> texts;
  for (const size_t n : group)
    texts.push_back({call.prompts[n].tokens, call.prompts[n].max_tokens, options.width});
  ASSIGN_OR_RETURN(const std::unique_ptr<Decoder> decoder,
                   OpenDecoder(texts, AnyWanted(call.requests, group)));
  ASSIGN_OR_RETURN(std::vector<std::vector<Hypothesis>> found, BeamSearch(*decoder, options));
  for (size_t i = 0; i < found.size(); ++i) {
    const size_t n = group[i];
    if (std::ssize(found[i]) > call.requests[n].samples) found[i].resize(call.requests[n].samples);
    for (const Hypothesis& text : found[i]) {
      call.completions[n].push_back(
          ToCompletion(call.requests[n], call.prompts[n].tokens, text, /*written=*/{}));
    }
  }
  return absl::OkStatus();
}

// A request's texts while they are written in any order.
class ModelTextService::CanvasTexts {
 public:
  CanvasTexts(const ModelTextService& service, const CompletionRequest& request,
              const EncodedPrompt& prompt)
      : service_(service),
        request_(request),
        prompt_(prompt),
        given_(prompt.tokens.empty() ? Tokens{service.end_of_document_} : prompt.tokens),
        written_(request.samples),
        completions_(request.samples) {}

  void AddCanvases(std::vector<Canvas>& canvases) const {
    const TokenRules rules = service_.RulesOf(request_, prompt_.max_tokens);
    Canvas canvas{given_, 0, request_.write.draw.seed};
    canvas.tokens.resize(static_cast<size_t>(given() + prompt_.max_tokens), kBlank);
    const auto no_end = std::make_shared<const std::vector<uint8_t>>(service_.non_text());
    const int64_t no_end_before = rules.never_ends ? rules.max_tokens : rules.min_tokens;
    for (int64_t i = 0; i < no_end_before; ++i) canvas.banned_at[given() + i] = no_end;
    for (int64_t sample = 0; sample < request_.samples; ++sample) {
      canvas.stream = request_.first_stream + static_cast<uint64_t>(sample);
      canvases.push_back(canvas);
    }
  }

  void Hear(int64_t sample, const WrittenToken& token) {
    written_[sample].push_back(token);
    if (request_.listener) request_.listener(sample, Show(token));
  }

  // Whether the text goes on after a pass.
  bool GoesOn(int64_t sample, bool is_done) {
    const bool is_wanted = !request_.is_wanted || request_.is_wanted();
    if (!is_done && is_wanted && request_.stop.empty()) return true;
    Hypothesis text = TextInOrder(written_[sample], given(), service_.canvas_->end_token);
    std::string told;
    for (int64_t i = 0; i < std::ssize(text.tokens); ++i)
      told += Show({.position = given() + i, .token = text.tokens[i]}).piece;
    is_done |= HasStop(told, told.size(), request_.stop);
    if (!is_done && is_wanted) return true;
    completions_[sample] = service_.ToCompletion(request_, prompt_.tokens, text, written_[sample]);
    if (++num_done_ == request_.samples && is_wanted && request_.done && !request_.scores_prompt)
      request_.done(completions_);
    return false;
  }

  std::vector<Completion> Take() { return std::move(completions_); }

 private:
  int64_t given() const { return std::ssize(given_); }
  ShownToken Show(const WrittenToken& token) const {
    return service_.Show(token, prompt_.spaceless);
  }

  const ModelTextService& service_;
  const CompletionRequest& request_;
  const EncodedPrompt& prompt_;
  const Tokens given_;                              // its tokens, or the beginning of a document
  std::vector<std::vector<WrittenToken>> written_;  // by sample
  std::vector<Completion> completions_;
  int64_t num_done_ = 0;
};

absl::Status ModelTextService::WriteCanvases(Call& call, const Group& group) const {
  ASSIGN_OR_RETURN(WritingModel writer, writing_model());
  writer.before_pass = AnyWanted(call.requests, group);
  WriteOptions options = call.requests[group[0]].write;
  options.draw.banned = non_text_;
  options.draw.banned[end_of_document_] = 0;
  options.stop_at_end = true;
  std::vector<Canvas> canvases;
  std::vector<CanvasTexts> texts;
  std::vector<std::pair<size_t, int64_t>> lanes;  // whose text, and which sample
  for (const size_t n : group) {
    texts.emplace_back(*this, call.requests[n], call.prompts[n]).AddCanvases(canvases);
    for (int64_t sample = 0; sample < call.requests[n].samples; ++sample)
      lanes.push_back({texts.size() - 1, sample});
  }
  RETURN_IF_ERROR(WriteBlanks(
                      writer, canvases, options,
                      [&](int64_t lane, const WrittenToken& token) {
                        texts[lanes[lane].first].Hear(lanes[lane].second, token);
                      },
                      [&](int64_t lane, bool is_done) {
                        return texts[lanes[lane].first].GoesOn(lanes[lane].second, is_done);
                      })
                      .status());
  for (size_t i = 0; i < group.size(); ++i) call.completions[group[i]] = texts[i].Take();
  return absl::OkStatus();
}

Completion ModelTextService::ToCompletion(const CompletionRequest& request, const Tokens& prompt,
                                          const Hypothesis& text,
                                          const std::vector<WrittenToken>& written) const {
  Completion completion{.text = TextOf(text.tokens),
                        .log_prob = text.log_prob,
                        .score = text.score,
                        .tokens = text.length(),
                        .ended = text.ended,
                        .passes = written.empty() ? 0 : written.back().pass};
  if (DropsSpace(request, prompt) && completion.text.starts_with(' ')) completion.text.erase(0, 1);
  for (const std::string& stop : request.stop) {
    const size_t at = completion.text.find(stop);
    if (at == std::string::npos) continue;
    completion.text.resize(at);
    completion.ended = true;
  }
  std::vector<std::string>& pieces = completion.prompt_pieces;
  for (const int32_t token : prompt) pieces.push_back(TextOf({token}));
  if (request.prompt_tokens && model_.vocabulary.adds_space() && !pieces.empty() &&
      pieces[0].starts_with(' '))
    pieces[0].erase(0, 1);
  for (const WrittenToken& token : written) completion.written.push_back(Show(token));
  return completion;
}

// The text behind its first `given` tokens is asked about; the beginning of a document stands for
// no tokens.
absl::StatusOr<ScoredText> ModelTextService::AskedText(const ScoreRequest& request, int64_t given,
                                                       Tokens tokens) const {
  if (given == 0) {
    tokens.insert(tokens.begin(), end_of_document_);
    given = 1;
  }
  auto length = static_cast<int64_t>(tokens.size());
  const int64_t learned = canvas_->family == CanvasFamily::kBlocks ? kMostTokens : canvas_->seq_len;
  const int64_t most = std::min(learned, request.max_prompt);
  const int64_t excess = length - most;
  if (excess > 0 && length > given) {
    if (!request.cut_context || excess >= given)
      return OutOfRange("the text has ", length, " tokens, but ",
                        most == learned ? "the model has learned to read " : "at most ", most,
                        most == learned ? "" : " are read (--max-prompt)",
                        "; shorten it or score it in parts");
    KeepLast(most, &tokens);
    given -= excess;
    length = most;
  }
  ScoredText text{.tokens = std::move(tokens), .wants_greedy = request.wants_greedy};
  for (int64_t i = given; i < length; ++i) text.asked.push_back(i);
  return text;
}

absl::StatusOr<TextScore> ModelTextService::Score(const ScoreRequest& request) {
  ASSIGN_OR_RETURN(WritingModel writer, writing_model());
  writer.before_pass = request.check_wanted;
  ASSIGN_OR_RETURN(const std::string context,
                   PartToEncode(request.context, request.max_prompt, request.cut_context));
  RETURN_IF_ERROR(PartToEncode(request.continuation, request.max_prompt, false).status());
  ASSIGN_OR_RETURN(
      const std::vector<Tokens> encoded,
      model_.vocabulary.Encode({context, context + request.continuation}, "encoding the text"));
  ASSIGN_OR_RETURN(const ScoredText text,
                   AskedText(request, NumGiven(encoded[0], encoded[1]), encoded[1]));
  TextScore score{.is_greedy = text.asked.empty(),  // certain
                  .tokens = std::ssize(text.asked),
                  .bytes = std::ssize(request.continuation)};
  if (text.asked.empty()) return score;
  ASSIGN_OR_RETURN(
      const std::vector<LogLikelihood> found,
      ScoreTexts(writer, {text}, {.samples = request.bound_samples, .seed = request.seed}));
  score.log_prob = found[0].log_prob;
  score.standard_error = found[0].standard_error;
  score.is_exact = found[0].is_exact;
  score.is_greedy = found[0].is_greedy;
  return score;
}

}  // namespace anyorder::launcher
