// ModelTextService::Fill: words for the blanks of a text, or how probable words are in it.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/base/fields.h"
#include "core/base/status.h"
#include "launcher/texts/blanks/blank_lengths.h"
#include "launcher/texts/blanks/blank_text.h"
#include "launcher/texts/blanks/blank_tokens.h"
#include "launcher/texts/model_text_service.h"

namespace anyorder::launcher {
namespace {

using Tokens = std::vector<int32_t>;
using Lengths = std::vector<int64_t>;

// How often as many texts are drawn as alternatives are wanted, where too few of them differ.
constexpr int64_t kMostRounds = 4;

absl::Status CheckNumbers(const FillRequest& request) {
  FaultList faults;
  CheckBounds("fill", request, faults);
  faults.Require(request.mean_length == 0 || request.mean_length > 1,
                 absl::StrCat("mean-length ", request.mean_length,
                              " must be more than 1, or 0 for no length prior"));
  return faults.ToStatus();
}

// Candidates for the gaps of one text, each scored once.
class Filler {
 public:
  Filler(const ModelTextService& service, const WritingModel& writer, const FillRequest& request,
         const BlankText& source, const GapText& text)
      : service_(service),
        writer_(writer),
        request_(request),
        source_(source),
        text_(text),
        rules_(service.model().vocabulary.pieces()),
        rule_{request.length_penalty, request.mean_length} {
    for (const TokenGap& gap : text.gaps) bounds_.known.push_back(gap.length);
  }

  // The words that are there.
  absl::StatusOr<std::vector<FilledText>> ScoreWords() {
    Candidate words;
    for (const TokenGap& gap : text_.gaps) words.inside.push_back(gap.words);
    bounds_.known = words.lengths();
    RETURN_IF_ERROR(
        FindRoom(std::accumulate(bounds_.known.begin(), bounds_.known.end(), int64_t{0})));
    RETURN_IF_ERROR(AddScored({std::move(words)}).status());
    return std::move(found_);
  }

  absl::StatusOr<std::vector<FilledText>> Fill() {
    RETURN_IF_ERROR(FindBounds());
    ASSIGN_OR_RETURN(
        const Lengths best,
        FindLengths(bounds_, [this](const std::vector<Lengths>& all) { return Try(all, 0); }));
    const auto wanted = static_cast<size_t>(request_.alternatives);
    for (int64_t round = 1; round < kMostRounds && found_.size() < wanted; ++round)
      RETURN_IF_ERROR(Try({best}, round).status());
    return std::move(found_);
  }

 private:
  struct Candidate {
    std::vector<Tokens> inside;  // of each gap
    std::vector<WrittenToken> written = {};

    Lengths lengths() const {
      Lengths lengths;
      for (const Tokens& tokens : inside) lengths.push_back(static_cast<int64_t>(tokens.size()));
      return lengths;
    }
  };

  // Tokens that fit into the gaps; OutOfRange if those are fewer than `least`.
  absl::Status FindRoom(int64_t least) {
    const bool is_bounded =
        writer_.form.family != CanvasFamily::kBlocks || writer_.model->learned_positions();
    const int64_t most = is_bounded ? writer_.form.seq_len : request_.max_prompt;
    bounds_.room = most - text_.num_given();
    if (least <= bounds_.room) return absl::OkStatus();
    return OutOfRange("the text needs at least ", text_.num_given() + least, " tokens, but ",
                      is_bounded ? "the model has learned to read " : "at most ", most,
                      is_bounded ? "" : " are read (--max-prompt)", "; shorten it");
  }

  absl::Status FindBounds() {
    bounds_.most = request_.max_blank_tokens;
    int64_t sum = 0;
    const std::vector<const SourcePart*> gaps = source_.gaps();
    for (size_t g = 0; g < gaps.size(); ++g) {
      const int64_t least = rules_.LeastTokens(text_.gaps[g].begins_word);
      const int64_t most = bounds_.known[g] > 0 ? bounds_.known[g] : bounds_.most;
      if (least == 0) {
        return InvalidArgument(
            "no piece of the vocabulary ", text_.gaps[g].begins_word ? "begins" : "goes on with",
            " a word, as the blank at character ", gaps[g]->character,
            text_.gaps[g].begins_word ? " must" : " must; put a space before it");
      }
      if (most < least) {
        return InvalidArgument("the blank at character ", gaps[g]->character, " needs at least ",
                               least,
                               " tokens, because the vocabulary has the space before a word as a "
                               "piece of its own, but may have ",
                               most, "; give it more");
      }
      bounds_.least.push_back(least);
      sum += bounds_.known[g] > 0 ? most : least;
    }
    RETURN_IF_ERROR(FindRoom(sum));
    // The end of the document takes room, too.
    if (request_.fit_tokens > 0 && EndsOpen()) bounds_.room = std::max(sum, bounds_.room - 1);
    return absl::OkStatus();
  }

  // Texts with blanks of these lengths; the best score of each.
  absl::StatusOr<std::vector<double>> Try(const std::vector<Lengths>& all, int64_t round) {
    const double temperature = request_.write.draw.cuts.temperature;
    const bool is_greedy = temperature == 0;
    const int64_t first = round * request_.alternatives;
    const int64_t drawn_from = is_greedy && round == 0 ? 1 : first;
    std::vector<double> best(all.size(), -std::numeric_limits<double>::infinity());
    RETURN_IF_ERROR(TryStreams(all, first, drawn_from, 0, &best));
    RETURN_IF_ERROR(TryStreams(all, drawn_from, first + request_.alternatives,
                               is_greedy ? 1 : temperature, &best));
    return best;
  }

  Canvas CanvasOf(const Lengths& lengths) const {
    std::vector<Tokens> blanks;
    for (const int64_t length : lengths) blanks.emplace_back(length, kBlank);
    std::vector<int64_t> positions;
    Canvas canvas{text_.With(blanks, &positions)};
    auto position = positions.begin();
    for (size_t g = 0; g < lengths.size(); ++g) {
      for (int64_t i = 0; i < lengths[g]; ++i)
        canvas.banned_at[*position++] = rules_.At(text_.gaps[g].begins_word, i, lengths[g]);
    }
    return canvas;
  }

  // A text that is to be written.
  struct Attempt {
    size_t lengths = 0;  // which
    Canvas canvas = {};
  };

  // The same of texts of streams [first, end). There are only so many of them at a time.
  absl::Status TryStreams(const std::vector<Lengths>& all, int64_t first, int64_t end,
                          double temperature, std::vector<double>* best) {
    WriteOptions options = request_.write;
    options.draw.cuts.temperature = temperature;
    options.draw.banned = service_.non_text();
    int64_t longest = 0;
    for (const Lengths& lengths : all) {
      longest = std::max(
          longest, text_.num_given() + std::accumulate(lengths.begin(), lengths.end(), int64_t{0}));
    }
    const int64_t at_once = TextsAtOnce(writer_, options, longest);
    std::vector<Attempt> group;
    for (size_t n = 0; n < all.size(); ++n) {
      Canvas canvas = CanvasOf(all[n]);
      for (int64_t stream = first; stream < end; ++stream) {
        canvas.stream = static_cast<uint64_t>(stream);
        group.push_back({n, canvas});
        if (static_cast<int64_t>(group.size()) < at_once) continue;
        RETURN_IF_ERROR(TryGroup(all, std::exchange(group, {}), options, best));
      }
    }
    return TryGroup(all, std::move(group), options, best);
  }

  absl::Status TryGroup(const std::vector<Lengths>& all, std::vector<Attempt> group,
                        const WriteOptions& options, std::vector<double>* best) {
    std::vector<Canvas> canvases;
    for (Attempt& attempt : group) canvases.push_back(std::move(attempt.canvas));
    ASSIGN_OR_RETURN(std::vector<WrittenText> texts,
                     WriteBlanks(writer_, canvases, options, NobodyListens));
    std::vector<Candidate> candidates;
    for (size_t i = 0; i < texts.size(); ++i) {
      candidates.push_back(
          {InsideOf(texts[i].tokens, all[group[i].lengths]), std::move(texts[i].written)});
    }
    ASSIGN_OR_RETURN(const std::vector<double> scores, AddScored(candidates));
    for (size_t i = 0; i < scores.size(); ++i) {
      double& most = (*best)[group[i].lengths];
      most = std::max(most, scores[i]);
    }
    return absl::OkStatus();
  }

  std::vector<Tokens> InsideOf(const Tokens& tokens, const Lengths& lengths) const {
    std::vector<Tokens> inside;
    auto at = tokens.begin();
    for (size_t g = 0; g < lengths.size(); ++g) {
      at += static_cast<int64_t>(text_.around[g].size());
      inside.emplace_back(at, at + lengths[g]);
      at += lengths[g];
    }
    return inside;
  }

  // Scores those whose tokens are new and make a text, and keeps the best ones of different texts.
  // The score of each; of others minus infinity.
  absl::StatusOr<std::vector<double>> AddScored(const std::vector<Candidate>& candidates) {
    std::vector<ScoredText> texts;
    std::vector<size_t> fresh;
    for (size_t i = 0; i < candidates.size(); ++i) {
      const bool is_new = seen_.insert(candidates[i].inside).second;
      if (!is_new || (!source_.has_words() && HasEmptyWord(candidates[i]))) continue;
      ScoredText& text = texts.emplace_back();
      text.tokens = text_.With(candidates[i].inside, &text.asked);
      fresh.push_back(i);
    }
    const ScoreOptions options{.samples = request_.bound_samples, .seed = request_.write.draw.seed};
    ASSIGN_OR_RETURN(const std::vector<LogLikelihood> found, ScoreTexts(writer_, texts, options));
    std::vector<double> fits(fresh.size(), 0.0);
    if (HasFit()) {
      for (size_t i = 0; i < fresh.size(); ++i)
        texts[i] = TextBehind(candidates[fresh[i]].inside, std::move(texts[i].tokens));
      ASSIGN_OR_RETURN(const std::vector<LogLikelihood> behind,
                       ScoreTexts(writer_, texts, options));
      for (size_t i = 0; i < fresh.size(); ++i) fits[i] = behind[i].log_prob;
    }
    std::vector<double> scores(candidates.size(), -std::numeric_limits<double>::infinity());
    for (size_t i = 0; i < fresh.size(); ++i) {
      FilledText filled = ToText(candidates[fresh[i]], found[i], fits[i]);
      scores[fresh[i]] = filled.score;
      Keep(std::move(filled));
    }
    std::ranges::stable_sort(found_, std::greater(), &FilledText::score);
    found_.resize(std::min(found_.size(), static_cast<size_t>(request_.alternatives)));
    return scores;
  }

  // Whether a blank of unknown length ends the text.
  bool EndsOpen() const { return bounds_.known.back() == 0 && text_.around.back().empty(); }
  int64_t NumBehind(size_t gap) const {
    if (bounds_.known[gap] > 0) return 0;
    return std::min(request_.fit_tokens, static_cast<int64_t>(text_.around[gap + 1].size()));
  }
  // Whether anything stands behind a blank of unknown length; the end of the document counts.
  bool HasFit() const {
    if (request_.fit_tokens == 0) return false;
    bool has_fit = EndsOpen();
    for (size_t g = 0; g < bounds_.known.size(); ++g) has_fit |= NumBehind(g) > 0;
    return has_fit;
  }
  // That is what is asked about.
  ScoredText TextBehind(const std::vector<Tokens>& inside, Tokens tokens) const {
    ScoredText text{.tokens = std::move(tokens)};
    auto at = static_cast<int64_t>(text_.around[0].size());
    for (size_t g = 0; g < inside.size(); ++g) {
      at += static_cast<int64_t>(inside[g].size());
      for (int64_t i = 0; i < NumBehind(g); ++i) text.asked.push_back(at + i);
      at += static_cast<int64_t>(text_.around[g + 1].size());
    }
    if (!EndsOpen()) return text;
    text.asked.push_back(at);
    text.tokens.push_back(writer_.form.end_token);
    return text;
  }

  // A word mark that stands alone before another: a space twice, which no text has as tokens. (One
  // before a piece without a mark, such as a bracket, is right.)
  bool HasEmptyWord(const Candidate& candidate) const {
    const std::vector<data::VocabularyPiece>& pieces = service_.model().vocabulary.pieces();
    for (const Tokens& tokens : candidate.inside) {
      for (size_t i = 1; i < tokens.size(); ++i) {
        if (IsWordMark(pieces[tokens[i - 1]]) && BeginsWord(pieces[tokens[i]])) return true;
      }
    }
    return false;
  }

  FilledText ToText(const Candidate& candidate, const LogLikelihood& score, double fit) const {
    FilledText filled{.lengths = candidate.lengths(),
                      .log_prob = score.log_prob,
                      .standard_error = score.standard_error,
                      .is_exact = score.is_exact};
    for (size_t g = 0; g < candidate.inside.size(); ++g) {
      std::string& words = filled.blanks.emplace_back(service_.TextOf(candidate.inside[g]));
      // The space is in the text already.
      if (text_.gaps[g].begins_word && !words.empty()) words.erase(0, 1);
      if (!text_.gaps[g].words.empty()) words = source_.gaps()[g]->text;
    }
    filled.text = source_.With(filled.blanks);
    filled.score = rule_.Score(filled.log_prob, fit, filled.lengths, bounds_.known);
    for (const WrittenToken& token : candidate.written)
      filled.written.push_back(service_.Show(token));
    return filled;
  }

  void Keep(FilledText filled) {
    const auto same = std::ranges::find(found_, filled.blanks, &FilledText::blanks);
    if (same == found_.end()) {
      found_.push_back(std::move(filled));
    } else if (filled.score > same->score) {
      *same = std::move(filled);
    }
  }

  const ModelTextService& service_;
  const WritingModel& writer_;
  const FillRequest& request_;
  const BlankText& source_;
  const GapText& text_;
  const BlankRules rules_;
  const LengthRule rule_;
  LengthBounds bounds_;
  std::set<std::vector<Tokens>> seen_;
  std::vector<FilledText> found_;  // as many as are wanted, the best first
};

absl::Status CheckCanFill(const BlankText& source, const CanvasForm& form) {
  if (source.has_words() || !MethodsOf(form).empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "a causal model reads text from left to right and fills no blanks; continue a text with "
      "`anyorder generate`, or use a model trained with permutation_lm, as_arm, sigma_gpt, "
      "masked_diffusion, block_diffusion or eso_lm");
}

}  // namespace

absl::Status ModelTextService::CheckFill(const FillRequest& request) const {
  RETURN_IF_ERROR(CheckNumbers(request));
  ASSIGN_OR_RETURN(const WritingModel writer, writing_model());
  return MethodsOf(writer.form).empty() ? absl::OkStatus() : CheckWrite(request.write);
}

absl::StatusOr<std::vector<FilledText>> ModelTextService::Fill(const FillRequest& request) {
  ASSIGN_OR_RETURN(WritingModel writer, writing_model());
  writer.before_pass = request.check_wanted;
  RETURN_IF_ERROR(CheckFill(request));
  ASSIGN_OR_RETURN(const BlankText source, ParseBlankText(request.text, facts_.seq_len));
  const GapEncoder encoder(model_.vocabulary.pieces(), end_of_document_,
                           model_.vocabulary.adds_space());
  std::vector<std::string> inside;
  for (const SourcePart* gap : source.gaps()) inside.push_back(gap->text);
  ASSIGN_OR_RETURN(const std::string whole,
                   PartToEncode(source.With(inside), request.max_prompt, /*cuts=*/false));
  if (source.has_words()) {  // each of which is encoded with all that stands before it
    ASSIGN_OR_RETURN(const int64_t tokens, CountTokens(whole));
    RETURN_IF_ERROR(CheckLength(tokens, request.max_prompt));
  }
  ASSIGN_OR_RETURN(const std::vector<Tokens> encoded,
                   model_.vocabulary.Encode(encoder.PartsToEncode(source), "encoding the text"));
  ASSIGN_OR_RETURN(const GapText text, encoder.Assemble(source, encoded));
  RETURN_IF_ERROR(CheckCanFill(source, writer.form));
  RETURN_IF_ERROR(CheckLength(text.num_given(), request.max_prompt));
  Filler filler(*this, writer, request, source, text);
  return source.has_words() ? filler.ScoreWords() : filler.Fill();
}

}  // namespace anyorder::launcher
