#include "launcher/prep_command_line.h"

#include <filesystem>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

#include "core/train/run/config_file.h"
#include "core/train/run/run_directory.h"
#include "data/dataset/shard_format.h"
#include "launcher/process/command_line.h"

namespace anyorder::launcher {
namespace {

using data::PrepOptions;
using data::PrepPart;

// "2/5" into `prep`; what is wrong with it otherwise.
std::string ParseSlice(const std::string& text, PrepOptions& prep) {
  const std::vector<std::string> numbers = absl::StrSplit(text, '/');
  const bool is_read = numbers.size() == 2 && absl::SimpleAtoi(numbers[0], &prep.slice) &&
                       absl::SimpleAtoi(numbers[1], &prep.num_slices);
  return is_read ? "" : text + " is not K/N, such as 2/5";
}

// A dataset or a run directory stands for the model in it.
std::string FindVocabulary(std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) return "";
  std::vector<std::string> models = {path + "/" + data::kTokenizerFile};  // of imported runs, too
  const absl::StatusOr<RunConfig> run = LoadRunConfig(RunDirectory(path).config, {});
  if (run.ok()) models.push_back(run->data.shards + "/" + data::kTokenizerFile);
  for (const std::string& model : models) {
    if (!std::filesystem::exists(model, ignored)) continue;
    path = model;
    return "";
  }
  for (const char* other : {data::kHuggingFaceFile, data::kOtherModelFile, data::kDeclaredFile}) {
    if (std::filesystem::exists(path + "/" + other, ignored))
      return "'" + path + "' has the tokenizer " + other + "; pass --tokenizer '" + path + "'";
  }
  return "'" + path + "' holds no " + data::kTokenizerFile +
         (run.ok() ? ", nor does its data.shards '" + run->data.shards + "'" : "") +
         "; name a dataset, a run or a model";
}

void DeclareVocabulary(CLI::App& app, PrepCommandLine& line) {
  PrepOptions& prep = line.prep;
  CLI::Option* vocab =
      AddPath(&app, "--vocab", prep.vocab,
              "vocabulary to use: a dataset or a run that has one, or a SentencePiece model",
              PathUse::kRead);
  vocab->transform(CLI::Validator(FindVocabulary, ""));
  AddCount(&app, "--vocab-size", prep.vocabulary.size,
           "size of the vocabulary to train, an upper bound for words; with --tokens or "
           "--tokenizer: the ids of the vocabulary, special and reserved ones included",
           data::kMinVocabSize, data::kMaxVocabSize)
      ->excludes(vocab);
  AddEnum(&app, "--vocab-type", prep.vocabulary.type,
          "tokens: SentencePiece pieces, words between spaces, or characters, the latter two most "
          "frequent first")
      ->excludes(vocab);
  AddCount(&app, "--min-count", prep.vocabulary.min_count,
           "leave out words or characters that occur less often in the sample")
      ->excludes(vocab);
  AddNumber(&app, "--vocab-sample-mb", line.vocab_sample_mb,
            "MiB of text that the vocabulary is trained on", Between(0.01, 65536));
}

void DeclareText(CLI::App& app, PrepCommandLine& line) {
  AddEnum(&app, "--case", line.prep.declared.letter_case,
          "keep letters as they are, or lower-case them (default: as the dataset of --vocab or "
          "--tokenizer, else cased)");
  AddEnum(&app, "--clean", line.prep.declared.clean,
          "text: cleaned as by XLNet, which drops accents, vowel signs and other marks; the same "
          "but marks stay; or none, as written, white space, too (default: as the dataset of "
          "--vocab or --tokenizer; else with --tokenizer none, otherwise xlnet)");
  AddChoice(&app, "--paragraphs", line.paragraphs, {"split", "join"},
            ".txt: a blank line ends a document, or the end of the file alone");
  AddEnum(&app, "--invalid-utf8", line.prep.text.read.invalid_utf8,
          "on invalid UTF-8, NUL or JSON's half of a surrogate pair: stop, or make it U+FFFD");
  AddCount(&app, "--shard-tokens", line.prep.shard_tokens, "tokens per shard, a multiple of 64");
  app.add_flag("--no-filter", line.no_filter, "keep documents of low quality");
  app.add_flag("--no-dedup", line.no_dedup, "keep exact duplicates of documents");
  data::FilterOptions& filter = line.prep.text.filter;
  AddCount(&app, "--min-words", filter.min_words, "drop documents with fewer words");
  AddNumber(&app, "--min-letters", filter.min_letter_fraction,
            "drop documents with a smaller fraction of letters", Between(0, 1));
  AddNumber(&app, "--max-word-length", filter.max_mean_word_chars,
            "drop documents with a larger mean word length");
  AddNumber(&app, "--max-repeated-lines", filter.max_repeated_lines,
            "drop documents with a larger fraction of repeated lines", Between(0, 1));
}

// Work split over machines: data/prep/prep.h.
void DeclareParts(CLI::App& app, PrepCommandLine& line) {
  CLI::Option* plan = app.add_flag("--plan", line.plan,
                                   "split work: cut the input, train the vocabulary, and stop");
  CLI::Option* slice = app.add_option("--slice", line.slice, "split work: encode share K of N")
                           ->type_name("K/N")
                           ->excludes(plan);
  slice->check(
      CLI::Validator([&line](std::string& text) { return ParseSlice(text, line.prep); }, ""));
  CLI::Option* merge =
      AddCount(&app, "--merge", line.merge, "split work: build the dataset from N finished slices",
               1, data::kMaxSlices)
          ->excludes(plan)
          ->excludes(slice);
  CLI::Option* slurm = AddCount(&app, "--slurm", line.job.tasks,
                                "split work: submit Slurm jobs with N slices", 1, data::kMaxSlices)
                           ->default_str("")
                           ->excludes(plan)
                           ->excludes(slice)
                           ->excludes(merge);
  app.add_flag("--dry-run", line.job.dry_run,
               "--slurm: print the batch script; write and submit nothing")
      ->needs(slurm);
  app.add_option("sbatch-options", line.job.sbatch, "--slurm: after --, options of sbatch")
      ->type_name("OPTION");
}

// Another tokenizer than anyorder's own, and ids that one has made: data/prep/vocabulary.h,
// data/prep/tokens/token_prep.h.
void DeclareTokens(CLI::App& app, PrepCommandLine& line) {
  CLI::Option* tokens = AddPath(
      &app, "--tokens", line.tokens,
      "token ids instead of --input: .npy, Megatron's .bin with .idx, llm.c's or nanoGPT's .bin, "
      "or .jsonl, .ndjson or .json with a list of ids a line (field input_ids)",
      PathUse::kReadFile);
  CLI::Option* tokenizer = AddPath(
      &app, "--tokenizer", line.prep.tokenizer,
      "tokenizer of the text or of --tokens: Hugging Face's tokenizer.json, a SentencePiece model, "
      "a directory with one, or a dataset",
      PathUse::kRead);
  for (const auto& [field, member] : data::kVocabIdFields) {
    if (member == &data::VocabIds::eop) continue;
    const std::string name(field);
    const bool ends_document = member == &data::VocabIds::eod;
    AddCount(&app, "--" + name + "-id", line.prep.declared.ids.*member,
             ends_document ? "--tokens, --tokenizer: id that ends a document (default: that of eos)"
                           : "--tokens, --tokenizer: id of <" + name +
                                 "> (default: what the tokenizer's files say)",
             0, int64_t{data::kMostDeclaredIds} - 1);
  }
  for (const char* other : {"--vocab", "--vocab-type", "--min-count", "--vocab-sample-mb"}) {
    tokens->excludes(app.get_option(other));
    tokenizer->excludes(app.get_option(other));
  }
  for (const char* other :
       {"--input", "--workers", "--case", "--paragraphs", "--invalid-utf8", "--no-filter",
        "--no-dedup", "--min-words", "--min-letters", "--max-word-length", "--max-repeated-lines",
        "--max-window", "--no-header", "--quoting", "--plan", "--slice", "--merge", "--slurm"})
    tokens->excludes(app.get_option(other));
}

// Labelled examples in place of text: data/prep/examples/example_prep.h.
void DeclareExamples(CLI::App& app, PrepCommandLine& line) {
  CLI::Option* examples = AddPath(
      &app, "--examples", line.examples,
      "labelled examples instead of --input: .jsonl, .ndjson, .json of an object a line, .csv or "
      ".tsv files",
      PathUse::kRead);
  for (const char* other :
       {"--input", "--vocab-sample-mb", "--workers", "--paragraphs", "--no-filter", "--no-dedup",
        "--min-words", "--min-letters", "--max-word-length", "--max-repeated-lines", "--plan",
        "--slice", "--merge", "--slurm", "--tokens"})
    examples->excludes(app.get_option(other));
  app.add_option(
         "--chat-template", line.chat_template,
         "--examples: how conversations, sources and targets are written: llada, chatml, tokenizer "
         "(its own template), or a text with {role} and {content}, repeated for each message")
      ->type_name("NAME|TEMPLATE")
      ->needs(examples);
  app.add_flag("--whole-conversations", line.whole_conversations,
               "--chat-template: a conversation is one example of all its answers, which gpt_sft "
               "learns from, not one for each answer")
      ->needs(app.get_option("--chat-template"));
  CLI::Option* labels_from =
      AddPath(&app, "--labels-from", line.labels_from,
              "--examples: dataset whose class numbers, or scores, to use: the training data",
              PathUse::kReadDirectory);
  AddChoice(&app, "--label-kind", line.label_kind, {"class", "score"},
            "--examples: what labels of texts and pairs are (default: scores if all are numbers "
            "and some have fractions, else classes)")
      ->needs(examples)
      ->excludes(labels_from);
  app.get_option("--field")->needs(examples);
}

// Official files of a downstream task: data/prep/examples/official_tasks.h.
void DeclareTask(CLI::App& app, PrepCommandLine& line) {
  CLI::Option* task =
      app.add_option("--task", line.task,
                     "downstream task whose files --input names as they were published, such as "
                     "mnli, race or imdb; `anyorder prep --task list` prints all")
          ->type_name("NAME")
          ->needs(app.get_option("--input"));
  for (const char* other :
       {"--vocab-size",      "--vocab-sample-mb",    "--paragraphs", "--workers",
        "--no-filter",       "--no-dedup",           "--min-words",  "--min-letters",
        "--max-word-length", "--max-repeated-lines", "--plan",       "--slice",
        "--merge",           "--max-window",         "--slurm",      "--field",
        "--text-field",      "--no-header",          "--quoting",    "--tokenizer"})
    task->excludes(app.get_option(other));
}

}  // namespace

void DeclarePrep(CLI::App& app, PrepCommandLine& line) {
  AddExamples(app, {"anyorder prep --input corpus/ --output shards --vocab-size 32000",
                    "anyorder prep --input held-out.txt --output held-out --vocab "
                    "shards/spiece.model",
                    "anyorder prep --examples train.tsv --text-field sentence --output examples "
                    "--vocab shards/spiece.model",
                    "anyorder prep --examples chats.jsonl --output chats --tokenizer "
                    "LLaDA-8B-Base/ --chat-template llada",
                    "anyorder prep --tokens train.bin --output shards --vocab-size 50258 --eod-id "
                    "50256 --mask-id 50257",
                    "anyorder prep --input corpus/ --output shards --tokenizer LLaDA-8B-Base/",
                    "anyorder prep --task mnli --input MNLI/train.tsv --output mnli --vocab run",
                    "anyorder prep --input corpus/ --output shards --slurm 64 -- --partition=cpu"});
  PrepOptions& prep = line.prep;
  AddPath(
      &app, "--input", prep.inputs,
      "files of text, or directories of them: .txt (documents end at blank lines), .jsonl, .ndjson "
      "and .json of an object a line (field text), .csv and .tsv (column text), each also .gz or "
      ".zst",
      PathUse::kRead);
  app.add_option("--max-window", prep.max_window,
                 "largest window of zstd files (zstd --long) to read; each worker holds one")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false))
      ->check(CLI::Range(uint64_t{1} << 10, data::kMostWindowBytes))
      ->type_name("SIZE")
      ->default_str("2GiB");
  AddPath(&app, "--output", prep.output, "dataset directory to create; absent or empty",
          PathUse::kMakeDirectory)
      ->required();
  DeclareVocabulary(app, line);
  AddCount(&app, "--workers", prep.workers, "worker processes; does not affect results");
  DeclareText(app, line);
  AddFieldOptions(app, line.fields);
  DeclareParts(app, line);
  DeclareTokens(app, line);
  DeclareExamples(app, line);
  DeclareTask(app, line);
  app.add_flag("--quiet", prep.quiet, "print no progress");
  app.add_flag("--json", line.json, "print the summary as one JSON object");
}

void ReadPrepWords(const CLI::App& app, PrepCommandLine& line) {
  PrepOptions& prep = line.prep;
  if (app.count("--vocab-size") > 0) prep.declared.size = prep.vocabulary.size;
  if (app.count("--text-field") > 0) line.ids_field = line.fields.text_field;
  prep.text.read.joins_paragraphs = line.paragraphs == "join";
  FieldOptions& fields = line.fields;
  prep.text.read.table = fields.Table();
  prep.text.read.text_field = fields.text_field;
  fields.names = fields.ExampleNames();
  prep.text.filter.enabled = !line.no_filter;
  prep.text.drop_duplicates = !line.no_dedup;
  prep.vocab_sample_bytes = static_cast<uint64_t>(line.vocab_sample_mb * 1048576.0);
  if (line.plan) prep.part = PrepPart::kPlan;
  if (!line.slice.empty()) prep.part = PrepPart::kSlice;
  if (line.merge > 0) {
    prep.part = PrepPart::kMerge;
    prep.num_slices = line.merge;
  }
}

}  // namespace anyorder::launcher
