#include "launcher/inference/generate.h"

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <vector>

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
#include "launcher/huggingface/saved_step.h"
#include "launcher/huggingface/spiece_file.h"
#include "launcher/inference/prompts.h"
#include "launcher/inference/run_backend.h"
#include "launcher/start/imported_run.h"

namespace anyorder::launcher {
namespace {

using Tokens = std::vector<int32_t>;

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
  return absl::FailedPreconditionError(absl::StrCat("'", vocabulary.path, "' has no piece ", piece,
                                                    "; give the run's own with --vocab"));
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
    const absl::StatusOr<data::DatasetIndex> index = data::ReadDatasetIndex(config.data.shards);
    if (!index.ok()) {
      return absl::Status(index.status().code(),
                          absl::StrCat("the vocabulary of the run: ", index.status().message(),
                                       "; or give its spiece.model with --vocab"));
    }
    vocabulary.path = absl::StrCat(config.data.shards, "/", index->tokenizer.file);
    const auto found = index->settings.find("case");
    if (found != index->settings.end()) vocabulary.letter_case = found->second;
  }
  if (!options.letter_case.empty()) vocabulary.letter_case = options.letter_case;
  if (vocabulary.letter_case.empty()) vocabulary.letter_case = "cased";
  return vocabulary;
}

absl::Status LoadVocabulary(const TrainMetadata& saved, Vocabulary& vocabulary) {
  ANYORDER_ASSIGN_OR_RETURN(const std::string model, ReadWholeFile(vocabulary.path));
  const std::string digest = DigestOf(model).Hex();
  if (digest != saved.tokenizer_digest) {
    return absl::FailedPreconditionError(absl::StrCat(
        "'", vocabulary.path, "' is vocabulary ", digest, ", but the run was trained with ",
        saved.tokenizer_digest, "; give the spiece.model of its training data with --vocab"));
  }
  ANYORDER_ASSIGN_OR_RETURN(vocabulary.pieces, ParsePieces(model, vocabulary.path));
  return absl::OkStatus();
}

absl::StatusOr<Writer> OpenWriter(const GenerateOptions& options) {
  ANYORDER_RETURN_IF_ERROR(CheckIsRun(options.run_dir));
  Writer writer;
  ANYORDER_ASSIGN_OR_RETURN(writer.config, LoadRunConfig(RunDirectory(options.run_dir).config, {}));
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
  TokenRules rules;
  rules.end_token = writer.form->end_token();
  rules.min_tokens = options.min_tokens;
  rules.block_ngram = options.block_ngram;
  rules.max_tokens = options.max_tokens.value_or(kDefaultMaxTokens);
  for (const VocabularyPiece& piece : writer.vocabulary.pieces) {
    const bool is_text = piece.type != PieceType::kControl && piece.type != PieceType::kUnknown;
    rules.banned.push_back(is_text ? 0 : 1);
  }
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
    if (fd < 0 && errno == EEXIST) {
      return absl::AlreadyExistsError(
          absl::StrCat("'", path, "' exists and is not overwritten; name another --output"));
    }
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

// What a run of the program does with each group of prompts.
class Generation {
 public:
  Generation(const GenerateOptions& options, const Writer& writer, TokenRules rules)
      : options_(options), writer_(writer), rules_(std::move(rules)) {}

  absl::Status Check() const {
    if (options_.samples > 0) return Sampling().Validate();
    return Beams().Validate();
  }

  // Texts of each prompt, the best first. `first` is the number of the first one, from 0.
  absl::StatusOr<std::vector<std::vector<Hypothesis>>> Run(const std::vector<Tokens>& prompts,
                                                           int64_t first) const {
    const int64_t lanes = options_.samples > 0 ? options_.samples : options_.beam;
    ANYORDER_ASSIGN_OR_RETURN(
        const std::unique_ptr<Decoder> decoder,
        Decoder::Create(writer_.config.model, writer_.vocabulary.size(), writer_.weights.values,
                        *writer_.form, prompts, {lanes, rules_.max_tokens}, *writer_.backend));
    std::vector<std::vector<Hypothesis>> texts;
    if (options_.samples == 0) {
      texts = BeamSearch(*decoder, Beams());
      for (std::vector<Hypothesis>& found : texts)
        found.resize(std::min(found.size(), static_cast<size_t>(options_.best)));
      return texts;
    }
    const std::vector<Hypothesis> drawn = SampleTexts(*decoder, Sampling(), first * lanes);
    for (size_t n = 0; n < prompts.size(); ++n) {
      const auto begin = drawn.begin() + static_cast<int64_t>(n) * lanes;
      texts.emplace_back(begin, begin + lanes);
    }
    return texts;
  }

 private:
  BeamOptions Beams() const {
    BeamOptions beams;
    beams.width = options_.beam;
    beams.length_penalty = options_.length_penalty;
    beams.stop = options_.stop_first ? SearchStop::kFirst : SearchStop::kExact;
    beams.rules = rules_;
    return beams;
  }
  SampleOptions Sampling() const {
    SampleOptions sampling;
    sampling.temperature = options_.temperature;
    sampling.top_k = options_.top_k;
    sampling.top_p = options_.top_p;
    sampling.seed = static_cast<uint64_t>(options_.seed);
    sampling.rules = rules_;
    return sampling;
  }

  const GenerateOptions& options_;
  const Writer& writer_;
  TokenRules rules_;
};

absl::Status WriteTexts(const Writer& writer, const std::vector<Hypothesis>& texts,
                        const std::string& prompt, int64_t number, JsonLines& output) {
  int64_t rank = 0;
  for (const Hypothesis& text : texts) {
    std::string words = TextOfTokens(writer.vocabulary.pieces, text.tokens);
    // A text that goes on from its prompt keeps the space between them.
    const bool goes_on = writer.form->takes_empty_prompt() && !prompt.empty();
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

}  // namespace

absl::Status Generate(const GenerateOptions& options) {
  SetLogName("generate");
  ANYORDER_ASSIGN_OR_RETURN(const std::vector<std::string> prompts, ReadPrompts(options.input));
  ANYORDER_ASSIGN_OR_RETURN(const Writer writer, OpenWriter(options));
  ANYORDER_ASSIGN_OR_RETURN(
      const std::vector<Tokens> tokens,
      EncodePrompts(prompts, writer.vocabulary.path, writer.vocabulary.letter_case));
  ANYORDER_ASSIGN_OR_RETURN(TokenRules rules, MakeRules(options, writer, tokens));
  const Generation generation(options, writer, std::move(rules));
  ANYORDER_RETURN_IF_ERROR(generation.Check());
  ANYORDER_ASSIGN_OR_RETURN(JsonLines output, JsonLines::Open(options.output));
  for (size_t begin = 0; begin < tokens.size(); begin += static_cast<size_t>(options.batch)) {
    const size_t end = std::min(tokens.size(), begin + static_cast<size_t>(options.batch));
    const std::vector<Tokens> group(tokens.begin() + static_cast<int64_t>(begin),
                                    tokens.begin() + static_cast<int64_t>(end));
    ANYORDER_ASSIGN_OR_RETURN(const std::vector<std::vector<Hypothesis>> texts,
                              generation.Run(group, static_cast<int64_t>(begin)));
    for (size_t n = begin; n < end; ++n) {
      ANYORDER_RETURN_IF_ERROR(
          WriteTexts(writer, texts[n - begin], prompts[n], static_cast<int64_t>(n) + 1, output));
    }
  }
  return output.Close();
}

}  // namespace anyorder::launcher
