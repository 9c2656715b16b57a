// `anyorder generate`: text from a checkpoint.

#include <fcntl.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

#include "core/base/log.h"
#include "core/base/status.h"
#include "core/generate/beam_search.h"
#include "core/generate/decoder.h"
#include "core/generate/sampling.h"
#include "core/objective/objective.h"
#include "launcher/huggingface/spiece_file.h"
#include "launcher/inference/encode_texts.h"
#include "launcher/inference/prompts.h"
#include "launcher/inference/text_model.h"
#include "launcher/process/command_line.h"
#include "launcher/process/counted.h"
#include "launcher/process/openmp_spin.h"

namespace anyorder::launcher {
namespace {

using Tokens = std::vector<int32_t>;

struct GenerateOptions : TextModelOptions {
  std::string input;   // prompts (prompts.h)
  std::string output;  // .jsonl to make, "-": standard output

  // Beam search, or with `samples` > 0 that many drawn texts a prompt. The rules of both are
  // MakeRules'.
  BeamOptions beams{.width = 5};
  int64_t best = 1;  // texts a prompt that are written, at most
  bool stop_first = false;
  int64_t samples = 0;
  SampleOptions sampling;
  TokenRules rules;
  // Tokens of a text, the end token included; absent: 128, or what the longest prompt leaves of
  // learned positions.
  std::optional<int64_t> max_tokens;
  int64_t batch = 8;  // prompts at once
};

constexpr int64_t kDefaultMaxTokens = 128;

// What generates.
struct Writer {
  TextModel model;
  std::unique_ptr<GenerationForm> form = nullptr;

  const RunVocabulary& vocabulary() const { return model.vocabulary; }
};

absl::StatusOr<Writer> OpenWriter(const GenerateOptions& options) {
  ANYORDER_ASSIGN_OR_RETURN(const RunConfig config, LoadConfigOfRun(options.run_dir));
  ANYORDER_ASSIGN_OR_RETURN(const std::unique_ptr<Objective> objective,
                            MakeObjective(config.objective.name, config.model, config.sampling));
  // Before anything large is read: whether the objective writes text at all.
  ANYORDER_RETURN_IF_ERROR(objective->Generation({}).status());
  ANYORDER_ASSIGN_OR_RETURN(TextModel model, OpenTextModel(options, config));
  Writer writer{std::move(model)};
  ANYORDER_ASSIGN_OR_RETURN(const VocabularyIds ids, FindSpecialPieces(writer.vocabulary()));
  GenerationTokens tokens{
      .classifier = ids.classifier, .separator = ids.separator, .mask = ids.mask};
  ANYORDER_ASSIGN_OR_RETURN(tokens.end_of_document, FindPiece(writer.vocabulary(), "<eod>"));
  ANYORDER_ASSIGN_OR_RETURN(writer.form, objective->Generation(tokens));
  return writer;
}

// The rules of all prompts: what the options say, and no piece that is not text.
absl::StatusOr<TokenRules> MakeRules(const GenerateOptions& options, const Writer& writer,
                                     const std::vector<Tokens>& prompts) {
  TokenRules rules = options.rules;
  rules.end_token = writer.form->traits().end_token;
  rules.max_tokens = options.max_tokens.value_or(kDefaultMaxTokens);
  for (const VocabularyPiece& piece : writer.vocabulary().pieces)
    rules.banned.push_back(piece.is_text() ? 0 : 1);
  for (size_t n = 0; n < prompts.size(); ++n) {
    absl::Status fits =
        CheckFits(writer.model.config.model, *writer.form, prompts[n], rules.max_tokens);
    while (!fits.ok() && !options.max_tokens && rules.max_tokens > 1) {
      --rules.max_tokens;
      fits = CheckFits(writer.model.config.model, *writer.form, prompts[n], rules.max_tokens);
    }
    ANYORDER_RETURN_IF_ERROR(Annotate(fits, absl::StrCat("prompt ", n + 1)));
  }
  return rules;
}

// The file that texts go to, line by line.
class JsonLines {
 public:
  static absl::StatusOr<JsonLines> Open(const std::string& path) {
    JsonLines lines;
    lines.path_ = path;
    if (path == "-") {
      lines.file_ = stdout;
      return lines;
    }
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0 && errno == EEXIST)
      return AlreadyExists("'", path, "' exists and is not overwritten; name another --output");
    if (fd < 0) return ErrnoStatus("make", path);
    lines.file_ = ::fdopen(fd, "w");
    return lines;
  }

  absl::Status Write(const nlohmann::ordered_json& object) {
    const std::string line =
        object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
    const bool is_written =
        std::fwrite(line.data(), 1, line.size(), file_) == line.size() && std::fflush(file_) == 0;
    return is_written ? absl::OkStatus() : ErrnoStatus("write", path_);
  }
  absl::Status Close() {
    if (file_ == stdout || std::fclose(file_) == 0) return absl::OkStatus();
    return ErrnoStatus("write", path_);
  }

 private:
  std::string path_;
  std::FILE* file_ = nullptr;
};

// Texts of each prompt, the best first. `first` is the number of the first one, from 0.
absl::StatusOr<std::vector<std::vector<Hypothesis>>> GenerateTexts(
    const GenerateOptions& options, const Writer& writer, const std::vector<Tokens>& prompts,
    int64_t first) {
  const int64_t lanes = options.samples > 0 ? options.samples : options.beams.width;
  ANYORDER_ASSIGN_OR_RETURN(
      const std::unique_ptr<Decoder> decoder,
      Decoder::Create(writer.model.config.model, writer.vocabulary().size(),
                      writer.model.weights.values, *writer.form, prompts,
                      {lanes, options.rules.max_tokens}, *writer.model.backend));
  std::vector<std::vector<Hypothesis>> texts;
  if (options.samples == 0) {
    texts = BeamSearch(*decoder, options.beams);
    for (std::vector<Hypothesis>& found : texts)
      found.resize(std::min(found.size(), static_cast<size_t>(options.best)));
    return texts;
  }
  const std::vector<Hypothesis> drawn = SampleTexts(*decoder, options.sampling, first * lanes);
  for (size_t n = 0; n < prompts.size(); ++n) {
    const auto begin = drawn.begin() + static_cast<int64_t>(n) * lanes;
    texts.emplace_back(begin, begin + lanes);
  }
  return texts;
}

absl::Status WriteTexts(const Writer& writer, const std::vector<Hypothesis>& texts,
                        const std::string& prompt, int64_t number, JsonLines& output) {
  int64_t rank = 0;
  for (const Hypothesis& text : texts) {
    std::string words = TextOfTokens(writer.vocabulary().pieces, text.tokens);
    // A text that goes on from its prompt keeps the space between them.
    const bool goes_on = writer.form->traits().takes_empty_prompt && !prompt.empty();
    if (!goes_on && !words.empty() && words.front() == ' ') words.erase(0, 1);
    ANYORDER_RETURN_IF_ERROR(output.Write({{"prompt", number},
                                           {"rank", ++rank},
                                           {"input", prompt},
                                           {"text", words},
                                           {"score", text.score},
                                           {"log_prob", text.log_prob},
                                           {"tokens", text.length()},
                                           {"ended", text.ended}}));
  }
  return absl::OkStatus();
}

// Writes one JSON object a text: prompt (its number, from 1), rank (from 1), input, text, score,
// log_prob, tokens, ended. The file must not be there yet; texts of finished prompts stay in it if
// something fails later.
// Errors: InvalidArgument for options that do not fit one another, the model or a prompt;
// AlreadyExists; FailedPrecondition for a run whose objective writes no text, another vocabulary,
// or unreadable prompts; NotFound, DataLoss.
absl::Status Generate(GenerateOptions options) {
  SetLogName("generate");
  ANYORDER_ASSIGN_OR_RETURN(const std::vector<std::string> prompts, ReadPrompts(options.input));
  ANYORDER_ASSIGN_OR_RETURN(const Writer writer, OpenWriter(options));
  ANYORDER_ASSIGN_OR_RETURN(const std::vector<Tokens> tokens,
                            EncodeTexts(prompts, writer.vocabulary().path,
                                        writer.vocabulary().letter_case, "encoding the prompts"));
  ANYORDER_ASSIGN_OR_RETURN(options.rules, MakeRules(options, writer, tokens));
  options.beams.rules = options.sampling.rules = options.rules;
  if (options.stop_first) options.beams.stop = SearchStop::kFirst;
  ANYORDER_RETURN_IF_ERROR(options.samples > 0 ? options.sampling.Validate()
                                               : options.beams.Validate());
  ANYORDER_ASSIGN_OR_RETURN(JsonLines output, JsonLines::Open(options.output));
  const auto num_prompts = static_cast<int64_t>(tokens.size());
  for (int64_t begin = 0; begin < num_prompts; begin += options.batch) {
    const int64_t end = std::min(num_prompts, begin + options.batch);
    const std::vector<Tokens> group(tokens.begin() + begin, tokens.begin() + end);
    ANYORDER_ASSIGN_OR_RETURN(const std::vector<std::vector<Hypothesis>> texts,
                              GenerateTexts(options, writer, group, begin));
    for (int64_t n = begin; n < end; ++n)
      ANYORDER_RETURN_IF_ERROR(WriteTexts(writer, texts[n - begin], prompts[n], n + 1, output));
  }
  ANYORDER_RETURN_IF_ERROR(output.Close());
  if (options.output != "-")
    Log(absl::StrCat(options.output, ": texts for ", Counted(num_prompts, "prompt")));
  return absl::OkStatus();
}

constexpr int64_t kMost = int64_t{1} << 20;

// How texts are chosen: beam search, or sampling with --sample.
void DeclareChoice(CLI::App* command, GenerateOptions& options) {
  CLI::Option* sample = AddCount(command, "--sample", options.samples,
                                 "sample N texts per prompt instead of beam search", 1, kMost);
  for (CLI::Option* option :
       {AddCount(command, "--beam", options.beams.width, "beam width; 1 is greedy search", 1, 1024),
        AddCount(command, "--best", options.best, "hypotheses returned per prompt", 1, kMost),
        AddNumber(command, "--length-penalty", options.beams.length_penalty,
                  "divide log-probabilities by ((5 + n) / 6)^X for n tokens")})
    option->capture_default_str()->excludes(sample);
  command
      ->add_flag("--stop-first", options.stop_first,
                 "stop as soon as the beam holds --beam finished texts")
      ->excludes(sample);
  for (CLI::Option* option :
       {AddNumber(command, "--temperature", options.sampling.cuts.temperature, "divide logits by X"),
        AddCount(command, "--top-k", options.sampling.cuts.top_k,
                 "sample from the N most likely tokens; 0: all", 0, kMost),
        AddNumber(command, "--top-p", options.sampling.cuts.top_p,
                  "nucleus sampling: sample from the most likely tokens of total probability X"),
        AddCount(command, "--seed", options.sampling.seed, "seed of sampling")})
    option->capture_default_str()->needs(sample);
}

}  // namespace

Subcommand DeclareGenerate(CLI::App& front) {
  const auto options = std::make_shared<GenerateOptions>();
  CLI::App* command =
      AddCommand(front, "generate", "Generate text from a checkpoint.",
                 {"anyorder generate runs/gpt --input prompts.txt --output texts.jsonl",
                  "echo 'Once upon a time' | anyorder generate runs/gpt --input - --output - "
                  "--sample 3 --top-p 0.9"});
  AddRunDir(command, options->run_dir, "run directory");
  AddPath(command, "--input", options->input,
          "prompts, one per line; .jsonl: the field text of each object; -: standard input",
          PathUse::kReadFile, /*takes_dash=*/true)
      ->required();
  AddPath(command, "--output", options->output, "FILE.jsonl to write; -: standard output",
          PathUse::kWriteFile, /*takes_dash=*/true)
      ->required();
  AddCount(command, "--max-len", options->max_tokens,
           "most tokens per text, end of text included (default: 128, or what the positions allow)",
           1, kMost);
  AddCount(command, "--min-len", options->rules.min_tokens, "fewest tokens per text", 0, kMost)
      ->capture_default_str();
  AddCount(command, "--block-ngram", options->rules.block_ngram,
           "never repeat N consecutive tokens within a text; 0: off", 0, kMost)
      ->capture_default_str();
  DeclareChoice(command, *options);
  AddCount(command, "--batch", options->batch, "prompts per batch; does not affect results", 1,
           4096)
      ->capture_default_str();
  AddTextModelOptions(command, *options);
  return {command, [options] {
            EnsureShortSpin();
            return Report(Generate(*options));
          }};
}

}  // namespace anyorder::launcher
