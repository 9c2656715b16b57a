#include "data/prep/prep.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "core/base/digest.h"
#include "core/base/file_system.h"
#include "core/base/status.h"
#include "core/base/whole_file.h"
#include "data/dataset/shard_index.h"
#include "data/prep/assembler.h"
#include "data/prep/shard_writer.h"
#include "data/prep/staging.h"
#include "data/prep/worker_pool.h"

namespace anyorder::data {
namespace {

std::vector<size_t> AllOf(size_t count) {
  std::vector<size_t> indexes(count);
  std::iota(indexes.begin(), indexes.end(), size_t{0});
  return indexes;
}

bool IsVocabularyGiven(const PrepOptions& options) {
  return !options.vocab.empty() || !options.tokenizer.empty();
}

absl::Status Validate(const PrepOptions& options) {
  const auto refuse = [](const auto&... parts) { return InvalidArgument(parts...); };
  const VocabTraining& vocabulary = options.vocabulary;
  if (options.inputs.empty()) return refuse("--input names nothing");
  if (options.output.empty()) return refuse("--output is empty");
  if (options.workers < 1)
    return refuse("--workers ", options.workers, " is below 1; leave it out to use every core");
  if (!IsVocabularyGiven(options) &&
      (vocabulary.size < kMinVocabSize || vocabulary.size > kMaxVocabSize)) {
    return refuse("--vocab-size ", vocabulary.size, " is not in the range ", kMinVocabSize, " to ",
                  kMaxVocabSize, "; 32000 is usual");
  }
  if (vocabulary.min_count < 1 ||
      (vocabulary.min_count > 1 && vocabulary.type == VocabType::kPieces)) {
    return refuse(
        "--min-count ", vocabulary.min_count,
        " must be 1 or more, and needs --vocab-type word or char: pieces are not counted");
  }
  RETURN_IF_ERROR(CheckShardTokens(options.shard_tokens));
  const bool has_slices = options.part == PrepPart::kSlice || options.part == PrepPart::kMerge;
  if (has_slices && (options.num_slices < 1 || options.num_slices > kMaxSlices))
    return refuse(options.num_slices, " slices are not in the range 1 to ", kMaxSlices);
  if (options.part == PrepPart::kSlice &&
      (options.slice < 1 || options.slice > options.num_slices)) {
    return refuse("--slice ", options.slice, "/", options.num_slices,
                  ": the first number must be 1 to ", options.num_slices);
  }
  return absl::OkStatus();
}

// What shaped the text: goes into dataset.json and, with the vocabulary, into the plan.
// With `as_written` text is not cleaned.
std::map<std::string, std::string> Settings(const PrepOptions& options, bool as_written) {
  const FilterOptions& filter = options.text.filter;
  std::map<std::string, std::string> settings{
      {"case", options.text.letter_case == LetterCase::kCased ? "cased" : "uncased"},
      {"duplicates", options.text.drop_duplicates ? "drop" : "keep"},
      {"filter", filter.enabled ? "on" : "off"},
      {"invalid_utf8", options.text.invalid_utf8 == InvalidUtf8::kError ? "error" : "replace"},
      {"vocabulary", IsVocabularyGiven(options) ? "given" : "trained"},
  };
  if (as_written) {
    settings.erase("case");
    settings["text"] = "as written";
  }
  if (filter.enabled) {
    settings["min_words"] = absl::StrCat(filter.min_words);
    settings["min_letters"] = absl::StrCat(filter.min_letter_fraction);
    settings["max_word_length"] = absl::StrCat(filter.max_mean_word_chars);
    settings["max_repeated_lines"] = absl::StrCat(filter.max_repeated_lines);
  }
  if (!IsVocabularyGiven(options) && options.vocabulary.type != VocabType::kPieces)
    settings["vocab_type"] = options.vocabulary.type == VocabType::kWords ? "word" : "char";
  return settings;
}

// Why no document is left.
std::string NoneLeft(uint64_t read, const std::map<std::string, uint64_t>& counts) {
  if (read == 0) return "the input holds no document: every line is blank";
  std::vector<std::string> names = {"without_tokens"};
  for (int i = 1; i < kNumVerdicts; ++i) names.push_back(VerdictName(static_cast<Verdict>(i)));
  std::vector<std::string> reasons;
  for (const std::string& name : names) {
    if (const uint64_t dropped = counts.at("documents_" + name); dropped > 0)
      reasons.push_back(absl::StrCat(dropped, " ", name));
  }
  return absl::StrCat("no document is left of ", read, ": ", absl::StrJoin(reasons, ", "),
                      "; --no-filter keeps what the quality filter drops");
}

// None if there is one to train.
absl::StatusOr<std::optional<DatasetVocabulary>> ReadGiven(const PrepOptions& options) {
  return ReadGivenVocabulary(options.vocab, options.tokenizer, options.declared,
                             options.text.letter_case);
}

InputSearch SearchOf(const PrepOptions& options) {
  return {InputUse::kText, options.text.text_field, options.max_window};
}

// One run from scan to publication.
class Preparation {
 public:
  explicit Preparation(const PrepOptions& options) : options_(options) {}

  absl::StatusOr<PrepSummary> Run() {
    const ProgressLine total("", 0, true);
    RETURN_IF_ERROR(Validate(options_));
    ASSIGN_OR_RETURN(given_, ReadGiven(options_));
    RETURN_IF_ERROR(FindFiles());
    // At once, too: whether Python has what is needed.
    if (IsAsWritten() && options_.part != PrepPart::kMerge)
      RETURN_IF_ERROR(TokenizerProcess::Start(options_.tokenizer_script, given_->path).status());
    ASSIGN_OR_RETURN(Staging staging, Stage());
    staging_.emplace(std::move(staging));
    const absl::Status status = Work();
    if (!status.ok()) {
      ForgetEmptyWork();
      return status;
    }
    summary_.total_seconds = total.Seconds();
    return summary_;
  }

 private:
  // A file and the range of it that one worker encodes.
  struct Unit {
    size_t file;
    UnitRange range;
  };

  // Hugging Face's tokenizer encodes documents as they are written, in processes of Python.
  bool IsAsWritten() const { return given_ && given_->is_hugging_face(); }

  absl::Status FindFiles() {
    ASSIGN_OR_RETURN(InputFiles found, FindInputFiles(options_.inputs, SearchOf(options_)));
    files_ = std::move(found.files);
    summary_.files_read = files_.size();
    summary_.left_out = std::move(found.left_out);
    // At once: the rest may take hours.
    if (!options_.quiet) std::fputs(DescribeLeftOut(summary_.left_out).c_str(), stderr);
    return absl::OkStatus();
  }

  absl::StatusOr<Staging> Stage() const {
    if (options_.part == PrepPart::kSlice)
      return Staging::Join(options_.output,
                           absl::StrCat(options_.slice, "-of-", options_.num_slices));
    ASSIGN_OR_RETURN(Staging staging, Staging::Open(options_.output));
    if (options_.part != PrepPart::kMerge || staging.has_plan()) return staging;
    RETURN_IF_ERROR(staging.Remove());
    return FailedPrecondition("no preparation is planned in '", options_.output,
                              "'; run it with --plan, then with --slice");
  }

  absl::Status Work() {
    const bool is_planned = options_.part == PrepPart::kSlice || options_.part == PrepPart::kMerge;
    RETURN_IF_ERROR(is_planned ? LoadScan() : Scan());
    RETURN_IF_ERROR(BindPlan());
    summary_.text_bytes = text_bytes_;
    summary_.workers = options_.workers;
    summary_.num_units = UnitsOfPart().size();
    if (!staging_->IsPublished()) {
      RETURN_IF_ERROR(ObtainModel());
      if (options_.part == PrepPart::kPlan) return absl::OkStatus();
      if (options_.part == PrepPart::kMerge) {
        RETURN_IF_ERROR(CheckSlices());
      } else {
        RETURN_IF_ERROR(EncodeUnits());
      }
      if (options_.part == PrepPart::kSlice) return absl::OkStatus();
      RETURN_IF_ERROR(Assemble());
      RETURN_IF_ERROR(staging_->Publish());
    }
    // What is published is the merge's to finish.
    if (options_.part == PrepPart::kPlan || options_.part == PrepPart::kSlice)
      return absl::OkStatus();
    RETURN_IF_ERROR(Summarize());
    return staging_->Remove();
  }

  // Gives up the staging folder after a failure if it holds nothing that took time.
  void ForgetEmptyWork() {
    // Others may work on it, or it waits for them.
    const bool is_shared = options_.part == PrepPart::kSlice || options_.part == PrepPart::kMerge;
    const bool has_trained_model = !given_ && staging_->Exists(staging_->ModelPath());
    const bool has_work = has_trained_model || staging_->HasUnits() || staging_->IsPublished();
    if ((has_work || is_shared) && !is_hopeless_) return;
    // The error that led here matters more than one of the clean-up.
    staging_->Remove().IgnoreError();
  }

  absl::Status Scan() {
    for (const InputFile& file : files_) stored_bytes_ += file.stored_bytes;
    const uint64_t unit_bytes = UnitBytes(stored_bytes_);
    ProgressLine progress("scan", stored_bytes_, options_.quiet);
    const auto scan_one = [&](size_t i, uint64_t* done) -> absl::StatusOr<std::string> {
      ASSIGN_OR_RETURN(const ScannedFile scan, ScanFile(files_[i], unit_bytes, done));
      return SerializeScan(scan);
    };
    ASSIGN_OR_RETURN(const std::vector<std::string> scans,
                     RunInWorkers(options_.workers, AllOf(files_.size()), scan_one,
                                  [&](uint64_t bytes) { progress.Update(bytes); }));
    std::vector<ScannedFile> parsed;
    for (const std::string& scan : scans) parsed.push_back(ParseScan(scan));
    TakeScans(parsed);
    if (options_.part == PrepPart::kPlan) scan_for_slices_ = SerializeScans(files_, parsed);
    return absl::OkStatus();
  }

  absl::Status LoadScan() {
    const absl::StatusOr<std::string> text = ReadWholeFile(staging_->ScanPath());
    if (absl::IsNotFound(text.status())) {
      return FailedPrecondition("the work in '", staging_->folder(),
                                "' was not planned to be split; run it with --plan, too");
    }
    RETURN_IF_ERROR(text.status());
    ASSIGN_OR_RETURN(const std::vector<ScannedFile> scans,
                     ParseScans(*text, staging_->ScanPath(), files_));
    TakeScans(scans);
    return absl::OkStatus();
  }

  void TakeScans(const std::vector<ScannedFile>& scans) {
    for (size_t i = 0; i < files_.size(); ++i) {
      file_digests_.push_back(scans[i].digest);
      text_bytes_ += scans[i].text_bytes;
      for (const UnitRange& range : scans[i].units) units_.push_back({i, range});
    }
  }

  absl::Status BindPlan() {
    PlanIdentity identity;
    identity.options = Settings(options_, IsAsWritten());
    identity.options["shard_tokens"] = absl::StrCat(options_.shard_tokens);
    // How files are read; which text they hold is what the dataset records.
    identity.options["text_field"] = options_.text.text_field;
    identity.options["table"] =
        absl::StrCat(options_.text.table.has_header ? "header" : "no header",
                     options_.text.table.has_quotes ? ", quotes" : "");
    if (!options_.tokenizer.empty()) {
      AddTokenizer(*given_, identity);
    } else if (!given_) {
      identity.options["vocab_size"] = absl::StrCat(options_.vocabulary.size);
      if (options_.vocabulary.min_count > 1)
        identity.options["min_count"] = absl::StrCat(options_.vocabulary.min_count);
      identity.options["vocab_sample_bytes"] = absl::StrCat(options_.vocab_sample_bytes);
    } else {
      identity.options["vocab"] = DigestOf(given_->bytes).Hex();
    }
    for (size_t i = 0; i < files_.size(); ++i)
      identity.inputs.push_back({.path = files_[i].path, .digest = file_digests_[i]});
    summary_.resumed = staging_->has_plan();
    RETURN_IF_ERROR(staging_->BindPlan(identity));
    // Only now: another plan's slices must find theirs as it was.
    return scan_for_slices_.empty() ? absl::OkStatus()
                                    : WriteFileAtomically(staging_->ScanPath(), scan_for_slices_);
  }

  absl::Status ObtainModel() {
    std::string model;
    if (staging_->Exists(staging_->ModelPath())) {
      ASSIGN_OR_RETURN(model, ReadWholeFile(staging_->ModelPath()));
    } else if (options_.part == PrepPart::kSlice || options_.part == PrepPart::kMerge) {
      return FailedPrecondition("the plan in '", staging_->folder(),
                                "' has no vocabulary yet; run --plan to its end");
    } else {
      if (given_) {
        model = given_->bytes;
      } else {
        ASSIGN_OR_RETURN(model, TrainModel());
      }
      RETURN_IF_ERROR(WriteFileAtomically(staging_->ModelPath(), model));
    }
    if (given_) vocabulary_ = *given_;
    if (IsAsWritten()) return absl::OkStatus();
    ASSIGN_OR_RETURN(Tokenizer tokenizer, given_ ? Tokenizer::LoadOther(*given_)
                                                 : Tokenizer::Load(model, staging_->ModelPath()));
    if (!given_) vocabulary_ = VocabularyOf(tokenizer, std::move(model), "");
    tokenizer_.emplace(std::move(tokenizer));
    return absl::OkStatus();
  }

  // The chance of a line of the sampled units to be in the sample, so that it is as large as asked
  // for.
  double SampledFraction(const std::vector<size_t>& sampled) const {
    if (text_bytes_ == 0) return 1.0;
    uint64_t all = 0, chosen = 0;
    for (const Unit& unit : units_) all += unit.range.end - unit.range.begin;
    for (const size_t i : sampled) chosen += units_[i].range.end - units_[i].range.begin;
    const double fraction =
        static_cast<double>(options_.vocab_sample_bytes) / static_cast<double>(text_bytes_);
    return sampled.size() == units_.size()
               ? fraction
               : fraction * static_cast<double>(all) / static_cast<double>(chosen);
  }

  absl::StatusOr<std::string> TrainModel() {
    const std::vector<size_t> sampled =
        UnitsToSample(units_.size(), text_bytes_, options_.vocab_sample_bytes);
    const double fraction = SampledFraction(sampled);
    const auto sample_one = [&](size_t i, uint64_t* done) -> absl::StatusOr<std::string> {
      const Unit& unit = units_[i];
      RETURN_IF_ERROR(SampleUnit(files_[unit.file], unit.range, options_.text, fraction,
                                 staging_->SamplePath(i), done));
      return std::string();
    };
    {
      // Units are alike in size.
      const uint64_t expected = text_bytes_ / std::max<size_t>(1, units_.size()) * sampled.size();
      ProgressLine progress("sample", expected, options_.quiet);
      RETURN_IF_ERROR(RunInWorkers(options_.workers, sampled, sample_one, [&](uint64_t bytes) {
                        progress.Update(bytes);
                      }).status());
    }
    // In a process of its own, so that its memory, 25 times the sample, is given back before
    // encoding.
    const auto train = [&](size_t, uint64_t*) -> absl::StatusOr<std::string> {
      size_t next = 0;
      std::ifstream sample;
      bool is_empty = true;
      const auto next_sentence = [&](std::string& sentence) {
        while (!sample.is_open() || !std::getline(sample, sentence)) {
          sample.close();
          sample.clear();
          if (next == sampled.size()) return false;
          sample.open(staging_->SamplePath(sampled[next++]), std::ios::binary);
        }
        is_empty = false;
        return true;
      };
      absl::StatusOr<std::string> model = TrainTokenizer(options_.vocabulary, next_sentence);
      if (!model.ok() && is_empty)
        return absl::DataLossError("the input holds no text: every line is blank");
      return model;
    };
    if (!options_.quiet) {
      ::dprintf(STDERR_FILENO,
                options_.vocabulary.type == VocabType::kPieces
                    ? "vocabulary: training %llu pieces\n"
                    : "vocabulary: at most %llu entries\n",
                static_cast<unsigned long long>(options_.vocabulary.size));
    }
    ASSIGN_OR_RETURN(const std::vector<std::string> models, RunInWorkers(1, {0}, train, nullptr));
    for (const size_t i : sampled) ::unlink(staging_->SamplePath(i).c_str());
    return models[0];
  }

  std::vector<size_t> UnitsOfPart() const {
    if (options_.part != PrepPart::kSlice) return AllOf(units_.size());
    // In turn, not in blocks: neighbours are alike, and a slow file is shared by all.
    std::vector<size_t> units;
    for (size_t i = options_.slice - 1; i < units_.size(); i += options_.num_slices)
      units.push_back(i);
    return units;
  }

  absl::Status CheckSlices() const {
    std::map<size_t, size_t> missing;  // units by slice
    for (size_t i = 0; i < units_.size(); ++i)
      if (!staging_->Exists(staging_->UnitPath(i))) ++missing[i % options_.num_slices + 1];
    if (missing.empty()) return absl::OkStatus();
    constexpr size_t kMostNamed = 8;
    std::vector<std::string> names;
    for (const auto& [slice, count] : missing) {
      if (names.size() == kMostNamed) break;
      names.push_back(absl::StrCat(slice, " (", count, " units)"));
    }
    return FailedPrecondition(
        missing.size(), " of ", options_.num_slices, " slices of '", options_.output,
        "' are not finished: slice ", absl::StrJoin(names, ", "),
        missing.size() > kMostNamed ? ", ..." : "", "; run --slice ", missing.begin()->first, "/",
        options_.num_slices,
        missing.size() > 1 ? " and the others, then merge again" : ", then merge again");
  }

  // In a worker.
  absl::Status EncodeOne(const Unit& unit, const std::string& out_path, uint64_t* done) {
    const InputFile& file = files_[unit.file];
    if (!IsAsWritten())
      return EncodeUnit(file, unit.range, options_.text, *tokenizer_, out_path, done);
    // One for all units of the worker; it ends with it.
    if (process_ == nullptr) {
      ASSIGN_OR_RETURN(process_,
                       TokenizerProcess::Start(options_.tokenizer_script, staging_->ModelPath()));
    }
    return EncodeUnitAsWritten(file, unit.range, options_.text, *process_, vocabulary_.size,
                               out_path, done);
  }

  absl::Status EncodeUnits() {
    std::vector<size_t> missing;
    for (const size_t i : UnitsOfPart()) {
      if (!staging_->Exists(staging_->UnitPath(i))) missing.push_back(i);
    }
    const auto encode_one = [&](size_t i, uint64_t* done) -> absl::StatusOr<std::string> {
      RETURN_IF_ERROR(EncodeOne(units_[i], staging_->UnitPath(i), done));
      return std::string();
    };
    // Units are alike in size, so their share of the whole estimates what is left to do.
    const uint64_t expected = units_.empty() ? 0 : text_bytes_ / units_.size() * missing.size();
    ProgressLine progress("encode", expected, options_.quiet);
    const auto on_progress = [&](uint64_t bytes) {
      summary_.encoded_bytes = bytes;
      progress.Update(bytes);
    };
    RETURN_IF_ERROR(RunInWorkers(options_.workers, missing, encode_one, on_progress).status());
    summary_.encode_seconds = progress.Seconds();
    summary_.units_encoded = missing.size();
    return absl::OkStatus();
  }

  absl::Status Assemble() {
    std::vector<std::string> paths;
    for (size_t i = 0; i < units_.size(); ++i) paths.push_back(staging_->UnitPath(i));
    ASSIGN_OR_RETURN(const AssemblyDecisions decisions, DecideDocuments(paths, options_.text));
    std::map<std::string, uint64_t> counts{
        {"text_bytes", decisions.totals.text.bytes},
        {"documents_kept", decisions.num_documents},
        {"documents_duplicate", decisions.totals.duplicates},
        {"documents_without_tokens", decisions.num_empty},
        {"invalid_utf8_replaced", decisions.totals.text.invalid_replaced},
        {"long_lines_cut", decisions.totals.text.long_lines},
    };
    uint64_t read = decisions.num_documents + decisions.totals.duplicates + decisions.num_empty;
    for (int i = 1; i < kNumVerdicts; ++i) {
      counts[absl::StrCat("documents_", VerdictName(static_cast<Verdict>(i)))] =
          decisions.totals.verdicts[i];
      read += decisions.totals.verdicts[i];
    }
    counts["documents_read"] = read;
    if (decisions.num_documents == 0) {
      is_hopeless_ = true;
      return absl::DataLossError(NoneLeft(read, counts));
    }
    RETURN_IF_ERROR(StoreFile(staging_->OutFolder(), vocabulary_.file, vocabulary_.bytes).status());
    ASSIGN_OR_RETURN(DatasetIndex index, WriteDataset(paths, decisions, staging_->OutFolder(),
                                                      StartIndex(vocabulary_, options_.shard_tokens,
                                                                 decisions.corpus_digest),
                                                      vocabulary_.is_start_piece));
    index.settings = Settings(options_, IsAsWritten());
    index.counts = std::move(counts);
    return WriteFileAtomically(absl::StrCat(staging_->OutFolder(), "/", kIndexFile),
                               SerializeDatasetIndex(index));
  }

  absl::Status Summarize() {
    ASSIGN_OR_RETURN(summary_.index, ReadDatasetIndex(options_.output));
    const DatasetIndex& index = summary_.index;
    summary_.dataset_bytes = index.tokenizer.bytes + index.shards.bytes;
    ASSIGN_OR_RETURN(const ShardIndex shards,
                     ShardIndex::Open(*FileSystem::Posix(), options_.output, index));
    for (uint64_t shard = 0; shard < shards.num_shards(); ++shard) {
      ASSIGN_OR_RETURN(const ShardRecord record, shards.Read(shard));
      summary_.dataset_bytes += record.bytes;
    }
    return absl::OkStatus();
  }

  const PrepOptions& options_;
  std::optional<DatasetVocabulary> given_;
  std::vector<InputFile> files_;
  std::vector<std::string> file_digests_;
  std::vector<Unit> units_;
  std::string scan_for_slices_;  // kPlan only
  uint64_t stored_bytes_ = 0;
  uint64_t text_bytes_ = 0;
  std::optional<Staging> staging_;
  DatasetVocabulary vocabulary_;               // given, or trained
  std::optional<Tokenizer> tokenizer_;         // but of IsAsWritten
  std::unique_ptr<TokenizerProcess> process_;  // in a worker, of IsAsWritten
  PrepSummary summary_;
  bool is_hopeless_ = false;  // running again cannot help: nothing is worth keeping
};

}  // namespace

absl::Status CheckPrep(const PrepOptions& options) {
  RETURN_IF_ERROR(Validate(options));
  RETURN_IF_ERROR(ReadGiven(options).status());
  RETURN_IF_ERROR(FindInputFiles(options.inputs, SearchOf(options)).status());
  return Staging::Check(options.output);
}

absl::StatusOr<PrepSummary> RunPrep(const PrepOptions& options) {
  return Preparation(options).Run();
}

}  // namespace anyorder::data
