// The program anyorder-prep: bad input, exit statuses, kill -9 and resume, full disks.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "tests/data/dataset/dataset_files.h"
#include "tests/data/prep/corpus_text.h"

namespace anyorder::data {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

std::string WithFlippedBit(std::string bytes) {
  bytes[bytes.size() / 2] ^= 1;
  return bytes;
}

class PrepProgramTest : public PrepFolderTest {
 protected:
  std::vector<std::string> Arguments(const std::string& input, const std::string& output,
                                     const std::vector<std::string>& more = {}) const {
    return Joined(
        {"--input", input, "--output", output, "--vocab", TestModelPath(), "--workers", "1"}, more);
  }
  // The input gives this status and one line that holds `message`, and no output is left.
  void ExpectRefused(const std::string& input, int status, const std::string& message) {
    ExpectRefusal(RunPrepProgram(Arguments(input, output_)), status, message);
    EXPECT_FALSE(fs::exists(output_)) << input;
  }
};

TEST_F(PrepProgramTest, BadInputEndsInOneLineAndADocumentedStatus) {
  const std::string good = "a good document of several words\n";
  ExpectRefused(Store("empty.txt", ""), 65, "empty.txt' is empty");
  ExpectRefused(Store("blank.txt", " \n\n \t\n"), 65, "no document");
  ExpectRefused(Store("invalid.txt", good + "ab\xFF"
                                            "cd\n"),
                65, "invalid.txt:2: byte 35: invalid UTF-8");
  ExpectRefused(Store("broken.txt", AsUtf16(good, /*is_big=*/true, /*has_mark=*/true) +
                                        std::string("\xDC\0\0\n", 4)),
                65,
                "broken.txt:2: byte 36: invalid UTF-16; repair the file or pass --invalid-utf8");
  ExpectRefused(Store("wide.txt", std::string("\xFF\xFE\0\0a\0\0\0", 8)), 65,
                "wide.txt' is in UTF-32; turn it into UTF-8: iconv");
  const std::string gz = Gzip(AsTxt(MakeDocuments(50, 31)));
  ExpectRefused(Store("cut.txt.gz", gz.substr(0, gz.size() / 2)), 65, "cut.txt.gz' is truncated");
  const std::string zst = Zstd(AsTxt(MakeDocuments(50, 31)));
  ExpectRefused(Store("flipped.txt.gz", WithFlippedBit(gz)), 65,
                "flipped.txt.gz' is not intact gzip data");
  ExpectRefused(Store("flipped.txt.zst", WithFlippedBit(zst)), 65,
                "flipped.txt.zst' is not intact zstd data");
  const std::string line = "{\"text\": \"a good document\"}\n";
  ExpectRefused(Store("bad.jsonl.gz", Gzip(line + "{\"text\": }\n")), 65,
                "bad.jsonl.gz:2: byte 28: not valid JSON (column 10: unexpected '}'");
  ExpectRefused(
      Store("array.json", "[" + line + "]"), 65,
      "array.json' is JSON, and its first line is not valid JSON (column 29: unexpected end "
      "of input; expected ']'). A JSON array is turned into lines by: jq -c '.[]'");
  ExpectRefused(
      Store("one.json.gz", Gzip("{\n\"text\": \"a\"}\n")), 65,
      "one.json.gz' is JSON, and its first line is not valid JSON (column 2: unexpected end "
      "of input; expected string literal). JSON objects are put in a line each by: jq -c .");
  ExpectRefused(Store("latin.json", "{\"text\": \"caf\xE9\"}\n"), 65,
                "latin.json:1: byte 13: invalid UTF-8; repair the file");
  ASSERT_EQ(::mkfifo((folder_ + "/pipe.txt").c_str(), 0600), 0);
  ExpectRefused(folder_ + "/pipe.txt", 64, "pipe.txt' is not a regular file");
  fs::create_symlink("/dev/zero", folder_ + "/device.txt");
  ExpectRefused(folder_ + "/device.txt", 64, "device.txt' is not a regular file");
  ExpectRefused(Store("text.pdf", good), 64, "text.pdf' has an unknown type");
  ExpectRefused(folder_ + "/absent.txt", 64, "absent.txt' does not exist");
  fs::create_directory(folder_ + "/hollow");
  ExpectRefused(folder_ + "/hollow", 65, "holds no text");
  Store("hollow/page.html", good);
  ExpectRefused(folder_ + "/hollow", 65,
                "; left out: '" + folder_ + "/hollow/page.html' (unknown ending)");
}

TEST_F(PrepProgramTest, ReadyIdsBecomeADatasetWithTheFlagsThatDescribeThem) {
  const std::string ids = Store("a.jsonl", "{\"ids\": [5, 6, 0, 7]}\n");
  const std::vector<std::string> arguments = {"--tokens", ids, "--output", output_};
  ProgramResult result =
      Done(RunPrepProgram(Joined(arguments, {"--vocab-size", "50", "--eod-id", "0", "--mask-id",
                                             "49", "--pad-id", "3", "--text-field", "ids"})));
  EXPECT_THAT(result.out, HasSubstr("tokens: 5 in 2 sentences, vocabulary 50\n"));
  EXPECT_THAT(result.out, HasSubstr("special ids: pad 3, mask 49, eod 0\n"));
  const std::string made = output_ + "-2";
  result = Done(RunPrepProgram({"--tokens", ids, "--output", made, "--tokenizer", output_,
                                "--text-field", "ids", "--json"}));
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json["num_documents"], 2);
  const auto index = nlohmann::json::parse(ReadFile(output_ + "/dataset.json"));
  EXPECT_EQ(json["tokenizer_digest"], index["tokenizer_digest"]);
  EXPECT_EQ(json["dataset_digest"] == index["dataset_digest"], false);  // settings differ
  fs::remove_all(output_);
  // The field is input_ids unless it is named.
  ExpectRefusal(RunPrepProgram(Joined(arguments, {"--vocab-size", "50", "--eod-id", "0"})), 65,
                "a.jsonl:1: the object has no field 'input_ids'");
  ExpectRefusal(RunPrepProgram(arguments), 64, "pass --vocab-size N and --eod-id N");
  ExpectRefusal(RunPrepProgram(Joined(arguments, {"--input", ids})), 64, "--tokens");
  ExpectRefusal(RunPrepProgram(Arguments(ids, output_, {"--mask-id", "5"})), 64,
                "--mask-id, --eod-id and the like belong to --tokens or --tokenizer");
  ExpectRefusal(RunPrepProgram(Arguments(Store("b.txt", "text\n"), output_, {"--tokenizer", made})),
                64, "--vocab");
  ExpectRefusal(
      RunPrepProgram({"--input", folder_ + "/b.txt", "--output", output_, "--tokenizer", made}), 64,
      "knows no tokenizer, only the ids that were declared");
  ExpectRefusal(
      RunPrepProgram({"--input", folder_ + "/b.txt", "--output", output_, "--vocab", made}), 64,
      "has the tokenizer vocabulary.json; pass --tokenizer '");
  EXPECT_FALSE(fs::exists(output_));
}

TEST_F(PrepProgramTest, TheFirstBadLineIsNamedWhateverTheWorkers) {
  // Bad lines at the end of the first unit and in the second, which a second worker may reach
  // first.
  std::string text = AsTxt(MakeDocuments(2800, 35));
  ASSERT_GT(text.size(), 1u << 20);
  const std::string first = "a bad\xFF line\n";
  text.insert(text.rfind('\n', (1 << 20) - 2) + 1, first);
  const auto line = 1 + std::count(text.begin(), text.begin() + text.find(first), '\n');
  text += first;
  const std::string input = Store("bad.txt", text);
  for (const char* workers : {"1", "2"}) {
    ExpectRefusal(RunPrepProgram({"--input", input, "--output", output_, "--vocab", TestModelPath(),
                                  "--workers", workers}),
                  65, absl::StrCat("bad.txt:", line, ": byte "));
  }
}

TEST_F(PrepProgramTest, FilesThatAreLeftOutAreNamed) {
  const std::string good = "a good document of several words\n";
  fs::create_directories(folder_ + "/in/deep");
  Store("in/a.txt", good);
  Store("in/notes.md", good);
  Store("in/deep/empty.jsonl", "");
  Store("in/about.csv", "id,text\n");
  Store("in/.hidden.md", good);
  ProgramResult result = Done(RunPrepProgram(Arguments(folder_ + "/in", output_)));
  EXPECT_THAT(result.error, HasSubstr("left out: '" + folder_ + "/in/about.csv' (a table; it is"));
  EXPECT_THAT(result.error, HasSubstr("/in/deep/empty.jsonl' (empty)\n"));
  EXPECT_THAT(result.error, HasSubstr("/in/notes.md' (unknown ending)\n"));
  EXPECT_THAT(result.error, Not(HasSubstr("hidden")));
  EXPECT_THAT(result.out, HasSubstr("files: 1 read, 3 left out\n"));
  for (int i = 0; i < 7; ++i) Store(absl::StrCat("in/z", i, ".pdf"), good);
  const std::vector<std::string> again = Arguments(folder_ + "/in", folder_ + "/again");
  result = Done(RunPrepProgram(Joined(again, {"--json"})));
  EXPECT_THAT(result.error, HasSubstr("left out: 2 more; --json lists all of them\n"));
  const auto summary = nlohmann::json::parse(result.out);
  EXPECT_EQ(summary["files_read"], 1);
  EXPECT_EQ(summary["files_left_out"].size(), 10u);
  EXPECT_EQ(summary["files_left_out"][1]["reason"], "empty");
}

TEST_F(PrepProgramTest, ATableIsReadByItsColumn) {
  const std::string input = Store("a.tsv", "id\tbody\n1\t\"a good document\tof several words\"\n");
  const ProgramResult result =
      Done(RunPrepProgram(Arguments(input, output_, {"--text-field", "body", "--quiet"})));
  EXPECT_EQ(result.error, "");
  const std::string second = folder_ + "/second";
  ExpectRefusal(RunPrepProgram(Arguments(input, second)), 65,
                "a.tsv' has no column 'text'; it has id, body: pass the right name with "
                "--text-field");
  ExpectRefusal(RunPrepProgram(Arguments(
                    input, second, {"--text-field", "2", "--no-header", "--quoting", "none"})),
                65, "a.tsv:2: the row has 3 cells, but the table has 2 columns");
  EXPECT_FALSE(fs::exists(second));
}

TEST_F(PrepProgramTest, UnreadableInputIsAnInputOutputError) {
  const std::string path = Store("secret.txt", "a good document of several words\n");
  ::chmod(path.c_str(), 0);
  ::chmod(folder_.c_str(), 0777);
  // Root reads every file, so root runs the program as nobody.
  const bool is_root = ::geteuid() == 0;
  const ProgramResult result =
      RunPrepProgram(Arguments(path, output_), {.max_file_bytes = 0, .as_nobody = is_root});
  if (is_root && result.exit_status == 127) {
    GTEST_SKIP() << "user nobody may not start the program, and root may read every file";
  }
  ExpectRefusal(result, 64, "secret.txt' cannot be read (Permission denied)");
  EXPECT_FALSE(fs::exists(output_));
}

TEST_F(PrepProgramTest, BadUsageIsNamed) {
  EXPECT_EQ(RunPrepProgram({"--help"}).exit_status, 0);
  EXPECT_EQ(RunPrepProgram({}).exit_status, 64);
  EXPECT_THAT(RunPrepProgram({"--inptu", "a.txt"}).error,
              HasSubstr("unknown option '--inptu'; did you mean '--input'?"));
  const std::string input = Store("a.txt", "a good document of several words\n");
  for (const char* const words :
       {"--workers 0", "--case upper", "--shard-tokens 100", "--shard-tokens -64", "--min-words -1",
        "--min-letters nan", "--max-word-length nan", "--vocab-sample-mb nan", "--no-such-option",
        "--vocab-size 300"}) {  // beside --vocab
    const std::vector<std::string> extra = absl::StrSplit(words, ' ');
    ExpectRefusal(RunPrepProgram(Arguments(input, output_, extra)), 64, extra[0]);
  }
}

TEST_F(PrepProgramTest, BadVocabulariesAreNamedWithoutTheInsidesOfSentencePiece) {
  const std::string input = Store("a.txt", AsTxt(MakeDocuments(20, 34)));
  const std::string cut = TestModel().substr(0, TestModel().size() / 2 + 1);
  struct Case {
    std::vector<std::string> option;
    int status;
    const char* message;
  };
  const Case cases[] = {
      {{"--vocab-size", "99999999999999"}, 64, "must be a whole number from 18 to 16777216"},
      {{"--vocab-size", "-5"}, 64, "must be a whole number from 18 to 16777216"},
      {{"--vocab-size", "16777216"}, 65, "the largest it supports is "},
      {{"--vocab-size", "20"}, 65, "the text needs a vocabulary of at least "},
      {{"--vocab-size", "32000"}, 65, "the largest it supports is "},
      {{"--vocab", Store("cut.model", cut)}, 65, "cut.model' is not a SentencePiece model"},
      {{"--vocab", Store("bad.model", "no model")}, 65, "bad.model' is not a SentencePiece model"},
      {{"--vocab", Store("empty.model", "")}, 65, "empty.model' is not a SentencePiece model"},
      {{"--vocab", folder_}, 64, "holds no spiece.model; name a dataset, a run or a model"},
      {{"--vocab", folder_ + "/absent.model"}, 64, "absent.model' does not exist"},
  };
  for (const Case& bad : cases) {
    const ProgramResult result =
        RunPrepProgram(Joined({"--input", input, "--output", output_, "--quiet"}, bad.option));
    ExpectRefusal(result, bad.status, bad.message);
    EXPECT_THAT(result.error, Not(HasSubstr(".cc")));
    EXPECT_FALSE(fs::exists(output_)) << result.error;
  }
}

TEST_F(PrepProgramTest, ADatasetOrARunStandsForItsVocabulary) {
  const std::string input = Store("a.txt", "a good document of several words\n");
  ASSERT_EQ(RunPrepProgram(Arguments(input, output_)).exit_status, 0);
  const std::string second = folder_ + "/second";
  Done(RunPrepProgram({"--input", input, "--output", second, "--vocab", output_, "--quiet"}));
  EXPECT_EQ(ReadTree(second), ReadTree(output_));
}

// What a first try meets: a file name without its option, a text of one line.
TEST_F(PrepProgramTest, FirstTriesAreToldWhatToDo) {
  const std::string input = Store("a.txt", "Only three words\n");
  ExpectRefusal(RunPrepProgram({input, "--output", output_}), 64,
                "belongs to no option; text is named with --input");
  ExpectRefusal(
      RunPrepProgram({"--input", input, "--output", output_, "--vocab-size", "2000", "--quiet"}),
      65, "it is very short; prepare more, a few hundred kB for a first try");
  ExpectRefusal(RunPrepProgram(Arguments(input, output_)), 65,
                "no document is left of 1: 1 short; --no-filter keeps what the quality filter "
                "drops; of .txt files a blank line ends a document");
  ExpectRefusal(RunPrepProgram(Arguments(Store("a.jsonl", "{\"text\": \"too short\"}\n"), output_)),
                65, "1 short; --no-filter keeps what the quality filter drops\n");
  ExpectRefusal(RunPrepProgram(Arguments(Store("a.csv", "id;text\n1;a text\n"), output_)), 65,
                "If its cells stand between semicolons or tabs");
}

TEST_F(PrepProgramTest, MarksThatCleaningDropsAreCountedAndWarnedOf) {
  const std::string thai = "\u0e44\u0e21\u0e48\u0e43\u0e0a\u0e48 \u0e19\u0e49\u0e33 ";
  // Of the two words; the vocabulary is an English one.
  const char* const kUnknown =
      "[prep] warning: 2 of 20 tokens are <unk>: what stood there is not in";
  const struct {
    std::string text;
    std::vector<std::string> options;
    const char* said;  // "": nothing
  } cases[] = {
      {"a good caf\u00e9 of several words\n",
       {},
       "xlnet: Latin 1 of 23; --clean accents keeps marks"},
      {"plain words of several letters\n", {}, ""},
      {"several words and " + thai + "\n",
       {},
       "[prep] warning: letters that lost marks by --clean xlnet: Thai 3 of 6; "},
      {"several words and " + thai + "\n", {"--clean", "accents"}, kUnknown},
      {"several words and " + thai + "\n", {"--clean", "none"}, kUnknown},
      {"Ti\u1ebfng Vi\u1ec7t c\u00f3 d\u1ea5u thanh\n",
       {},
       "warning: letters that lost marks by --clean xlnet: Latin 4 of 19"},
  };
  for (const auto& [text, options, said] : cases) {
    const ProgramResult result = Done(RunPrepProgram(
        Arguments(Store("a.txt", text), output_, Joined(options, {"--quiet", "--no-filter"}))));
    EXPECT_THAT(result.error, HasSubstr(said));
    EXPECT_EQ(result.error.empty(), *said == '\0') << result.error;
    EXPECT_EQ(result.error.find("warning") == std::string::npos,
              std::string(said).find("warning") == std::string::npos);
    fs::remove_all(output_);
  }
}

TEST_F(PrepProgramTest, SharesOfTheTextAreToldAndWhatToDoAboutParagraphs) {
  const std::string kept = "a paragraph of some words stays\n";
  const std::string input = Store("a.txt", kept + "\nToo short\n\n" + kept + "\nand so on\n");
  ProgramResult result = Done(RunPrepProgram(Arguments(input, output_, {"--quiet"})));
  EXPECT_THAT(result.out,
              HasSubstr("documents (in .txt a blank line ends one): 4 read, 1 kept (38.8% of "
                        "the text), 2 short (22.5%), 1 duplicate (38.8%)\n"
                        "much was dropped: --no-filter keeps what the quality filter drops; "
                        "--paragraphs join makes one document of each .txt file"));
  fs::remove_all(output_);
  result = Done(RunPrepProgram(Arguments(input, output_, {"--paragraphs", "join"})));
  EXPECT_THAT(result.out, HasSubstr("documents: 1 read, 1 kept (100.0% of the text)\ntokens: "));
  const auto index = nlohmann::json::parse(ReadFile(output_ + "/dataset.json"));
  EXPECT_EQ(index["settings"]["paragraphs"], "join");
  EXPECT_EQ(index["num_sentences"], 4);
  EXPECT_EQ(index["counts"]["bytes_kept"], 80);
}

TEST_F(PrepProgramTest, OutputThatHoldsSomethingIsLeftAlone) {
  const std::string input = Store("a.txt", "a good document of several words\n");
  fs::create_directory(output_);
  WriteFile(output_ + "/precious", "data");
  const auto before = ReadTree(output_);
  ExpectRefusal(RunPrepProgram(Arguments(input, output_)), 64, "not empty (it holds 'precious')");
  EXPECT_EQ(ReadTree(output_), before);
  // A finished dataset is such a thing, too.
  const std::string second = folder_ + "/second";
  EXPECT_EQ(RunPrepProgram(Arguments(input, second)).exit_status, 0);
  const auto dataset = ReadTree(second);
  EXPECT_EQ(RunPrepProgram(Arguments(input, second)).exit_status, 64);
  EXPECT_EQ(ReadTree(second), dataset);
  EXPECT_EQ(RunPrepProgram(Arguments(input, input)).exit_status, 64) << "a file as --output";
}

TEST_F(PrepProgramTest, AHundredMegabyteLineNeedsLessMemoryThanItsLength) {
  constexpr int64_t kLineBytes = 100'000'000;
  // Mostly spaces, which cleaning removes, so that the test spends its time on reading. Written in
  // portions, because a child's peak memory counts what its parent had when it forked.
  const std::string input = folder_ + "/line.txt";
  {
    std::ofstream file(input, std::ios::binary);
    for (int64_t i = 0; file.tellp() < kLineBytes; ++i)
      file << "word" << i % 10 << std::string(4000, ' ');
  }
  const ProgramResult result = Done(RunPrepProgram(Arguments(input, output_, {"--no-filter"})));
  EXPECT_THAT(result.out, HasSubstr("long lines cut: 1"));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they keep what was freed
  EXPECT_LT(result.max_resident_bytes, kLineBytes);
#endif
}

TEST_F(PrepProgramTest, DatasetsAreReadableWithH5py) {
  const std::string input = Store("a.txt", AsTxt(MakeDocuments(150, 33)));
  const auto arguments = Arguments(input, output_, {"--shard-tokens", "6400"});
  ASSERT_EQ(RunPrepProgram(arguments).exit_status, 0);
  const char* source = std::getenv("ANYORDER_SOURCE");
  ASSERT_NE(source, nullptr) << "CTest sets it";
  // Debian's h5py belongs to Debian's Python, whatever else is first in PATH.
  const std::string command = "/usr/bin/python3 '" + std::string(source) +
                              "/tests/data/prep/read_with_h5py.py' '" + output_ + "' >'" + folder_ +
                              "/printed' 2>&1";
  const int status = std::system(command.c_str());
  if (WEXITSTATUS(status) == 77 || WEXITSTATUS(status) == 127) {
    GTEST_SKIP() << "h5py is not installed (package python3-h5py)";
  }
  EXPECT_EQ(WEXITSTATUS(status), 0) << ReadFile(folder_ + "/printed");
}

// Starts from a corpus of several units.
class PrepCrashTest : public PrepProgramTest {
 protected:
  PrepCrashTest() : input_(Store("corpus.txt", AsTxt(MakeDocuments(3600, 32)))) {}

  // Preparation with a vocabulary of its own.
  static std::vector<std::string> Train(const std::string& input, const std::string& output) {
    return {"--input",      input, "--output",          output,
            "--vocab-size", "200", "--vocab-sample-mb", "0.1",
            "--workers",    "2",   "--quiet",           "--shard-tokens",
            "131072"};
  }
  // What an undisturbed run makes of the corpus.
  const std::vector<std::pair<std::string, std::string>>& Expected() {
    static const auto* const expected = [&] {
      const std::string reference = folder_ + "/reference";
      EXPECT_EQ(RunPrepProgram(Train(input_, reference)).exit_status, 0);
      return new auto(ReadTree(reference));
    }();
    return *expected;
  }

  // The same command as the one that was stopped makes the expected bytes.
  void ExpectFinishes() {
    EXPECT_EQ(RunPrepProgram(Train(input_, output_)).exit_status, 0);
    EXPECT_TRUE(ReadTree(output_) == Expected());
  }
  bool KillWhenThereIs(const std::string& name) {
    return StartAndKill(Train(input_, output_), name);
  }

  std::string input_;
};

TEST_F(PrepCrashTest, KilledAtAnyPointTheSameCommandEndsInTheSameBytes) {
  int killed = 0;
  for (const char* point :
       {"lock", "plan.json", "sample-000001", "spiece.model", "unit-000000", "unit-000002",
        "out/shard-00000.h5", "out/shard-00003.h5", "out/dataset.json"}) {
    fs::remove_all(output_);
    killed += KillWhenThereIs(point);
    EXPECT_FALSE(fs::exists(output_ + "/dataset.json") &&
                 fs::exists(output_ + "/.anyorder-prep/plan.json") &&
                 !fs::exists(output_ + "/shard-00000.h5"));
    const bool is_finished =
        fs::exists(output_ + "/dataset.json") && !fs::exists(output_ + "/.anyorder-prep/plan.json");
    if (!is_finished) Done(RunPrepProgram(Train(input_, output_)));
    EXPECT_TRUE(ReadTree(output_) == Expected()) << point;
  }
  // The last points pass quickly; the early ones must have been hit for this test to mean anything.
  EXPECT_GE(killed, 4);
}

TEST_F(PrepCrashTest, AfterASignalItSaysHowToGoOn) {
  for (const int signal : {SIGINT, SIGTERM}) {
    fs::remove_all(output_);
    // A pipe that is full holds the program where it next says something.
    const std::string errors = absl::StrCat(folder_, "/errors-", signal);
    ASSERT_EQ(::mkfifo(errors.c_str(), 0600), 0);
    const int pipe = ::open(errors.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
    ASSERT_GE(pipe, 0);
    while (::write(pipe, "x", 1) == 1) continue;
    std::vector<std::string> arguments = Train(input_, output_);
    std::erase(arguments, "--quiet");
    const int pid = StartPrepProgram(arguments, errors);
    while (!fs::exists(output_ + "/.anyorder-prep/plan.json")) ::usleep(300);
    ::kill(pid, signal);
    int status = 0;
    std::string said;
    const auto drain = [pipe, &said] {
      char bytes[4096];
      for (ssize_t got; (got = ::read(pipe, bytes, sizeof bytes)) > 0;)
        said.append(bytes, static_cast<size_t>(got));
    };
    for (; ::waitpid(pid, &status, WNOHANG) != pid; ::usleep(300)) drain();
    drain();
    ::close(pipe);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 75);
    EXPECT_THAT(said, HasSubstr("anyorder-prep: stopped by a signal; the same command goes on with "
                                "what is in '" +
                                output_ + "/.anyorder-prep', or remove that\n"));
    ExpectFinishes();
  }
}

TEST_F(PrepCrashTest, ASignalThatIsIgnoredStaysIgnored) {
  ::signal(SIGHUP, SIG_IGN);  // as nohup does it
  const int pid = StartPrepProgram(Train(input_, output_));
  ::signal(SIGHUP, SIG_DFL);
  while (!fs::exists(output_ + "/.anyorder-prep/plan.json") &&
         !fs::exists(output_ + "/dataset.json"))
    ::usleep(300);
  ::kill(pid, SIGHUP);
  int status = -1;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(ReadTree(output_) == Expected());
}

TEST_F(PrepCrashTest, FinishedUnitsAreReusedAndOtherWorkersMayFinish) {
  ASSERT_TRUE(KillWhenThereIs("unit-000001"));
  std::vector<std::string> arguments = Train(input_, output_);
  *(std::find(arguments.begin(), arguments.end(), "--workers") + 1) = "3";
  arguments.push_back("--json");
  const auto summary = nlohmann::json::parse(Done(RunPrepProgram(arguments)).out);
  EXPECT_EQ(summary["resumed"], true);
  EXPECT_LT(summary["encoded_bytes"], summary["text_bytes"]);
  EXPECT_TRUE(ReadTree(output_) == Expected());
}

TEST_F(PrepCrashTest, CrashWhilePublishingOrCleaningUpIsFinishedByTheNextRun) {
  ASSERT_TRUE(KillWhenThereIs("unit-000001"));
  fs::copy(output_, folder_ + "/saved", fs::copy_options::recursive);
  // As if some files had been renamed into place before the crash.
  WriteFile(output_ + "/shard-00000.h5", "not the final bytes");
  WriteFile(output_ + "/shards.idx", "not the final bytes");
  ExpectFinishes();
  // As if only the removal of the staging folder were missing.
  fs::copy(folder_ + "/saved/.anyorder-prep", output_ + "/.anyorder-prep",
           fs::copy_options::recursive);
  ExpectFinishes();
}

TEST_F(PrepCrashTest, OtherOptionsAreRefusedAndNothingIsLost) {
  ASSERT_TRUE(KillWhenThereIs("unit-000001"));
  const auto without_lock = [&] {
    fs::remove(output_ + "/.anyorder-prep/lock");
    return ReadTree(output_);
  };
  const auto before = without_lock();
  for (const auto& [option, now, message] :
       {std::tuple("--case", "uncased", "case \"cased\", now it is \"uncased\""),
        std::tuple("--clean", "none", "clean \"xlnet\", now it is \"none\""),
        std::tuple("--paragraphs", "join", "paragraphs \"split\", now it is \"join\"")}) {
    ExpectRefusal(RunPrepProgram(Joined(Train(input_, output_), {option, now})), 64, message);
  }
  EXPECT_EQ(without_lock(), before);

  ExpectFinishes();
}

TEST_F(PrepCrashTest, DamagedUnfinishedWorkIsNoticed) {
  ASSERT_TRUE(KillWhenThereIs("unit-000001"));
  const std::string unit = output_ + "/.anyorder-prep/unit-000000";
  // With two workers either of the first units may be the one that is finished.
  const std::string found = fs::exists(unit) ? unit : output_ + "/.anyorder-prep/unit-000001";
  FlipBit(found, fs::file_size(found) / 2);
  ExpectRefusal(RunPrepProgram(Train(input_, output_)), 65, "its digest does not match");
  // The advice of the message works.
  fs::remove(found);
  ExpectFinishes();
}

TEST_F(PrepCrashTest, FileSizeLimitIsAnInputOutputErrorAndTheWorkGoesOn) {
  // Units and shards do not fit into 100 kB, the vocabulary's sample does not either: use a model.
  std::vector<std::string> arguments = Arguments(input_, output_);
  ExpectRefusal(RunPrepProgram(arguments, {.max_file_bytes = 100 << 10}), 74, "File too large");
  EXPECT_EQ(RunPrepProgram(arguments).exit_status, 0);
}

TEST_F(PrepCrashTest, FullDiskIsAnInputOutputErrorAndFinishedWorkStays) {
  const std::string disk = folder_ + "/disk";
  fs::create_directory(disk);
  // Room for the model, the sample and some units, not for all of it.
  if (::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=2m") != 0) {
    GTEST_SKIP() << "mounting a small file system needs root with CAP_SYS_ADMIN";
  }
  const std::string output = disk + "/out";
  ExpectRefusal(RunPrepProgram(Train(input_, output)), 74, "No space left on device");
  EXPECT_TRUE(fs::exists(output + "/.anyorder-prep/plan.json"));
  EXPECT_EQ(::mount("tmpfs", disk.c_str(), "tmpfs", MS_REMOUNT, "size=64m"), 0);
  Done(RunPrepProgram(Train(input_, output)));
  EXPECT_TRUE(ReadTree(output) == Expected());
  ::umount(disk.c_str());
}

TEST_F(PrepCrashTest, TwoRunsDoNotShareAnOutput) {
  const int pid = StartPrepProgram(Train(input_, output_));
  while (!fs::exists(output_ + "/.anyorder-prep/plan.json")) ::usleep(300);
  ::kill(pid, SIGSTOP);
  ExpectRefusal(RunPrepProgram(Train(input_, output_)), 64, "another anyorder-prep works on");
  ::kill(pid, SIGCONT);
  int status = 0;
  ::waitpid(pid, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(ReadTree(output_) == Expected());
}

}  // namespace
}  // namespace anyorder::data
