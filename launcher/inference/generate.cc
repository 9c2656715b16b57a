// `anyorder generate`: text from a checkpoint.

#include <fcntl.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

#include "ckpt/reader.h"
#include "core/base/digest.h"
#include "core/base/log.h"
#include "core/base/status.h"
#include "core/base/whole_file.h"
#include "core/generate/beam_search.h"
#include "core/generate/decoder.h"
#include "core/generate/sampling.h"
#include "core/objective/objective.h"
#include "core/train/run/config_file.h"
#include "core/train/run/run_directory.h"
#include "core/train/state/resume.h"
#include "core/train/state/saved_weights.h"
#include "data/dataset/dataset_index.h"
#include "kernels/backends/make_backend.h"
#include "launcher/huggingface/saved_step.h"
#include "launcher/huggingface/spiece_file.h"
#include "launcher/inference/prompts.h"
#include "launcher/inference/run_backend.h"
#include "launcher/process/command_line.h"
#include "launcher/process/counted.h"
#include "launcher/process/openmp_spin.h"
#include "launcher/process/private_files.h"
#include "launcher/start/imported_run.h"

namespace anyorder::launcher {
namespace {

using Tokens = std::vector<int32_t>;

struct GenerateOptions {
  std::string run_dir;
  int64_t step = -1;        // -1: the newest good checkpoint
  std::string input;        // prompts (prompts.h)
  std::string output;       // .jsonl to make, "-": standard output
  std::string vocab;        // SentencePiece model; "": the run's
  std::string letter_case;  // "cased", "uncased"; "": as the run's text was prepared

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
  int64_t batch = 8;    // prompts at once
  int64_t threads = 0;  // 0: all usable cores
  kernels::DeviceChoice device = kernels::DeviceChoice::kAuto;
};

constexpr int64_t kDefaultMaxTokens = 128;

struct Vocabulary {
  std::string path;
  std::string letter_case;
  std::vector<VocabularyPiece> pieces;

  int64_t size() const { return static_cast<int64_t>(pieces.size()); }
};

// What generates.
struct Writer {
  RunConfig config;
  Vocabulary vocabulary;
  std::unique_ptr<GenerationForm> form;
  std::unique_ptr<kernels::Backend> backend;
  SavedWeights weights;
};

absl::StatusOr<int32_t> FindPiece(const Vocabulary& vocabulary, const char* piece) {
  for (size_t id = 0; id < vocabulary.pieces.size(); ++id)
    if (vocabulary.pieces[id].text == piece) return static_cast<int32_t>(id);
  return FailedPrecondition("'", vocabulary.path, "' has no piece ", piece,
                            "; give the run's own with --vocab");
}

absl::StatusOr<GenerationTokens> FindTokens(const Vocabulary& vocabulary) {
  GenerationTokens tokens;
  ANYORDER_ASSIGN_OR_RETURN(tokens.classifier, FindPiece(vocabulary, "<cls>"));
  ANYORDER_ASSIGN_OR_RETURN(tokens.separator, FindPiece(vocabulary, "<sep>"));
  ANYORDER_ASSIGN_OR_RETURN(tokens.mask, FindPiece(vocabulary, "<mask>"));
  ANYORDER_ASSIGN_OR_RETURN(tokens.end_of_document, FindPiece(vocabulary, "<eod>"));
  return tokens;
}

// Where the run's vocabulary is: named by the user, beside imported weights, or in the dataset that
// it trains on.
absl::StatusOr<Vocabulary> FindVocabulary(const GenerateOptions& options, const RunConfig& config) {
  Vocabulary vocabulary;
  const ImportedRun imported(options.run_dir);
  std::error_code ignored;
  if (!options.vocab.empty()) {
    vocabulary.path = options.vocab;
  } else if (imported.exists() && std::filesystem::exists(imported.vocabulary, ignored)) {
    vocabulary.path = imported.vocabulary;
    vocabulary.letter_case = imported.letter_case();
  } else {
    ANYORDER_ASSIGN_OR_RETURN(const data::DatasetIndex index,
                              ReadTrainingData(config.data.shards, "the vocabulary of the run",
                                               "give its spiece.model with --vocab"));
    vocabulary.path = absl::StrCat(config.data.shards, "/", index.tokenizer.file);
    const auto found = index.settings.find("case");
    if (found != index.settings.end()) vocabulary.letter_case = found->second;
  }
  if (!options.letter_case.empty()) vocabulary.letter_case = options.letter_case;
  if (vocabulary.letter_case.empty()) vocabulary.letter_case = "cased";
  return vocabulary;
}

absl::Status LoadVocabulary(const TrainMetadata& saved, Vocabulary& vocabulary) {
  ANYORDER_ASSIGN_OR_RETURN(const std::string model, ReadWholeFile(vocabulary.path));
  const std::string digest = DigestOf(model).Hex();
  if (digest != saved.tokenizer_digest) {
    return FailedPrecondition("'", vocabulary.path, "' is vocabulary ", digest,
                              ", but the run was trained with ", saved.tokenizer_digest,
                              "; give the spiece.model of its training data with --vocab");
  }
  ANYORDER_ASSIGN_OR_RETURN(vocabulary.pieces, ParsePieces(model, vocabulary.path));
  return absl::OkStatus();
}

absl::StatusOr<Writer> OpenWriter(const GenerateOptions& options) {
  ANYORDER_RETURN_IF_ERROR(CheckIsRun(options.run_dir));
  Writer writer;
  ANYORDER_ASSIGN_OR_RETURN(writer.config, LoadRunConfig(RunDirectory(options.run_dir).config, {}));
  if (writer.config.run.is_private) KeepFilesPrivate();
  const RunConfig& config = writer.config;
  ANYORDER_ASSIGN_OR_RETURN(const std::unique_ptr<Objective> objective,
                            MakeObjective(config.objective.name, config.model, config.sampling));
  // Before anything large is read: whether the objective writes text at all.
  ANYORDER_RETURN_IF_ERROR(objective->Generation({}).status());
  ANYORDER_ASSIGN_OR_RETURN(const ckpt::Checkpoint checkpoint,
                            OpenSavedStep(options.run_dir, options.step));
  ANYORDER_ASSIGN_OR_RETURN(TrainMetadata saved, ParseMetadata(checkpoint.metadata_json()));
  ANYORDER_RETURN_IF_ERROR(AcceptRecordedSchedule(options.run_dir, config, &saved));
  ANYORDER_RETURN_IF_ERROR(CheckFitsConfig(saved, config));
  ANYORDER_ASSIGN_OR_RETURN(writer.vocabulary, FindVocabulary(options, config));
  ANYORDER_RETURN_IF_ERROR(LoadVocabulary(saved, writer.vocabulary));
  ANYORDER_ASSIGN_OR_RETURN(const GenerationTokens tokens, FindTokens(writer.vocabulary));
  ANYORDER_ASSIGN_OR_RETURN(writer.form, objective->Generation(tokens));
  ANYORDER_ASSIGN_OR_RETURN(
      writer.backend, MakeRunBackend(options.run_dir, config, options.device, options.threads));
  const ParameterLayout layout(config.model, writer.vocabulary.size());
  ANYORDER_ASSIGN_OR_RETURN(writer.weights,
                            LoadWeights(checkpoint, config, layout, *writer.backend));
  return writer;
}

// The rules of all prompts: what the options say, and no piece that is not text.
absl::StatusOr<TokenRules> MakeRules(const GenerateOptions& options, const Writer& writer,
                                     const std::vector<Tokens>& prompts) {
  TokenRules rules = options.rules;
  rules.end_token = writer.form->traits().end_token;
  rules.max_tokens = options.max_tokens.value_or(kDefaultMaxTokens);
  for (const VocabularyPiece& piece : writer.vocabulary.pieces)
    rules.banned.push_back(piece.is_text() ? 0 : 1);
  for (size_t n = 0; n < prompts.size(); ++n) {
    absl::Status fits = CheckFits(writer.config.model, *writer.form, prompts[n], rules.max_tokens);
    while (!fits.ok() && !options.max_tokens && rules.max_tokens > 1) {
      --rules.max_tokens;
      fits = CheckFits(writer.config.model, *writer.form, prompts[n], rules.max_tokens);
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
      Decoder::Create(writer.config.model, writer.vocabulary.size(), writer.weights.values,
                      *writer.form, prompts, {lanes, options.rules.max_tokens}, *writer.backend));
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
    std::string words = TextOfTokens(writer.vocabulary.pieces, text.tokens);
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
  ANYORDER_ASSIGN_OR_RETURN(
      const std::vector<Tokens> tokens,
      EncodePrompts(prompts, writer.vocabulary.path, writer.vocabulary.letter_case));
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
       {AddNumber(command, "--temperature", options.sampling.temperature, "divide logits by X"),
        AddCount(command, "--top-k", options.sampling.top_k,
                 "sample from the N most likely tokens; 0: all", 0, kMost),
        AddNumber(command, "--top-p", options.sampling.top_p,
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
  AddStep(command, options->step, "", "--step,--checkpoint");
  AddPath(command, "--input", options->input,
          "prompts, one per line; .jsonl: the field text of each object; -: standard input",
          PathUse::kReadFile, /*takes_dash=*/true)
      ->required();
  AddPath(command, "--output", options->output, "FILE.jsonl to write; -: standard output",
          PathUse::kWriteFile, /*takes_dash=*/true)
      ->required();
  AddPath(command, "--vocab", options->vocab, "spiece.model (default: the run's)",
          PathUse::kReadFile);
  AddChoice(command, "--case", options->letter_case, {"cased", "uncased"},
            "letter case of the prompts (default: as the run's text was prepared)");
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
  AddCount(command, "--threads", options->threads, "CPU threads (default: all cores)", 1, 4096);
  AddDeviceOption(command, &options->device);
  return {command, [options] {
            EnsureShortSpin();
            return Report(Generate(*options));
          }};
}

}  // namespace anyorder::launcher
