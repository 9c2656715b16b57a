#include "launcher/texts/model_text_service.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "core/base/status.h"
#include "core/generate/beam_search.h"
#include "core/objective/objective.h"
#include "data/prep/examples/chat_template.h"
#include "launcher/run/saved_step.h"

namespace anyorder::launcher {
namespace {

using Tokens = std::vector<int32_t>;

// Requests that can be written together: equal but for prompt, number and listener.
bool AreAlike(const CompletionRequest& a, const CompletionRequest& b) {
  return a.min_tokens == b.min_tokens && a.block_ngram == b.block_ngram && a.samples == b.samples &&
         a.beams == b.beams && a.cut_context == b.cut_context && a.write == b.write;
}

BeamOptions BeamsOf(const BeamRequest& request, const TokenRules& rules) {
  return {.width = request.width,
          .length_penalty = request.length_penalty,
          .stop = request.stop_first ? SearchStop::kFirst : SearchStop::kExact,
          .rules = rules};
}

// The text up to its end token, whatever order it was written in.
Hypothesis TextInOrder(std::vector<WrittenToken> written, int32_t end_token) {
  std::sort(written.begin(), written.end(),
            [](const WrittenToken& a, const WrittenToken& b) { return a.position < b.position; });
  Hypothesis text;
  for (const WrittenToken& token : written) {
    text.log_prob += token.log_prob;
    text.ended = token.token == end_token;
    if (text.ended) break;
    text.tokens.push_back(token.token);
  }
  text.score = text.log_prob;
  return text;
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

absl::StatusOr<std::vector<Tokens>> ModelTextService::Encode(const std::vector<std::string>& texts,
                                                             absl::string_view doing) const {
  return model_.vocabulary.Encode(texts, doing);
}

std::string ModelTextService::TextOf(const Tokens& tokens) const {
  return model_.vocabulary.TextOf(tokens);
}

absl::StatusOr<int64_t> ModelTextService::CountTokens(const std::string& text) {
  ASSIGN_OR_RETURN(const std::vector<Tokens> tokens, Encode({text}, "counting tokens"));
  return static_cast<int64_t>(tokens.front().size());
}

ShownToken ModelTextService::Show(const WrittenToken& token) const {
  return {token.pass, token.position, TextOf({token.token}), token.log_prob, token.confidence};
}

// Whether the model reads seq_len tokens at most; recurrent memory reaches further back, and blocks
// follow one another without end.
bool ModelTextService::IsBounded(WriteMethod method) const {
  const ModelConfig& model = model_.config.model;
  if (model.learned_positions()) return true;
  return method == WriteMethod::kLeftToRight ? model.mem_len == 0
                                             : canvas_->family != CanvasFamily::kBlocks;
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

TokenRules ModelTextService::RulesOf(const CompletionRequest& alike, int64_t max_tokens) const {
  const bool is_plain = alike.write.method == WriteMethod::kLeftToRight;
  const bool never_ends = alike.min_tokens == kMostTokens;
  const int64_t min_tokens =
      alike.cut_context ? std::min(alike.min_tokens, max_tokens - 1) : alike.min_tokens;
  return {.end_token = is_plain ? left_to_right_->traits().end_token : canvas_->end_token,
          .min_tokens = never_ends ? 0 : min_tokens,
          .never_ends = never_ends,
          .max_tokens = max_tokens,
          .block_ngram = alike.block_ngram,
          .banned = non_text_};
}

absl::StatusOr<std::vector<ModelTextService::Group>> ModelTextService::GroupsOf(
    const std::vector<CompletionRequest>& requests) const {
  std::vector<std::string> texts;
  for (const CompletionRequest& request : requests) texts.push_back(request.prompt);
  ASSIGN_OR_RETURN(std::vector<Tokens> prompts, Encode(texts, "encoding the prompts"));
  std::vector<Group> groups;
  for (size_t n = 0; n < requests.size(); ++n) {
    const CompletionRequest& request = requests[n];
    const std::string name = absl::StrCat("prompt ", n + 1);
    RETURN_IF_ERROR(CheckWrite(request.write));
    const bool is_plain = request.write.method == WriteMethod::kLeftToRight;
    if (!is_plain && (request.block_ngram > 0 || request.beams)) {
      return InvalidArgument(request.beams ? "beams have" : "blocked n-grams have",
                             " an effect with method \"left-to-right\" only; leave them out");
    }
    const absl::StatusOr<int64_t> most = MaxTokens(request, &prompts[n]);
    RETURN_IF_ERROR(Annotate(most.status(), name));
    const TokenRules rules = RulesOf(request, *most);
    RETURN_IF_ERROR(Annotate(
        request.beams ? BeamsOf(*request.beams, rules).Validate() : rules.Validate(), name));
    Group* group = nullptr;
    for (Group& one : groups)
      if (one.max_tokens == *most && AreAlike(requests[one.members[0]], request)) group = &one;
    if (group == nullptr) {
      group = &groups.emplace_back();
      group->max_tokens = *most;
    }
    group->members.push_back(n);
    group->prompts.push_back(std::move(prompts[n]));
  }
  return groups;
}

absl::StatusOr<std::vector<std::vector<Completion>>> ModelTextService::Complete(
    const std::vector<CompletionRequest>& requests) {
  ASSIGN_OR_RETURN(const std::vector<Group> groups, GroupsOf(requests));
  std::vector<std::vector<Completion>> completions(requests.size());
  for (const Group& group : groups) {
    const CompletionRequest& alike = requests[group.members[0]];
    const bool is_plain = alike.write.method == WriteMethod::kLeftToRight;
    RETURN_IF_ERROR(alike.beams ? Search(requests, group, &completions)
                    : is_plain  ? Sample(requests, group, &completions)
                                : CompleteCanvases(requests, group, &completions));
  }
  return completions;
}

absl::StatusOr<std::unique_ptr<Decoder>> ModelTextService::OpenDecoder(const Group& group,
                                                                       int64_t lanes) const {
  return Decoder::Create(model_.config.model, model_.vocabulary.size(), model_.weights.values,
                         *left_to_right_, group.prompts, {lanes, group.max_tokens},
                         *model_.backend);
}

absl::Status ModelTextService::Search(const std::vector<CompletionRequest>& requests,
                                      const Group& group,
                                      std::vector<std::vector<Completion>>* completions) {
  const CompletionRequest& alike = requests[group.members[0]];
  const BeamOptions options = BeamsOf(*alike.beams, RulesOf(alike, group.max_tokens));
  ASSIGN_OR_RETURN(const std::unique_ptr<Decoder> decoder, OpenDecoder(group, options.width));
  ASSIGN_OR_RETURN(std::vector<std::vector<Hypothesis>> found, BeamSearch(*decoder, options));
  for (size_t n = 0; n < found.size(); ++n) {
    const size_t member = group.members[n];
    if (static_cast<int64_t>(found[n].size()) > alike.samples) found[n].resize(alike.samples);
    for (const Hypothesis& text : found[n])
      (*completions)[member].push_back(
          ToCompletion(requests[member], group.prompts[n], text, /*written=*/{}));
  }
  return absl::OkStatus();
}

absl::Status ModelTextService::Sample(const std::vector<CompletionRequest>& requests,
                                      const Group& group,
                                      std::vector<std::vector<Completion>>* completions) {
  const CompletionRequest& alike = requests[group.members[0]];
  // A few samples of each prompt at a time, so that memory does not grow with all of them.
  size_t longest = 0;
  for (const Tokens& prompt : group.prompts) longest = std::max(longest, prompt.size());
  const int64_t tokens = static_cast<int64_t>(group.prompts.size()) *
                         (static_cast<int64_t>(longest) + group.max_tokens);
  const int64_t at_once = std::clamp<int64_t>(kTokensAtOnce / tokens, 1, alike.samples);
  for (int64_t first = 0; first < alike.samples; first += at_once) {
    RETURN_IF_ERROR(
        SampleSome(requests, group, first, std::min(at_once, alike.samples - first), completions));
  }
  return absl::OkStatus();
}

absl::Status ModelTextService::SampleSome(const std::vector<CompletionRequest>& requests,
                                          const Group& group, int64_t first, int64_t samples,
                                          std::vector<std::vector<Completion>>* completions) {
  const CompletionRequest& alike = requests[group.members[0]];
  const SampleOptions options{.cuts = alike.write.draw.cuts,
                              .seed = alike.write.draw.seed,
                              .rules = RulesOf(alike, group.max_tokens)};
  ASSIGN_OR_RETURN(const std::unique_ptr<Decoder> decoder, OpenDecoder(group, samples));
  std::vector<uint64_t> streams;
  for (const size_t member : group.members) {
    for (int64_t sample = first; sample < first + samples; ++sample)
      streams.push_back(requests[member].first_stream + static_cast<uint64_t>(sample));
  }
  std::vector<std::vector<WrittenToken>> written(streams.size());
  const auto listener = [&](int64_t lane, const WrittenToken& token) {
    const size_t member = group.members[lane / samples];
    WrittenToken placed = token;
    placed.position += static_cast<int64_t>(group.prompts[lane / samples].size());
    written[lane].push_back(placed);
    if (requests[member].listener) requests[member].listener(first + lane % samples, Show(placed));
  };
  ASSIGN_OR_RETURN(const std::vector<Hypothesis> texts,
                   SampleTexts(*decoder, options, streams, listener));
  for (size_t lane = 0; lane < texts.size(); ++lane) {
    const size_t n = lane / static_cast<size_t>(samples);
    (*completions)[group.members[n]].push_back(
        ToCompletion(requests[group.members[n]], group.prompts[n], texts[lane], written[lane]));
  }
  return absl::OkStatus();
}

absl::Status ModelTextService::CompleteCanvases(const std::vector<CompletionRequest>& requests,
                                                const Group& group,
                                                std::vector<std::vector<Completion>>* completions) {
  const CompletionRequest& alike = requests[group.members[0]];
  ASSIGN_OR_RETURN(const WritingModel writer, writing_model());
  const TokenRules rules = RulesOf(alike, group.max_tokens);
  const int64_t no_end_before = rules.never_ends ? rules.max_tokens : rules.min_tokens;
  WriteOptions options = alike.write;
  options.draw.banned = non_text_;
  options.draw.banned[end_of_document_] = 0;
  options.stop_at_end = true;
  std::vector<Tokens> prompts = group.prompts;
  std::vector<Canvas> canvases;
  for (size_t n = 0; n < prompts.size(); ++n) {
    // The beginning of a document.
    if (prompts[n].empty()) prompts[n] = {end_of_document_};
    Canvas canvas{prompts[n]};
    const auto given = static_cast<int64_t>(prompts[n].size());
    canvas.tokens.resize(static_cast<size_t>(given + group.max_tokens), kBlank);
    const auto no_end = std::make_shared<const std::vector<uint8_t>>(non_text_);
    for (int64_t i = 0; i < no_end_before; ++i) canvas.banned_at[given + i] = no_end;
    for (int64_t sample = 0; sample < alike.samples; ++sample) {
      canvas.stream = requests[group.members[n]].first_stream + static_cast<uint64_t>(sample);
      canvases.push_back(canvas);
    }
  }
  ASSIGN_OR_RETURN(
      const std::vector<WrittenText> texts,
      WriteBlanks(writer, canvases, options, [&](int64_t lane, const WrittenToken& token) {
        const CompletionRequest& request = requests[group.members[lane / alike.samples]];
        if (request.listener) request.listener(lane % alike.samples, Show(token));
      }));
  for (size_t lane = 0; lane < texts.size(); ++lane) {
    const size_t n = lane / static_cast<size_t>(alike.samples);
    const std::vector<WrittenToken>& written = texts[lane].written;
    Completion& completion = (*completions)[group.members[n]].emplace_back(ToCompletion(
        requests[group.members[n]], prompts[n], TextInOrder(written, rules.end_token), written));
    completion.passes = texts[lane].passes;
  }
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
  // A text that goes on from its prompt keeps the space between them.
  const bool rewrites = left_to_right_ && !left_to_right_->traits().takes_empty_prompt;
  const bool goes_on = !rewrites && !request.prompt.empty();
  if (!goes_on && completion.text.starts_with(' ')) completion.text.erase(0, 1);
  for (const std::string& stop : request.stop) {
    const size_t at = completion.text.find(stop);
    if (at == std::string::npos) continue;
    completion.text.resize(at);
    completion.ended = true;
  }
  for (const int32_t token : prompt) completion.prompt_pieces.push_back(TextOf({token}));
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
  const int64_t excess = canvas_->family == CanvasFamily::kBlocks ? 0 : length - canvas_->seq_len;
  if (excess > 0 && length > given) {
    if (!request.cut_context || excess >= given)
      return OutOfRange("it has ", length, " tokens, but the model has learned to read ",
                        canvas_->seq_len, "; shorten it or score it in parts");
    KeepLast(canvas_->seq_len, &tokens);
    given -= excess;
    length = canvas_->seq_len;
  }
  ScoredText text{.tokens = std::move(tokens), .wants_greedy = request.wants_greedy};
  for (int64_t i = given; i < length; ++i) text.asked.push_back(i);
  return text;
}

absl::StatusOr<std::vector<TextScore>> ModelTextService::Score(
    const std::vector<ScoreRequest>& requests) {
  ASSIGN_OR_RETURN(const WritingModel writer, writing_model());
  std::vector<std::string> texts;
  for (const ScoreRequest& request : requests) {
    texts.push_back(request.context);
    texts.push_back(request.context + request.continuation);
  }
  ASSIGN_OR_RETURN(const std::vector<Tokens> encoded, Encode(texts, "encoding the texts"));
  std::vector<TextScore> scores;
  for (size_t n = 0; n < requests.size(); ++n) {
    const std::string name = absl::StrCat("text ", n + 1);
    const absl::StatusOr<ScoredText> text =
        AskedText(requests[n], NumGiven(encoded[2 * n], encoded[2 * n + 1]), encoded[2 * n + 1]);
    RETURN_IF_ERROR(Annotate(text.status(), name));
    TextScore& score = scores.emplace_back();
    score.tokens = static_cast<int64_t>(text->asked.size());
    score.bytes = static_cast<int64_t>(requests[n].continuation.size());
    score.is_greedy = text->asked.empty();  // certain
    if (text->asked.empty()) continue;
    absl::StatusOr<std::vector<LogLikelihood>> found = ScoreTexts(
        writer, {*text}, {.samples = requests[n].bound_samples, .seed = requests[n].seed});
    RETURN_IF_ERROR(Annotate(found.status(), name));
    const LogLikelihood& one = found->front();
    score.log_prob = one.log_prob;
    score.standard_error = one.standard_error;
    score.is_exact = one.is_exact;
    score.is_greedy = one.is_greedy;
  }
  return scores;
}

}  // namespace anyorder::launcher
