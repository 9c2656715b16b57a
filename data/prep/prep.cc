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

#include "core/base/counted.h"
#include "core/base/digest.h"
#include "core/base/file_system.h"
#include "core/base/named_path.h"
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

// What shaped the text: goes into dataset.json and, with the vocabulary, into the plan. `settings`
// say how it is cleaned.
std::map<std::string, std::string> Settings(const PrepOptions& options,
                                            std::map<std::string, std::string> settings) {
  const FilterOptions& filter = options.text.filter;
  settings.merge(std::map<std::string, std::string>{
      {"duplicates", options.text.drop_duplicates ? "drop" : "keep"},
      {"filter", filter.enabled ? "on" : "off"},
      {"invalid_utf8", EnumName(options.text.read.invalid_utf8)},
      {"vocabulary", IsVocabularyGiven(options) ? "given" : "trained"},
  });
  if (options.text.read.joins_paragraphs) settings["paragraphs"] = "join";
  if (filter.enabled) {
    settings["min_words"] = absl::StrCat(filter.min_words);
    settings["min_letters"] = absl::StrCat(filter.min_letter_fraction);
    settings["max_word_length"] = absl::StrCat(filter.max_mean_word_chars);
    settings["max_repeated_lines"] = absl::StrCat(filter.max_repeated_lines);
  }
  if (!IsVocabularyGiven(options) && options.vocabulary.type != VocabType::kPieces)
    settings["vocab_type"] = EnumName(options.vocabulary.type);
  return settings;
}

// Why no document is left. `splits`: whether blank lines end documents.
std::string NoneLeft(uint64_t read, const std::map<std::string, uint64_t>& counts, bool splits) {
  if (read == 0) return "the input holds no document: every line is blank";
  std::vector<std::string> reasons;
  for (int i = 1; i < kNumVerdicts; ++i) {
    const char* const name = VerdictName(static_cast<Verdict>(i));
    if (const uint64_t dropped = counts.at(absl::StrCat("documents_", name)); dropped > 0)
      reasons.push_back(absl::StrCat(dropped, " ", name));
  }
  return absl::StrCat("no document is left of ", read, ": ", absl::StrJoin(reasons, ", "),
                      "; --no-filter keeps what the quality filter drops",
                      splits ? "; of .txt files a blank line ends a document unless you pass "
                               "--paragraphs join"
                             : "");
}

std::map<std::string, uint64_t> Counts(const UnitCounts& totals) {
  std::map<std::string, uint64_t> counts{
      {"text_bytes", totals.text.bytes},
      {"invalid_utf8_replaced", totals.text.invalid_replaced},
      {"long_lines_cut", totals.text.long_lines},
  };
  for (int i = 0; i < kNumVerdicts; ++i) {
    const char* const name = VerdictName(static_cast<Verdict>(i));
    counts["documents_read"] += totals.verdicts.documents[i];
    counts["bytes_read"] += totals.verdicts.bytes[i];
    counts[absl::StrCat("documents_", name)] = totals.verdicts.documents[i];
    counts[absl::StrCat("bytes_", name)] = totals.verdicts.bytes[i];
  }
  totals.text.marks.AddTo(counts);
  return counts;
}

InputSearch SearchOf(const PrepOptions& options) {
  return {InputUse::kText, options.text.read.text_field, options.max_window};
}

// One run from scan to publication.
class Preparation {
 public:
  explicit Preparation(const PrepOptions& options) : options_(options) {}

  absl::StatusOr<PrepSummary> Run() {
    const ProgressLine total("", 0, true);
    RETURN_IF_ERROR(Validate(options_));
    ASSIGN_OR_RETURN(given_,
                     ReadGivenVocabulary(options_.vocab, options_.tokenizer, options_.declared));
    vocabulary_.cleaning = options_.declared.CleaningOr({});
    if (given_) vocabulary_ = *given_;
    options_.text.read.cleaning = vocabulary_.cleaning;
    options_.vocabulary.clean = vocabulary_.cleaning.mode;
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

  // Whether this run goes by the plan of an earlier one.
  bool IsPlanned() const {
    return options_.part == PrepPart::kSlice || options_.part == PrepPart::kMerge;
  }
  // Hugging Face's tokenizer encodes documents as they are written, in processes of Python.
  bool IsAsWritten() const { return given_ && given_->is_hugging_face(); }

  absl::Status FindFiles() {
    ASSIGN_OR_RETURN(InputFiles found, FindInputFiles(options_.inputs, SearchOf(options_)));
    files_ = std::move(found.files);
    for (const InputFile& file : files_) stored_bytes_ += file.stored_bytes;
    summary_.files_read = files_.size();
    summary_.left_out = std::move(found.left_out);
    const auto is_txt = [](const InputFile& file) { return file.kind == TextKind::kTxt; };
    summary_.has_txt = std::any_of(files_.begin(), files_.end(), is_txt);
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
    RETURN_IF_ERROR(IsPlanned() ? LoadScan() : Scan());
    RETURN_IF_ERROR(BindPlan());
    summary_.text_bytes = text_bytes_;
    summary_.workers = options_.workers;
    summary_.num_units = UnitsOfPart().size();
    if (!staging_->IsPublished()) {
      RETURN_IF_ERROR(ObtainModel());
      RETURN_IF_ERROR(FindFinished());
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
    const bool has_trained_model = !given_ && IsThere(staging_->ModelPath());
    const auto units = staging_->UnitPaths();
    const bool has_work =
        has_trained_model || !units.ok() || !units->empty() || staging_->IsPublished();
    // Others may work on what is planned, or it waits for them.
    if ((has_work || IsPlanned()) && !is_hopeless_) return;
    // The error that led here matters more than one of the clean-up.
    staging_->Remove().IgnoreError();
  }

  absl::Status Scan() {
    ProgressLine progress("scan", stored_bytes_, options_.quiet);
    const auto scan_one = [&](size_t i, uint64_t* done) -> absl::StatusOr<std::string> {
      ASSIGN_OR_RETURN(const ScannedFile scan, ScanFile(files_[i], done));
      return SerializeScan(scan);
    };
    ASSIGN_OR_RETURN(const std::vector<std::string> scans,
                     RunInWorkers(options_.workers, files_.size(), scan_one,
                                  [&](uint64_t bytes) { progress.Update(bytes); }));
    std::vector<ScannedFile> parsed;
    for (const std::string& scan : scans) parsed.push_back(ParseScan(scan));
    TakeScans(parsed);
    if (options_.part == PrepPart::kPlan) scan_for_slices_ = SerializeScans(files_, parsed);
    return absl::OkStatus();
  }

  absl::Status LoadScan() {
    const absl::StatusOr<std::string> text = ReadWholeFile(staging_->ScanPath(), kMaxTextBytes);
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
    identity.options = Settings(options_, vocabulary_.TextSettings());
    identity.options["paragraphs"] = options_.text.read.joins_paragraphs ? "join" : "split";
    identity.options["shard_tokens"] = absl::StrCat(options_.shard_tokens);
    // How files are read; which text they hold is what the dataset records.
    identity.options["text_field"] = options_.text.read.text_field;
    identity.options["table"] =
        absl::StrCat(options_.text.read.table.has_header ? "header" : "no header",
                     options_.text.read.table.has_quotes ? ", quotes" : "");
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
    identity.inputs = file_digests_;
    summary_.resumed = staging_->has_plan();
    ASSIGN_OR_RETURN(has_other_input_, staging_->BindPlan(identity, /*may_change=*/!IsPlanned()));
    // What else a unit depends on; not how shards are cut.
    identity.options.erase("invalid_utf8");
    identity.options.erase("shard_tokens");
    encoding_ = absl::StrJoin(identity.options, "\n", absl::PairFormatter("="));
    // Only now: another plan's slices must find theirs as it was.
    return scan_for_slices_.empty() ? absl::OkStatus()
                                    : WriteFileAtomically(staging_->ScanPath(), scan_for_slices_);
  }

  absl::Status ObtainModel() {
    std::string model;
    if (IsThere(staging_->ModelPath())) {
      ASSIGN_OR_RETURN(model, ReadWholeFile(staging_->ModelPath(), kMaxTextBytes));
    } else if (IsPlanned()) {
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
    if (IsAsWritten()) return absl::OkStatus();
    if (!given_) {
      ASSIGN_OR_RETURN(const Tokenizer trained, Tokenizer::Load(model, staging_->ModelPath()));
      vocabulary_ = VocabularyOf(trained, std::move(model), "", options_.declared);
    }
    ASSIGN_OR_RETURN(Tokenizer tokenizer, Tokenizer::LoadOther(vocabulary_));
    tokenizer_.emplace(std::move(tokenizer));
    return absl::OkStatus();
  }

  // The part of all stored bytes that these units are.
  double ShareOf(const std::vector<size_t>& units) const {
    uint64_t bytes = 0;
    for (const size_t i : units) bytes += units_[i].range.end - units_[i].range.begin;
    return static_cast<double>(bytes) / static_cast<double>(stored_bytes_);
  }

  // Neighbours together, until there is enough for a file of its own: little enough to keep workers
  // busy to the end, enough that even a huge corpus makes few files.
  std::vector<std::vector<size_t>> Batches(const std::vector<size_t>& units) const {
    const uint64_t enough = std::clamp<uint64_t>(stored_bytes_ / 512, kUnitBytes, 64 << 20);
    std::vector<std::vector<size_t>> batches;
    uint64_t bytes = 0;
    for (const size_t i : units) {
      const uint64_t more = units_[i].range.end - units_[i].range.begin;
      if (batches.empty() || bytes + more > enough) {
        batches.emplace_back();
        bytes = 0;
      }
      batches.back().push_back(i);
      bytes += more;
    }
    return batches;
  }

  absl::StatusOr<std::string> TrainModel() {
    const std::vector<size_t> sampled =
        UnitsToSample(units_.size(), text_bytes_, options_.vocab_sample_bytes);
    const double text_bytes = static_cast<double>(text_bytes_) * ShareOf(sampled);
    // The chance of a line, so that the sample is as large as asked for.
    const double fraction =
        text_bytes > 0 ? static_cast<double>(options_.vocab_sample_bytes) / text_bytes : 1.0;
    const std::vector<std::vector<size_t>> batches = Batches(sampled);
    const auto sample_one = [&](size_t batch, uint64_t* done) -> absl::StatusOr<std::string> {
      ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> out,
                       AtomicFile::Create(FileSystem::Posix(), staging_->SamplePath(batch)));
      for (const size_t i : batches[batch]) {
        RETURN_IF_ERROR(SampleUnit(files_[units_[i].file], units_[i].range, options_.text, fraction,
                                   *out, done));
      }
      RETURN_IF_ERROR(out->Commit());
      return std::string();
    };
    {
      ProgressLine progress("sample", static_cast<uint64_t>(text_bytes), options_.quiet);
      RETURN_IF_ERROR(
          RunInWorkers(options_.workers, batches.size(), sample_one, [&](uint64_t bytes) {
            progress.Update(bytes);
          }).status());
    }
    // In a process of its own, so that its memory, 25 times the sample, is given back before
    // encoding.
    const auto train = [&](size_t, uint64_t*) -> absl::StatusOr<std::string> {
      std::vector<std::string> sentences;
      for (size_t i = 0; i < batches.size(); ++i) {
        std::ifstream sample(staging_->SamplePath(i), std::ios::binary);
        for (std::string sentence; std::getline(sample, sentence);) sentences.push_back(sentence);
      }
      if (sentences.empty())
        return absl::DataLossError("the input holds no text: every line is blank");
      return TrainTokenizer(options_.vocabulary, sentences);
    };
    if (!options_.quiet) {
      ::dprintf(STDERR_FILENO,
                options_.vocabulary.type == VocabType::kPieces
                    ? "vocabulary: training %llu pieces\n"
                    : "vocabulary: at most %llu entries\n",
                static_cast<unsigned long long>(options_.vocabulary.size));
    }
    ASSIGN_OR_RETURN(const std::vector<std::string> models, RunInWorkers(1, 1, train, nullptr));
    for (size_t i = 0; i < batches.size(); ++i) ::unlink(staging_->SamplePath(i).c_str());
    return models[0];
  }

  std::vector<size_t> UnitsOfPart() const {
    if (options_.part != PrepPart::kSlice) return AllOf(units_.size());
    // In turn, not in blocks: neighbours are alike, and a slow file is shared by all.
    const std::vector<std::vector<size_t>> batches = Batches(AllOf(units_.size()));
    std::vector<size_t> units;
    for (size_t i = options_.slice - 1; i < batches.size(); i += options_.num_slices)
      units.insert(units.end(), batches[i].begin(), batches[i].end());
    return units;
  }

  // Which units are finished. A unit is known by its bytes and all else that shapes it, whatever
  // its file is called.
  absl::Status FindFinished() {
    absl::StrAppend(&encoding_, "\n", vocabulary_.Digest(), " ", vocabulary_.size);
    for (const auto& [index, range] : units_) {
      const InputFile& file = files_[index];
      keys_.push_back(DigestOf(absl::StrCat(
          encoding_, "\n", range.digest, " ", static_cast<int>(file.kind), " ",
          static_cast<int>(file.compression), " ", range.is_file_start, range.is_file_end)));
    }
    ASSIGN_OR_RETURN(const std::vector<std::string> paths, staging_->UnitPaths());
    RETURN_IF_ERROR(finished_.Add(paths));
    if (!has_other_input_ || finished_.empty() || options_.quiet) return absl::OkStatus();
    const auto kept = std::count_if(keys_.begin(), keys_.end(),
                                    [this](const Digest128& key) { return finished_.Has(key); });
    std::fprintf(stderr,
                 "the input has changed since the unfinished work began: %td of %zu units are "
                 "kept%s\n",
                 kept, keys_.size(),
                 kept > 0 || given_ ? ""
                                    : "; the vocabulary is trained on the input: where it changes, "
                                      "too, none can be (--vocab gives a fixed one)");
    return absl::OkStatus();
  }

  absl::Status CheckSlices() const {
    std::map<size_t, int64_t> missing;  // units by slice
    const std::vector<std::vector<size_t>> batches = Batches(AllOf(units_.size()));
    for (size_t batch = 0; batch < batches.size(); ++batch) {
      for (const size_t i : batches[batch])
        if (!finished_.Has(keys_[i])) ++missing[batch % options_.num_slices + 1];
    }
    if (missing.empty()) return absl::OkStatus();
    constexpr size_t kMostNamed = 8;
    std::vector<std::string> names;
    for (const auto& [slice, count] : missing) {
      if (names.size() == kMostNamed) break;
      names.push_back(absl::StrCat(slice, " (", Counted(count, "unit"), ")"));
    }
    return FailedPrecondition(
        missing.size(), " of ", options_.num_slices, " slices of '", options_.output,
        "' are not finished: slice ", absl::StrJoin(names, ", "),
        missing.size() > kMostNamed ? ", ..." : "", "; run --slice ", missing.begin()->first, "/",
        options_.num_slices,
        missing.size() > 1 ? " and the others, then merge again" : ", then merge again");
  }

  // In a worker: encodes units into a file, whose path it returns. Those before a bad one are kept.
  absl::StatusOr<std::string> EncodeBatch(const std::vector<size_t>& units, uint64_t* done) {
    // One for all batches of the worker; it ends with it.
    if (IsAsWritten() && process_ == nullptr) {
      ASSIGN_OR_RETURN(process_,
                       TokenizerProcess::Start(options_.tokenizer_script, staging_->ModelPath()));
    }
    const UnitEncoder encoder{tokenizer_ ? &*tokenizer_ : nullptr, process_.get(),
                              vocabulary_.size};
    const std::string path = staging_->NewUnitPath(units.front());
    ASSIGN_OR_RETURN(auto file, AtomicFile::Create(FileSystem::Posix(), path));
    UnitWriter writer(std::move(file), TokenBytes(vocabulary_.size));
    absl::Status status;
    for (size_t i = 0; i < units.size() && status.ok(); ++i) {
      const auto& [index, range] = units_[units[i]];
      const auto counts = EncodeUnit(files_[index], range, options_.text, encoder, writer, done);
      status = counts.ok() ? writer.EndUnit(keys_[units[i]], *counts) : counts.status();
    }
    status.Update(writer.Commit());
    if (!status.ok()) return status;
    return path;
  }

  absl::Status EncodeUnits() {
    std::vector<size_t> missing;
    for (const size_t i : UnitsOfPart())
      if (!finished_.Has(keys_[i])) missing.push_back(i);
    const std::vector<std::vector<size_t>> batches = Batches(missing);
    const auto encode_one = [&](size_t i, uint64_t* done) { return EncodeBatch(batches[i], done); };
    const double expected = static_cast<double>(text_bytes_) * ShareOf(missing);
    ProgressLine progress("encode", static_cast<uint64_t>(expected), options_.quiet);
    const auto on_progress = [&](uint64_t bytes) {
      summary_.encoded_bytes = bytes;
      progress.Update(bytes);
    };
    ASSIGN_OR_RETURN(const std::vector<std::string> paths,
                     RunInWorkers(options_.workers, batches.size(), encode_one, on_progress));
    summary_.encode_seconds = progress.Seconds();
    summary_.units_encoded = missing.size();
    return finished_.Add(paths);
  }

  absl::Status Assemble() {
    ASSIGN_OR_RETURN(const AssemblyDecisions decisions,
                     DecideDocuments(keys_, finished_, options_.text));
    std::map<std::string, uint64_t> counts = Counts(decisions.totals);
    if (decisions.num_documents == 0) {
      is_hopeless_ = true;
      return absl::DataLossError(
          NoneLeft(counts.at("documents_read"), counts,
                   summary_.has_txt && !options_.text.read.joins_paragraphs));
    }
    const std::string folder = staging_->OutFolder();
    ASSIGN_OR_RETURN(DatasetIndex index, StartDataset(folder, vocabulary_, options_.shard_tokens,
                                                      decisions.corpus_digest));
    ASSIGN_OR_RETURN(index, WriteDataset(keys_, finished_, decisions, folder, std::move(index),
                                         vocabulary_.is_start_piece));
    index.settings = Settings(options_, vocabulary_.TextSettings());
    index.counts.merge(counts);
    return WriteFileAtomically(absl::StrCat(folder, "/", kIndexFile), SerializeDatasetIndex(index));
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

  PrepOptions options_;  // with the vocabulary's cleaning
  std::optional<DatasetVocabulary> given_;
  std::vector<InputFile> files_;
  std::vector<std::string> file_digests_;
  std::vector<Unit> units_;
  std::string scan_for_slices_;   // kPlan only
  bool has_other_input_ = false;  // than the unfinished work that was found
  std::string encoding_;          // what shapes units besides their text
  std::vector<Digest128> keys_;   // of units_
  UnitFiles finished_;
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
  RETURN_IF_ERROR(ReadGivenVocabulary(options.vocab, options.tokenizer, options.declared).status());
  RETURN_IF_ERROR(FindInputFiles(options.inputs, SearchOf(options)).status());
  return Staging::Check(options.output);
}

absl::StatusOr<PrepSummary> RunPrep(const PrepOptions& options) {
  return Preparation(options).Run();
}

}  // namespace anyorder::data
