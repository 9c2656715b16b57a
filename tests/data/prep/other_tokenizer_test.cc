// Text prepared with other tokenizers: Hugging Face's in processes of Python, for which a stand-in
// of its package is enough, and SentencePiece models with other special pieces.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

#include "data/prep/prep.h"
#include "data/prep/tokenizer_process.h"
#include "tests/data/dataset/dataset_files.h"
#include "tests/data/prep/corpus_text.h"
#include "tests/testing/status_matchers.h"

namespace anyorder::data {
namespace {

namespace fs = std::filesystem;

class OtherTokenizerTest : public TextPrepTest {
 protected:
  OtherTokenizerTest() {
    fs::create_directory(folder_ + "/python");
    ::setenv("PYTHONPATH", (folder_ + "/python:" ANYORDER_STAND_IN).c_str(), 1);
    fs::create_directory(folder_ + "/hf");
    StoreTokenizer("");
    options_.tokenizer = folder_ + "/hf";
    options_.tokenizer_script =
        (fs::read_symlink("/proc/self/exe").parent_path() / "tokenize_texts.py").string();
  }
  ~OtherTokenizerTest() override { ::unsetenv("PYTHONPATH"); }

  void StoreTokenizer(const std::string& note) const {
    Store("hf/tokenizer.json", absl::StrCat(R"({"note": ")", note, R"(", "added_tokens": [
              {"id": 0, "content": "<|end|>"}, {"id": 257, "content": "<|mask|>"}],
              "model": {"type": "BPE", "vocab": {"a": 98}}})"));
    Store("hf/tokenizer_config.json", R"({"eos_token": "<|end|>"})");
  }
  template <typename... Parts>
  void ExpectRefused(const std::string& text, bool (*is_kind)(const absl::Status&),
                     const Parts&... parts) {
    const absl::Status status = Prepare("refused.jsonl", text).status();
    EXPECT_THAT(status, Fails(is_kind, parts...));
    EXPECT_EQ(status.message().find('\n'), std::string::npos) << status;
    EXPECT_FALSE(fs::exists(options_.output));
  }
  // The documents of a dataset, from ids back to bytes.
  std::vector<std::string> Documents() const {
    std::vector<std::string> documents(1);
    const TestStream stream = ReadStream(options_.output);
    for (const int32_t id : stream.tokens) {
      if (id == 0)
        documents.emplace_back();
      else
        documents.back().push_back(static_cast<char>(id - 1));
    }
    documents.pop_back();  // after the last end
    return documents;
  }
};

TEST_F(OtherTokenizerTest, DocumentsAreEncodedAsTheyAreWritten) {
  const auto summary =
      Prepare("a.jsonl",
              "{\"text\": \"  two  spaces,\\n\\n\\ta blank line \\u00e9\\n\"}\n{\"text\": \"x\"}\n")
          .value();
  EXPECT_THAT(Documents(),
              testing::ElementsAre("  two  spaces,\n\n\ta blank line \xC3\xA9\n", "x"));
  EXPECT_EQ(summary.index.vocab_size, 258u);
  EXPECT_EQ(summary.index.vocab_ids, (VocabIds{.eos = 0, .mask = 257, .eod = 0}));
  EXPECT_EQ(summary.index.tokenizer.file, "tokenizer.json");
  EXPECT_EQ(summary.index.settings.count("case"), 0u);
  EXPECT_EQ(summary.index.settings.at("text"), "as written");
  ASSERT_TRUE(Prepare("b.txt", "one \n two\n\n\nthree").ok());
  EXPECT_THAT(Documents(), testing::ElementsAre("one \n two", "three"));
}

TEST_F(OtherTokenizerTest, AnyNumberOfWorkersGivesTheSameBytes) {
  // Several units of 1 MiB, with a document over many of them.
  auto documents = MakeDocuments(4000, 111);
  const TestDocument giant = AllLines({documents.begin(), documents.begin() + 1500});
  documents.insert(documents.begin() + 1000, giant);
  std::vector<std::string> written;
  for (const TestDocument& document : documents) written.push_back(absl::StrJoin(document, "\n"));
  ExpectSameForWorkers({1, 2, 5}, AsTxt(documents));
  EXPECT_TRUE(Documents() == written);
}

TEST_F(OtherTokenizerTest, ALongDocumentIsEncodedAsItIsReadAndDroppedWhole) {
  options_.text.drop_duplicates = true;
  const std::string longer(3 << 20, 'x');
  std::string lines;
  for (int i = 0; i < 30'000; ++i) absl::StrAppend(&lines, "line ", i, " of a long document\\n");
  const auto line = [](const std::string& text) { return "{\"text\": \"" + text + "\"}\n"; };
  ASSERT_GT(lines.size(), 3u << 18);
  lines += lines;
  const std::string text =
      line("first") + line(lines) + line("second") + line(lines) + line(longer) + line("third");
  ASSERT_TRUE(Prepare("a.jsonl", text).ok());
  const std::string written = absl::StrReplaceAll(lines, {{"\\n", "\n"}});
  EXPECT_TRUE(Documents() ==
              (std::vector<std::string>{"first", written, "second", longer, "third"}));
}

TEST_F(OtherTokenizerTest, ADatasetGivesItsTokenizerToTheNext) {
  const std::string text = "{\"text\": \"some words\"}\n";
  const auto made = Prepare("a.jsonl", text).value();
  options_.tokenizer = options_.output;
  const auto again = Prepare("b.jsonl", text).value();
  EXPECT_EQ(again.index.tokenizer_digest, made.index.tokenizer_digest);
  EXPECT_EQ(again.index.vocab_ids, made.index.vocab_ids);
  EXPECT_EQ(again.index.dataset_digest, made.index.dataset_digest);
}

TEST_F(OtherTokenizerTest, TokensAreTheBytesThatTheyAddToAText) {
  const auto process =
      TokenizerProcess::Start(options_.tokenizer_script, folder_ + "/hf/tokenizer.json").value();
  const std::vector<std::string> spellings = process->Spellings().value();
  ASSERT_EQ(spellings.size(), 258u);
  for (int byte = 0; byte < 256; ++byte)
    EXPECT_EQ(spellings[static_cast<size_t>(byte) + 1], std::string(1, static_cast<char>(byte)));
  EXPECT_EQ(spellings[0], "<|end|>");
  EXPECT_EQ(spellings[257], "<|mask|>");
  // It takes texts before and behind.
  const std::string text = " a";
  EXPECT_THAT(process->Encode({&text, 1}).value(), testing::ElementsAre(std::vector{33, 98}));
}

TEST_F(OtherTokenizerTest, WhatPythonLacksIsSaidInOneLine) {
  const std::string text = "{\"text\": \"some words\"}\n";
  Store("python/tokenizers.py", "raise ImportError('gone')\n");
  ExpectRefused(text, absl::IsUnavailable, "has no package tokenizers (gone)",
                "-m pip install --upgrade tokenizers");
  // Of another size: Python takes a file of the same second and size for the one it has compiled.
  Store("python/tokenizers.py", "class Tokenizer:\n    pass  # an old one\n");
  ExpectRefused(text, absl::IsUnavailable, "is too old; install");
  const std::string path = std::getenv("PATH");
  ::setenv("PATH", folder_.c_str(), 1);
  ExpectRefused(text, absl::IsUnavailable, "there is no python3 in PATH");
  // One that does not come up is not waited for.
  Store("python3", "#!/bin/sh\nexit 3\n");
  fs::permissions(folder_ + "/python3", fs::perms::owner_all);
  ExpectRefused(text, absl::IsUnavailable, "that runs `tokenizers` ended with status 3");
  ::setenv("PATH", path.c_str(), 1);
}

TEST_F(OtherTokenizerTest, ItsNameMayBeAnyBytes) {
  options_.tokenizer = folder_ + "/h\xFF";
  fs::rename(folder_ + "/hf", options_.tokenizer);
  ASSERT_TRUE(Prepare("a.jsonl", "{\"text\": \"x\"}\n").ok());
  EXPECT_THAT(Documents(), testing::ElementsAre("x"));
}

TEST_F(OtherTokenizerTest, FailuresOfTheTokenizerAreOneLine) {
  ExpectRefused("{\"text\": \"kill me\"}\n", absl::IsUnavailable,
                "the python3 process that runs `tokenizers` was ended by signal 9");
  ExpectRefused("{\"text\": \"refuse me\"}\n", absl::IsDataLoss,
                "tokenizers cannot encode a text (no such text)");
  const std::string text = "{\"text\": \"\\u00ff\"}\n";
  options_.declared.ids.eod = 4;
  StoreTokenizer("broken");
  ExpectRefused(text, absl::IsDataLoss, "tokenizers cannot load it (it is broken)");
  options_.declared = {};
  Store("hf/tokenizer.json",
        R"({"added_tokens": [{"id": 0, "content": "<|end|>"}], "model": {"vocab": {"a": 98}}})");
  ExpectRefused(text, absl::IsDataLoss,
                "the tokenizer gave id 196, outside the vocabulary of 99 ids");
  options_.declared.letter_case = LetterCase::kUncased;
  ExpectRefused(text, absl::IsInvalidArgument, "--case uncased is not");
}

// Trains a tokenizer, and writes documents and the ids that the package itself gives them.
constexpr char kRealPackage[] = R"(import json, random, sys
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

folder = sys.argv[1]
random.seed(int(sys.argv[2]))
letters = "abcdefghij\u00e9\u4e2d \t\n\n"
texts = ["".join(random.choice(letters) for _ in range(random.randrange(1, 2000))) + "x" for _ in range(300)]
tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=500, show_progress=False,
    special_tokens=["<|end|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
tokenizer.enable_truncation(8)
tokenizer.save(folder + "/hf/tokenizer.json")
tokenizer.no_truncation()
with open(folder + "/real.jsonl", "w") as file:
    file.writelines(json.dumps({"text": text}) + "\n" for text in texts)
with open(folder + "/expected", "w") as file:
    for text in texts:
        file.write(" ".join(map(str, tokenizer.encode(text, add_special_tokens=False).ids + [0])) + " ")

# Others, in which tokens spell text in other ways; what is lost there, such as blanks, is in no text.
from tokenizers import decoders, normalizers
words = [" ".join("".join(random.choice("abcde\u00e9\u4e2d\U0001F600") for _ in range(random.randrange(1, 7))) for _ in range(40))
         for _ in range(100)]
byte_pieces = [f"<0x{byte:02X}>" for byte in range(256)]
fallback = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
fallback.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
fallback.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
fallback.train_from_iterator(["abcde"], trainers.BpeTrainer(vocab_size=300, show_progress=False, special_tokens=["<unk>"] + byte_pieces))
parts = json.loads(fallback.to_str())
parts["added_tokens"] = parts["added_tokens"][:1]
pieces = Tokenizer(models.WordPiece(unk_token="[UNK]"))
pieces.pre_tokenizer, pieces.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
pieces.train_from_iterator(words, trainers.WordPieceTrainer(vocab_size=200, show_progress=False, special_tokens=["[UNK]"]))
suffixed = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
suffixed.pre_tokenizer, suffixed.decoder = pre_tokenizers.BertPreTokenizer(), decoders.BPEDecoder(suffix="</w>")
suffixed.train_from_iterator(words, trainers.BpeTrainer(vocab_size=200, show_progress=False, special_tokens=["<unk>"], end_of_word_suffix="</w>"))
tokenizer.decoder = decoders.ByteLevel()
Tokenizer(models.WordLevel({"yes": 0})).save(folder + "/words.json")
for name, one in (("bytes", tokenizer), ("fallback", Tokenizer.from_str(json.dumps(parts))), ("pieces", pieces), ("suffixed", suffixed)):
    one.save(f"{folder}/{name}.json")
    with open(f"{folder}/{name}.texts", "w") as file:
        for text in words:
            file.write(one.decode(one.encode(text, add_special_tokens=False).ids) + "\n" + text + "\n")
)";

TEST_F(OtherTokenizerTest, IdsAreThoseOfTheRealPackage) {
  ::unsetenv("PYTHONPATH");
  if (std::system("python3 -c 'import tokenizers' >/dev/null 2>&1") != 0)
    GTEST_SKIP() << "python3 has no package tokenizers";
  const std::string script = Store("real.py", kRealPackage);
  ASSERT_EQ(std::system(absl::StrCat("python3 ", script, " ", folder_, " 113").c_str()), 0);
  options_.inputs = {folder_ + "/real.jsonl"};
  options_.output = folder_ + "/out-real";
  options_.workers = 2;
  const auto summary = RunPrep(options_);
  ASSERT_TRUE(summary.ok()) << summary.status();
  const auto tokens = ReadStream(options_.output).tokens;
  EXPECT_TRUE(absl::StrCat(absl::StrJoin(tokens, " "), " ") == ReadFile(folder_ + "/expected"));

  // What tokens spell together is what the package decodes, but for a space at the beginning, or
  // where the ends of words are marked, at the end.
  for (const char* name : {"bytes", "fallback", "pieces", "suffixed"}) {
    const auto process = TokenizerProcess::Start(options_.tokenizer_script,
                                                 absl::StrCat(folder_, "/", name, ".json"))
                             .value();
    const std::vector<std::string> spellings = process->Spellings().value();
    std::istringstream lines(ReadFile(absl::StrCat(folder_, "/", name, ".texts")));
    for (std::string decoded, text; std::getline(lines, decoded) && std::getline(lines, text);) {
      std::string spelled;
      const auto ids = process->Encode({&text, 1}).value();
      for (const int32_t id : ids[0]) spelled += spellings[static_cast<size_t>(id)];
      const absl::string_view whole = spelled;
      EXPECT_EQ(name == std::string("suffixed") ? absl::StripSuffix(whole, " ")
                                                : absl::StripPrefix(whole, " "),
                decoded)
          << name;
    }
  }
  // A text that cannot be encoded does not end the process.
  const auto process =
      TokenizerProcess::Start(options_.tokenizer_script, folder_ + "/words.json").value();
  const std::string unknown = "a";
  const auto refused = process->Encode({&unknown, 1}).status();
  EXPECT_TRUE(absl::IsDataLoss(refused)) << refused;
  EXPECT_TRUE(process->is_alive());
  EXPECT_THAT(process->Spellings().value(), testing::ElementsAre(" yes"));
}

TEST_F(OtherTokenizerTest, SentencePieceModelsWithOtherPiecesEncodeText) {
  options_.tokenizer = Store(
      "other.model", absl::StrReplaceAll(TestModel(), {{"<mask>", "<hide>"}, {"<eod>", "<fin>"}}));
  options_.declared = {.size = 301, .ids = {.mask = 300}, .clean = CleanMode::kXlnet};
  const auto documents = MakeDocuments(5, 112);
  const auto summary = Prepare("a.txt", AsTxt(documents)).value();
  EXPECT_EQ(summary.index.tokenizer.file, "tokenizer.model");
  EXPECT_EQ(summary.index.declared, "mask=300 vocab_size=301");
  EXPECT_EQ(summary.index.vocab_ids.mask, 300);
  const Tokenizer reference = Tokenizer::Load(TestModel(), "test").value();
  std::vector<int32_t> expected;
  std::string cleaned;
  for (const TestDocument& document : documents) {
    for (const std::string& line : document) {
      CleanLine(line, Cleaning(), cleaned);
      ASSERT_EQ(reference.bridge().Encode(cleaned, expected), "");
    }
    expected.push_back(2);  // </s>
  }
  EXPECT_EQ(ReadStream(options_.output).tokens, expected);
}

// Lines that XLNet's preprocessing changes, most of them to other words.
const TestDocument& ForeignLines() {
  static const TestDocument lines = {"\u304c\u304e\u3050 \u304b\u3099",
                                     "\u0e44\u0e21\u0e48\u0e43\u0e0a\u0e48\u0e19\u0e49\u0e33",
                                     "\u0928\u092e\u0938\u094d\u0924\u0947",
                                     "Ti\u1ebfng Vi\u1ec7t",
                                     "\u05e9\u05b8\u05dc\u05d5\u05b9\u05dd",
                                     "\u0645\u064e\u0631\u0652\u062d\u064e\u0628\u064b\u0627",
                                     "def f(x):",
                                     "\tif x  ==  1,000:",
                                     "        return ``x''  ",
                                     "\u3000\u5168\u89d2\u3000",
                                     "a\u00a0b\u00a0",
                                     "\U0001F468\u200d\U0001F469\u200d\U0001F467 \u2764\ufe0f",
                                     "a\u2028b\u0085c",
                                     "caf\u00e9 cafe\u0301 \ufb01 2000, \u0663,"};
  return lines;
}

// Models with the library's rules for white space and without, of XLNet's layout and of another.
TEST_F(OtherTokenizerTest, IdsOfTextAsWrittenAreTheLibrarysOfEachLine) {
  const std::string text = absl::StrJoin(ForeignLines(), "\n") + "\n";
  for (const CleanMode clean : {CleanMode::kXlnet, CleanMode::kNone}) {
    std::string model;
    ASSERT_EQ(
        TrainSentencePiece("unigram", 1 << 20, /*takes_fewer=*/true, clean, ForeignLines(), model),
        "");
    SentencePieceBridge bridge;
    ASSERT_EQ(bridge.Load(model), "");
    std::vector<int32_t> expected;
    for (const std::string& line : ForeignLines()) ASSERT_EQ(bridge.Encode(line, expected), "");
    for (const char* mask : {"<mask>", "<hide>"}) {
      options_.tokenizer = Store("a.model", absl::StrReplaceAll(model, {{"<mask>", mask}}));
      for (const char* ends : {"\n", "\r\n", "\r"}) {
        const auto summary = Prepare("a.txt", absl::StrReplaceAll(text, {{"\n", ends}})).value();
        std::vector<int32_t> with_end = expected;
        with_end.push_back(summary.index.vocab_ids.eod);
        EXPECT_EQ(ReadStream(options_.output).tokens, with_end) << mask;
        EXPECT_EQ(summary.index.settings.at("clean"), "none");
        EXPECT_EQ(summary.index.declared, "clean=none");
        fs::remove_all(options_.output);
      }
      options_.declared.clean = CleanMode::kXlnet;
      EXPECT_EQ(Prepare("b.txt", text).value().index.declared, "");
      EXPECT_NE(ReadStream(options_.output).tokens.size(), expected.size() + 1);
      options_.declared.clean.reset();
      fs::remove_all(options_.output);
    }
  }
}

TEST_F(OtherTokenizerTest, ADatasetGivesItsCleaningToTheNext) {
  const std::string text = absl::StrJoin(ForeignLines(), "\n") + "\n";
  options_.tokenizer.clear();
  options_.vocabulary = {.type = VocabType::kCharacters, .size = 500};
  for (const CleanMode mode : {CleanMode::kXlnet, CleanMode::kAccents, CleanMode::kNone}) {
    const std::string name = EnumName(mode);
    options_.declared = {.clean = mode, .letter_case = LetterCase::kUncased};
    options_.vocab = options_.tokenizer = "";
    const PrepSummary made = Prepare(name + ".txt", text).value();
    const std::string dataset = options_.output;
    options_.declared = {};
    for (const bool is_vocab : {true, false}) {
      (is_vocab ? options_.vocab : options_.tokenizer) =
          is_vocab ? dataset + "/spiece.model" : dataset;
      const PrepSummary next = Prepare(absl::StrCat(name, is_vocab, ".txt"), text).value();
      EXPECT_EQ(next.index.tokenizer_digest, made.index.tokenizer_digest);
      EXPECT_EQ(next.index.corpus_digest, made.index.corpus_digest);
      EXPECT_EQ(next.index.settings.at("clean"), name);
      EXPECT_EQ(next.index.settings.at("case"), "uncased");
      options_.vocab = options_.tokenizer = "";
    }
    options_.tokenizer = dataset;
    options_.declared.clean = mode == CleanMode::kNone ? CleanMode::kXlnet : CleanMode::kNone;
    EXPECT_THAT(Prepare("x.txt", text).status(),
                Fails(absl::IsInvalidArgument, "is not how the texts of dataset '",
                      "are cleaned, " + name + "; leave it out"));
  }
  options_.declared.clean = CleanMode::kXlnet;
  options_.tokenizer = folder_ + "/hf";
  EXPECT_THAT(Prepare("x.txt", text).status(), Says("--clean is not for a tokenizer.json"));
}

}  // namespace
}  // namespace anyorder::data
