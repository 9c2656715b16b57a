#include "data/prep/examples/example_prep.h"

#include <utf8proc.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "core/base/digest.h"
#include "core/base/file_system.h"
#include "core/base/status.h"
#include "core/base/unicode.h"
#include "data/dataset/dataset_index.h"
#include "data/dataset/stored_examples.h"
#include "data/prep/examples/chat_template.h"
#include "data/prep/examples/official_tasks.h"
#include "data/prep/examples/origin_writer.h"
#include "data/prep/shard_writer.h"
#include "data/prep/staging.h"
#include "data/prep/tokenizer.h"
#include "data/prep/tokenizer_process.h"

namespace anyorder::data {
namespace {

constexpr uint64_t kMostParts = uint64_t{1} << 31;
constexpr char kOutsideTag[] = "O";  // of words that are part of nothing

void AppendBytes(const void* value, size_t bytes, std::string& out) {
  out.append(static_cast<const char*>(value), bytes);
}

// Numbers by value, other names by their bytes.
void SortNames(std::vector<std::string>& names) {
  int64_t number = 0;
  const bool are_numbers = std::all_of(names.begin(), names.end(), [&](const std::string& name) {
    return absl::SimpleAtoi(name, &number);
  });
  const auto value = [](const std::string& name) {
    int64_t parsed = 0;
    return absl::SimpleAtoi(name, &parsed) ? parsed : 0;
  };
  std::sort(names.begin(), names.end(), [&](const std::string& a, const std::string& b) {
    return are_numbers && value(a) != value(b) ? value(a) < value(b) : a < b;
  });
}

class ExamplePreparation {
 public:
  explicit ExamplePreparation(const ExamplePrepOptions& options) : options_(options) {}

  absl::StatusOr<ExamplePrepSummary> Run() {
    RETURN_IF_ERROR(LoadTokenizer());
    RETURN_IF_ERROR(LoadKnownClasses());
    RETURN_IF_ERROR(Staging::Check(options_.output));
    RETURN_IF_ERROR(options_.task.empty() ? ReadFiles() : ReadOfficial());
    if (!options_.quiet) std::fputs(DescribeLeftOut(summary_.left_out).c_str(), stderr);
    if (examples_.empty()) {
      return DataLoss(InputNames(), options_.inputs.size() == 1 ? " holds" : " hold",
                      " no example: every line is blank or left out, or a table has a header "
                      "alone");
    }
    RETURN_IF_ERROR(NumberClasses());
    RETURN_IF_ERROR(Publish());
    marks_.AddTo(summary_.counts);
    return summary_;
  }

 private:
  struct Encoded {
    std::vector<std::vector<int32_t>> parts;
    std::optional<std::string> class_name;
    int32_t label = -1;
    float score = std::numeric_limits<float>::quiet_NaN();
    TokenRange answer{-1, -1};
    // kTokens: of each token; classes have their numbers of tag_numbers_ until NumberClasses.
    std::vector<int32_t> tags;
  };

  // Another one than --vocab.
  bool has_other_tokenizer() const { return !options_.tokenizer.empty(); }

  absl::Status LoadTokenizer() {
    if (!options_.chat_template.empty()) {
      ASSIGN_OR_RETURN(chat_, ChatTemplate::Read(options_.chat_template));
    }
    ASSIGN_OR_RETURN(std::optional<DatasetVocabulary> given,
                     ReadGivenVocabulary(options_.vocab, options_.tokenizer, options_.declared));
    vocabulary_ = *std::move(given);
    if (chat_ && chat_->is_tokenizers() && !vocabulary_.is_hugging_face()) {
      return absl::InvalidArgumentError(
          "--chat-template tokenizer takes the template from a tokenizer's directory; pass that "
          "directory with --tokenizer, or pass --chat-template llada, chatml or a text");
    }
    if (vocabulary_.is_hugging_face()) {
      ASSIGN_OR_RETURN(process_,
                       TokenizerProcess::Start(options_.tokenizer_script, vocabulary_.path));
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(Tokenizer tokenizer, Tokenizer::LoadOther(vocabulary_));
    tokenizer_.emplace(std::move(tokenizer));
    return absl::OkStatus();
  }

  absl::Status LoadKnownClasses() {
    if (!options_.task.empty()) {
      ASSIGN_OR_RETURN(official_, FindOfficialTask(options_.task));
      known_ = ExamplesEntry{.task = official_->kind, .classes = official_->classes};
    }
    if (options_.labels_from.empty()) return absl::OkStatus();
    RETURN_IF_ERROR(CheckIsDataset("--labels-from", options_.labels_from));
    ASSIGN_OR_RETURN(const DatasetIndex index, ReadDatasetIndex(options_.labels_from));
    if (!index.examples || (index.examples->classes.empty() && !HasScores(*index.examples))) {
      return InvalidArgument(
          "--labels-from '", options_.labels_from,
          "' has neither classes nor scores; name a dataset that `anyorder prep --examples` made");
    }
    if (index.tokenizer_digest != vocabulary_.Digest()) {
      return FailedPrecondition("--labels-from '", options_.labels_from,
                                "' was made by another tokenizer than '", options_.vocab,
                                "'; pass its own: --vocab '", options_.labels_from, "/",
                                kTokenizerFile, "'");
    }
    if (official_ != nullptr && index.examples->classes != official_->classes) {
      return FailedPrecondition("--labels-from '", options_.labels_from,
                                "' has other classes than ", "--task ", official_->name,
                                ", which always has ", absl::StrJoin(official_->classes, ", "),
                                "; make that dataset with --task, too");
    }
    known_ = index.examples;
    return absl::OkStatus();
  }

  absl::Status ReadOfficial() {
    if (options_.inputs.size() != 1) {
      return InvalidArgument("--task ", official_->name, " reads one --input, but ",
                             options_.inputs.size(), " are named; make a dataset of each");
    }
    OfficialReading reading(*official_, options_.inputs[0],
                            {vocabulary_.cleaning, options_.invalid_utf8, &marks_},
                            [this](const std::string& where, const WrittenExample& example) {
                              return Add(where, example);
                            });
    RETURN_IF_ERROR(official_->read(reading));
    summary_.left_out = reading.left_out();
    return absl::OkStatus();
  }

  absl::Status ReadFiles() {
    ASSIGN_OR_RETURN(const InputFiles input,
                     FindInputFiles(options_.inputs, {.use = InputUse::kExamples,
                                                      .max_window = options_.max_window}));
    summary_.left_out = input.left_out;
    const ExampleReadOptions reading{options_.names,
                                     options_.table,
                                     {vocabulary_.cleaning, options_.invalid_utf8, &marks_},
                                     chat_ ? &*chat_ : nullptr,
                                     options_.whole_conversations,
                                     &summary_.left_out,
                                     process_ != nullptr};
    const auto take = [this](const std::string& where, const WrittenExample& example) {
      return Add(where, example);
    };
    for (const InputFile& file : input.files) RETURN_IF_ERROR(ReadExamples(file, reading, take));
    return absl::OkStatus();
  }

  absl::Status Add(const std::string& where, const WrittenExample& example) {
    if (example.is_disputed && !options_.keeps_disputed) return absl::OkStatus();
    const ExampleTask task = known_              ? known_->task
                             : examples_.empty() ? example.task
                                                 : summary_.task;
    if (example.task != task) {
      return DataLoss("an example of ", EnumName(example.task), " among those of ", EnumName(task),
                      "; make a dataset of each");
    }
    if (task != ExampleTask::kGeneration && (has_other_tokenizer() || chat_)) {
      return DataLoss("an example of ", EnumName(task), ", but ",
                      has_other_tokenizer() ? "--tokenizer encodes" : "--chat-template is for",
                      " examples of generation alone (source and target); ",
                      has_other_tokenizer() ? "pass --vocab" : "leave it out");
    }
    summary_.task = task;
    Encoded& encoded = examples_.emplace_back();
    encoded.class_name = example.class_name;
    encoded.label = example.choice;
    if (example.score) encoded.score = static_cast<float>(*example.score);
    if (example.class_name) NoteLabel(where, *example.class_name, encoded);
    RETURN_IF_ERROR(EncodeParts(example, encoded));
    corpus_.Update(WithLength(WrittenLabel(example, encoded)));
    origins_.Add(example);
    num_parts_ += encoded.parts.size();
    if (num_parts_ >= kMostParts)
      return absl::DataLossError("more than 2^31 texts; make several datasets");
    return example.class_name ? CheckKnown(*example.class_name) : absl::OkStatus();
  }

  absl::Status EncodeParts(const WrittenExample& example, Encoded& encoded) {
    for (const std::string& part : example.parts) {
      std::vector<int32_t>& ids = encoded.parts.emplace_back();
      if (example.task == ExampleTask::kSpans && encoded.parts.size() == 2) {
        RETURN_IF_ERROR(AlignPassage(example, encoded));
      } else if (example.task == ExampleTask::kTokens) {
        RETURN_IF_ERROR(EncodeWords(example, encoded));
      } else if (process_ != nullptr) {
        ASSIGN_OR_RETURN(ids, EncodeAsWritten(part));
      } else {
        RETURN_IF_ERROR(tokenizer_->Encode(part, ids));
      }
      if (ids.empty()) {
        return DataLoss("text ", encoded.parts.size(),
                        " of the example has no piece of the vocabulary");
      }
      corpus_.Update(WithLength(part));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<int32_t>> EncodeAsWritten(const std::string& text) {
    ASSIGN_OR_RETURN(auto ids, process_->Encode({&text, 1}));
    RETURN_IF_ERROR(CheckTokenizerIds(ids[0], vocabulary_.size));
    return std::move(ids[0]);
  }

  // Word by word, so that each has its first piece; no piece reaches over a space anyway.
  absl::Status EncodeWords(const WrittenExample& example, Encoded& encoded) {
    std::vector<int32_t>& ids = encoded.parts.back();
    for (size_t i = 0; i < example.words.size(); ++i) {
      const size_t begin = ids.size();
      RETURN_IF_ERROR(tokenizer_->Encode(example.words[i], ids));
      if (ids.size() == begin) {
        return DataLoss("the word '", example.words[i], "' (number ", i,
                        ", from 0) has no piece of the vocabulary; leave it out, and its tag");
      }
      int32_t tag = kUnknownTag;
      if (!example.tags.empty()) {
        ASSIGN_OR_RETURN(tag, NumberOfTag(example.tags[i]));
      }
      encoded.tags.push_back(tag);
      encoded.tags.resize(ids.size(), kNoTag);
    }
    encoded.label = example.tags.empty() ? -1 : 0;
    return absl::OkStatus();
  }

  absl::StatusOr<int32_t> NumberOfTag(const std::string& tag) {
    const auto [known, is_new] =
        tag_numbers_.emplace(tag, static_cast<int32_t>(tag_numbers_.size()));
    if (is_new) RETURN_IF_ERROR(CheckKnown(tag));
    return known->second;
  }

  // The passage is the last of the parts so far. Of several answers the first that stands in it is
  // learnt, as in XLNet's and BERT's code.
  absl::Status AlignPassage(const WrittenExample& example, Encoded& encoded) {
    ASSIGN_OR_RETURN(const AlignedText* aligned,
                     origins_.Align(*tokenizer_, vocabulary_.cleaning, example.passage));
    encoded.parts.back() = aligned->ids;
    if (!example.answers) return absl::OkStatus();
    encoded.label = example.answers->empty() ? 0 : -1;
    for (const OriginalAnswer& answer : *example.answers) {
      if (!IsInPassage(answer, example.passage)) continue;
      encoded.label = 1;
      const int64_t length = NumCharacters(answer.text);
      const TokenRange tokens = TokensOf(aligned->ranges, {answer.begin, answer.begin + length});
      if (tokens.begin == tokens.end) continue;
      encoded.answer = tokens;
      return absl::OkStatus();
    }
    num_misplaced_ += encoded.label < 0 ? 1 : 0;
    if (encoded.label < 1) return absl::OkStatus();
    return DataLoss("no token of the passage is in an answer; remove the example");
  }

  // Texts and labels as they are part of corpus_digest.
  static std::string WithLength(const std::string& text) {
    std::string result;
    const uint64_t size = text.size();
    AppendBytes(&size, sizeof size, result);
    return result + text;
  }
  static std::string WrittenLabel(const WrittenExample& example, const Encoded& encoded) {
    if (example.class_name) return *example.class_name;
    if (example.score) return absl::StrCat("\n", encoded.score);
    if (example.task == ExampleTask::kTokens) {
      // The text does not tell words with a space inside.
      std::string words, tags;
      for (const std::string& word : example.words) words += WithLength(word);
      for (const std::string& tag : example.tags) tags += WithLength(tag);
      return words + tags;
    }
    if (example.task != ExampleTask::kSpans) return absl::StrCat("\n", example.choice);
    return absl::StrCat("\n", encoded.label, " ", encoded.answer.begin, " ", encoded.answer.end);
  }

  // A label may be a score until all are read.
  void NoteLabel(const std::string& where, const std::string& name, Encoded& encoded) {
    float number = 0;
    if (absl::SimpleAtof(name, &number) && std::isfinite(number)) {
      encoded.score = number;
      has_fractions_ |= number != std::floor(number);
    } else if (no_number_.empty()) {
      no_number_ = absl::StrCat(where, ": the label '", name, "' is no number");
    }
  }

  absl::Status CheckKnown(const std::string& name) const {
    if (!known_ || HasScores(*known_)) return absl::OkStatus();
    const std::vector<std::string>& classes = known_->classes;
    const auto is_name = [&](const auto& known) {
      return known == name || StripSpace(known) == name;
    };
    if (std::any_of(classes.begin(), classes.end(), is_name)) return absl::OkStatus();
    return DataLoss("the label '", name, "' is not one of --labels-from '", options_.labels_from,
                    "': ", absl::StrJoin(classes, ", "),
                    "; correct it, or prepare the training data again with an example of it");
  }

  // Whether labels are scores, not classes.
  absl::StatusOr<bool> FindScores() const {
    if (known_ && !HasScores(*known_)) return false;
    const std::string& kind = options_.label_kind;
    if (!known_ && (kind.empty() ? !has_fractions_ : kind == "class")) return false;
    if (!HasScores({.task = summary_.task}))
      return InvalidArgument("--label-kind score is not for ", EnumName(summary_.task));
    if (no_number_.empty()) return true;
    return DataLoss(
        no_number_,
        known_ ? ", but the training data have scores; repair it or leave it empty"
               : ", but others are; repair it or leave it empty, or pass --label-kind class");
  }

  // As they were given: "'train.csv'", or the first of several.
  std::string InputNames() const {
    const size_t more = options_.inputs.size() - 1;
    return absl::StrCat("'", options_.inputs.front(), "'",
                        more > 0 ? absl::StrCat(" and ", more, " more") : "");
  }

  // The names that the examples have, in the order of their numbers.
  std::vector<std::string> FoundClasses() const {
    std::set<std::string> names;
    for (const Encoded& example : examples_) {
      if (example.class_name) names.insert(*example.class_name);
    }
    for (const auto& [tag, number] : tag_numbers_) names.insert(tag);
    std::vector<std::string> classes(names.begin(), names.end());
    SortNames(classes);
    if (summary_.task != ExampleTask::kTokens) return classes;
    const auto outside = std::find(classes.begin(), classes.end(), kOutsideTag);
    if (outside != classes.end()) std::rotate(classes.begin(), outside, outside + 1);
    return classes;
  }

  absl::Status CheckNumClasses() const {
    if (!HasClasses(summary_.task) || summary_.has_scores || summary_.classes.size() >= 2)
      return absl::OkStatus();
    const bool has_tags = summary_.task == ExampleTask::kTokens;
    const char* const label = has_tags ? "tag" : "label";
    const std::string labels = summary_.classes.empty() ? absl::StrCat("no ", label)
                                                        : absl::StrCat("one ", label, " only, '",
                                                                       summary_.classes[0], "'");
    return DataLoss("the examples of ", InputNames(), " have ", labels,
                    ", but telling classes apart takes two at least; where the ",
                    has_tags ? "tags are" : "label is", " called otherwise, pass --field ",
                    has_tags ? "tags" : "label", "=NAME; for examples without ", label,
                    "s --labels-from, the training data");
  }

  absl::Status NumberClasses() {
    ASSIGN_OR_RETURN(summary_.has_scores, FindScores());
    if (!summary_.has_scores) summary_.classes = known_ ? known_->classes : FoundClasses();
    RETURN_IF_ERROR(CheckNumClasses());
    std::map<std::string, int32_t> numbers;
    for (size_t i = 0; i < summary_.classes.size(); ++i)
      numbers.emplace(summary_.classes[i], static_cast<int32_t>(i));
    // Names in datasets of older versions may have blanks around them.
    for (size_t i = 0; i < summary_.classes.size(); ++i)
      numbers.emplace(StripSpace(summary_.classes[i]), static_cast<int32_t>(i));
    std::vector<int32_t> tag_classes(tag_numbers_.size());
    for (const auto& [tag, number] : tag_numbers_)
      tag_classes[static_cast<size_t>(number)] = numbers.at(tag);
    for (Encoded& example : examples_) {
      if (example.class_name && !summary_.has_scores)
        example.label = numbers.at(*example.class_name);
      for (int32_t& tag : example.tags) {
        if (tag >= 0) tag = tag_classes[static_cast<size_t>(tag)];
      }
      const bool is_known = example.label >= 0 || !std::isnan(example.score);
      if (!is_known && summary_.task != ExampleTask::kGeneration) ++summary_.num_unlabelled;
      if (summary_.task == ExampleTask::kSpans && example.label == 0) ++summary_.num_unanswerable;
    }
    return absl::OkStatus();
  }

  absl::Status Publish() {
    PlanIdentity identity;
    identity.options = {{"examples", EnumName(summary_.task)},
                        {"classes", absl::StrJoin(summary_.classes, "\n")},
                        {"shard_tokens", absl::StrCat(options_.shard_tokens)},
                        {"sources", DigestOf(origins_.text()).Hex()}};
    if (has_other_tokenizer()) AddTokenizer(vocabulary_, identity);
    identity.options.merge(vocabulary_.TextSettings());
    identity.inputs = {DigestOf(vocabulary_.bytes).Hex(), corpus_.Value().Hex()};
    RETURN_IF_ERROR(PublishWhole(options_.output, identity,
                                 [this](const std::string& folder) { return Write(folder); }));
    ASSIGN_OR_RETURN(const DatasetIndex index, ReadDatasetIndex(options_.output));
    summary_.num_examples = examples_.size();
    summary_.num_tokens = index.num_tokens;
    summary_.counts = index.counts;
    summary_.dataset_digest = index.dataset_digest;
    return absl::OkStatus();
  }

  absl::Status Write(const std::string& folder) {
    ASSIGN_OR_RETURN(DatasetIndex index, WriteTokens(folder));
    index.num_documents = examples_.size();
    index.num_sentences = num_parts_;
    index.settings = vocabulary_.TextSettings();
    index.settings["invalid_utf8"] = EnumName(options_.invalid_utf8);
    index.settings["vocabulary"] = "given";
    if (summary_.task == ExampleTask::kSpans)
      index.settings.emplace("windows", "fit the objective");
    if (chat_) index.settings.emplace("chat_template", options_.chat_template);
    if (options_.whole_conversations) index.settings.emplace("conversations", "whole");
    if (official_ != nullptr) index.settings.emplace("task", official_->name);
    index.counts.insert(
        {{"examples_read", examples_.size()}, {"examples_unlabelled", summary_.num_unlabelled}});
    if (summary_.task == ExampleTask::kSpans)
      index.counts.emplace("examples_unanswerable", summary_.num_unanswerable);
    if (num_misplaced_ > 0) index.counts.emplace(kMisplacedCount, num_misplaced_);
    return WriteFileAtomically(absl::StrCat(folder, "/", kIndexFile), SerializeDatasetIndex(index));
  }

  // Shards, examples.bin and sources.jsonl: what the stream is and where each part of it lies.
  absl::StatusOr<DatasetIndex> WriteTokens(const std::string& folder) {
    ASSIGN_OR_RETURN(DatasetIndex index, StartDataset(folder, vocabulary_, options_.shard_tokens,
                                                      corpus_.Value().Hex()));
    ShardWriter shards(folder, std::move(index), vocabulary_.is_start_piece);
    ExamplesEntry entry{.task = summary_.task,
                        .num_examples = examples_.size(),
                        .num_parts = num_parts_,
                        .classes = summary_.classes};
    std::string begins, firsts, lengths, labels, optional;
    uint64_t at = 0;
    uint64_t part = 0;
    for (const Encoded& example : examples_) {
      AppendBytes(&part, sizeof part, firsts);
      AppendBytes(&example.label, sizeof example.label, labels);
      if (HasScores(entry)) AppendBytes(&example.score, sizeof example.score, optional);
      if (entry.task == ExampleTask::kSpans)
        AppendBytes(&example.answer, sizeof example.answer, optional);
      AppendBytes(example.tags.data(), example.tags.size() * sizeof(int32_t), optional);
      const uint64_t example_begin = at;
      for (const std::vector<int32_t>& ids : example.parts) {
        const auto length = static_cast<uint32_t>(ids.size());
        AppendBytes(&at, sizeof at, begins);
        AppendBytes(&length, sizeof length, lengths);
        RETURN_IF_ERROR(shards.AddSentence(ids));
        at += length;
        ++part;
      }
      uint64_t length = at - example_begin, texts = example.parts.size();
      if (entry.task == ExampleTask::kMultipleChoice) {  // each is read with the context
        texts = 2;
        length = 0;
        for (size_t choice = 1; choice < example.parts.size(); ++choice)
          length = std::max(length, example.parts[0].size() + example.parts[choice].size());
      }
      summary_.longest = std::max(summary_.longest, length);
      for (auto& [most, count] : summary_.num_longer)
        count += length + MostSpecialTokens(summary_.task, texts) > most ? 1 : 0;
      summary_.most_parts = std::max(summary_.most_parts, texts);
      RETURN_IF_ERROR(shards.EndDocument());
      ++at;  // its <eod>
    }
    AppendBytes(&part, sizeof part, firsts);
    ASSIGN_OR_RETURN(index, shards.Finish());
    const std::string table = absl::StrCat(begins, firsts, lengths, labels, optional);
    ASSIGN_OR_RETURN(entry.table, StoreFile(folder, kExamplesFile, table));
    if (!origins_.text().empty()) {
      ASSIGN_OR_RETURN(entry.origins, StoreFile(folder, kOriginsFile, origins_.text()));
    }
    index.examples = entry;
    return index;
  }

  const ExamplePrepOptions& options_;
  DatasetVocabulary vocabulary_;
  std::optional<Tokenizer> tokenizer_;  // but of a tokenizer.json, which has
  std::unique_ptr<TokenizerProcess> process_;
  std::optional<ChatTemplate> chat_;
  std::optional<ExamplesEntry> known_;  // of --labels-from or --task
  const OfficialTask* official_ = nullptr;
  std::vector<Encoded> examples_;
  bool has_fractions_ = false;  // a label is a number with one
  std::string no_number_;       // where and what the first label is that is no number
  std::map<std::string, int32_t> tag_numbers_;  // in the order in which tags are met
  uint64_t num_parts_ = 0;
  uint64_t num_misplaced_ = 0;  // questions all of whose answers stand elsewhere
  MarkCounts marks_;
  OriginWriter origins_;
  StreamingDigest corpus_;
  ExamplePrepSummary summary_;
};

}  // namespace

std::string LooseName(const std::string& name) {
  double number = 0;
  if (absl::SimpleAtod(name, &number)) return absl::StrFormat("%.17g", number);
  auto* const folded = reinterpret_cast<char*>(
      utf8proc_NFKC_Casefold(reinterpret_cast<const utf8proc_uint8_t*>(name.c_str())));
  std::string loose = folded == nullptr ? name : folded;
  std::free(folded);
  std::erase(loose, ' ');
  return loose;
}

absl::StatusOr<ExamplePrepSummary> RunExamplePrep(const ExamplePrepOptions& options) {
  if (options.inputs.empty()) return absl::InvalidArgumentError("--examples names nothing");
  if (options.vocab.empty() && options.tokenizer.empty()) {
    return absl::InvalidArgumentError(
        "--examples needs --vocab MODEL: the spiece.model of the pretrained run or its dataset; or "
        "--tokenizer PATH, for sources and targets");
  }
  RETURN_IF_ERROR(CheckShardTokens(options.shard_tokens));
  RETURN_IF_ERROR(CheckFieldNames(options.names));
  return ExamplePreparation(options).Run();
}

}  // namespace anyorder::data
