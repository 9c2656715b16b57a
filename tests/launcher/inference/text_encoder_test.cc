// Texts as ids: whatever happens to the child process that encodes them, ids are those that
// `anyorder-prep encode` writes of a file, or there is an error; nothing is left behind.

#include "launcher/inference/text_encoder.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "core/base/status.h"
#include "core/base/unique_fd.h"
#include "launcher/inference/prep_call.h"
#include "tests/testing/patience.h"
#include "tests/testing/temporary_directory.h"

namespace anyorder::launcher {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Ids = std::vector<std::vector<int32_t>>;
using Texts = std::vector<std::string>;

constexpr char kDoing[] = "encoding the prompts";

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Of /proc/PID/stat: the state and the parent. The name before them may hold anything.
std::optional<std::pair<char, pid_t>> StateAndParent(pid_t pid) {
  const std::string stat = ReadFile(absl::StrCat("/proc/", pid, "/stat"));
  const size_t end = stat.rfind(')');
  if (end == std::string::npos) return std::nullopt;
  std::istringstream words(stat.substr(end + 1));
  char state = '\0';
  pid_t parent = 0;
  words >> state >> parent;
  return std::pair(state, parent);
}

bool IsRunning(pid_t pid) {
  const auto found = StateAndParent(pid);
  return found && found->first != 'Z';
}

std::vector<pid_t> Children() {
  std::vector<pid_t> children;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    pid_t pid = 0;
    if (!absl::SimpleAtoi(entry.path().filename().string(), &pid)) continue;
    const auto found = StateAndParent(pid);
    if (found && found->second == ::getpid() && found->first != 'Z') children.push_back(pid);
  }
  return children;
}

int64_t NumDescriptors(const std::string& process = "self") {
  return std::distance(fs::directory_iterator("/proc/" + process + "/fd"), {});
}

class TextEncoderTest : public ::testing::Test {
 protected:
  TextEncoderTest() {
    std::string text;
    for (int i = 0; i < 400; ++i) {
      for (int word = 0; word < 8; ++word) text += Word() + (word < 7 ? " " : ".\n");
    }
    Store("corpus.txt", text);
    Run({"--input", At("corpus.txt"), "--output", At("shards"), "--vocab-size", "300", "--workers",
         "1", "--quiet", "--no-filter"});
    vocabulary_ = At("shards/spiece.model");
  }

  std::string At(const std::string& name) const { return folder_.path() + "/" + name; }
  std::string Store(const std::string& name, const std::string& bytes) const {
    std::ofstream(At(name), std::ios::binary) << bytes;
    return At(name);
  }

  CapturedOutput Capture(const std::vector<std::string>& command) const {
    const auto output = RunCaptured(command, MonotonicNow() + kPatience);
    EXPECT_TRUE(output.ok()) << output.status();
    return output.value_or(CapturedOutput());
  }
  void Run(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), PrepProgram());
    const CapturedOutput output = Capture(arguments);
    EXPECT_EQ(output.exit_status, 0) << output.text;
  }

  int Random(int bound) { return std::uniform_int_distribution<int>(0, bound - 1)(random_); }
  std::string Word() {
    std::string word;
    for (int i = Random(4) + 1; i > 0; --i)
      word += {"bdfgklmnprst"[Random(12)], "aeiou"[Random(5)]};
    return word;
  }
  // Valid UTF-8 without NUL, with all that JSON has to write in another way.
  std::string RandomText(int most_parts) {
    static const Texts marks = {" ",  "\n", "\r\n",    "\t",     "\"",        "\\",
                                "\1", "{}", "\\u0000", "\u00e9", "\u8a9e",    "\U0001F600",
                                ",",  ".",  "2,000",   "\u2028", "</s><eod>", "\x7f"};
    std::string text;
    for (int i = Random(most_parts + 1); i > 0; --i)
      text += Random(3) > 0 ? Word() + " " : marks[static_cast<size_t>(Random(18))];
    return text;
  }

  // What the program makes of a file, without the class.
  Ids OfFile(const Texts& texts, const std::string& letter_case = "cased") const {
    std::string lines;
    for (const std::string& text : texts) lines += nlohmann::json({{"text", text}}).dump() + "\n";
    Run({"encode", "--vocab", vocabulary_, "--case", letter_case, "--input",
         Store("texts.jsonl", lines), "--output", At("ids")});
    Ids ids;
    std::vector<std::string> rows = absl::StrSplit(ReadFile(At("ids")), '\n');
    rows.pop_back();
    for (const std::string& row : rows) {
      std::istringstream words(row);
      ids.emplace_back(std::istream_iterator<int32_t>(words), std::istream_iterator<int32_t>());
    }
    return ids;
  }

  void ExpectIds(TextEncoder& encoder, const Texts& texts, const Ids& ids) const {
    const auto found = encoder.Encode(texts, kDoing);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_TRUE(*found == ids);
  }

  const uint32_t seed_ = std::random_device()();
  const ::testing::ScopedTrace trace_{__FILE__, __LINE__, absl::StrCat("seed ", seed_)};
  std::mt19937 random_{seed_};
  const TemporaryDirectory folder_;
  std::string vocabulary_;
};

TEST_F(TextEncoderTest, IdsAreThoseOfAFile) {
  Texts all;
  for (int i = 0; i < 300; ++i) all.push_back(RandomText(30));
  all.emplace_back();
  all.emplace_back("\n");
  const Ids cased = OfFile(all), uncased = OfFile(all, "uncased");
  TextEncoder encoder(vocabulary_, "cased"), other(vocabulary_, "uncased");
  for (size_t begin = 0; begin < all.size();) {
    const size_t end = std::min(all.size(), begin + static_cast<size_t>(Random(60)) + 1);
    const auto part = [begin, end](const auto& list) {
      return std::decay_t<decltype(list)>(list.begin() + static_cast<std::ptrdiff_t>(begin),
                                          list.begin() + static_cast<std::ptrdiff_t>(end));
    };
    ExpectIds(encoder, part(all), part(cased));
    ExpectIds(other, part(all), part(uncased));
    begin = end;
  }
  ExpectIds(encoder, {}, {});
}

TEST_F(TextEncoderTest, NeitherLongLinesNorManyBlockTheTwoProcesses) {
  std::string line;
  while (line.size() < (1 << 20)) line += Word() + (Random(9) > 0 ? " " : ", ");
  std::string letters;  // as many ids as bytes, which are more bytes
  while (letters.size() < (1 << 19)) letters += {"bdfgklmnprst"[Random(12)], ' '};
  Texts many;
  for (int i = 0; i < 10'000; ++i) many.emplace_back(1, "bdfgklmnprst"[Random(12)]);
  TextEncoder encoder(vocabulary_, "cased");
  for (const Texts& texts : {Texts{line}, {"", line, "", letters, "a"}, many})
    ExpectIds(encoder, texts, OfFile(texts));
}

TEST_F(TextEncoderTest, WhatIsNotUtf8IsReplacedAndNulIsRefused) {
  TextEncoder encoder(vocabulary_, "cased");
  const std::string mark = "\uFFFD";
  const Texts valid = {"ba" + mark + "ko", mark, "ko " + mark + mark + " mi"};
  ExpectIds(encoder, {"ba\xFFko", "\x80", "ko \xFF\xFE mi"}, OfFile(valid));
  const std::vector<pid_t> children = Children();
  EXPECT_THAT(children, SizeIs(1));
  const absl::Status nul = encoder.Encode({"ba", std::string("ko\0mi", 5)}, kDoing).status();
  EXPECT_EQ(ExitStatusFor(nul), kExitData);
  EXPECT_EQ(nul.message(), "encoding the prompts: byte 2 of text 2 is NUL; remove it");
  ExpectIds(encoder, {"ba ko"}, OfFile({"ba ko"}));
  EXPECT_EQ(Children(), children);
}

TEST_F(TextEncoderTest, FaultsHaveTheStatusAndTheWordsOfTheProgram) {
  fs::create_directory(At("folder"));
  const Texts long_ones(8, std::string(1 << 20, 'a'));  // more than is read before its end
  struct Case {
    std::string vocabulary;
    const char* letter_case;
    int exit_status;
    const char* message;
  };
  const std::string model = ReadFile(vocabulary_);
  const Case cases[] = {
      {At("none"), "cased", kExitUsage, "encoding the prompts: --vocab: "},
      {At("folder"), "cased", kExitUsage, "is a directory, but must be a file"},
      {vocabulary_, "mixed", kExitUsage, "--case: must be cased or uncased, not 'mixed'"},
      {Store("damaged", model.substr(0, model.size() / 2)), "cased", kExitData, "/damaged'"},
      {Store("empty", ""), "cased", kExitData, "/empty'"}};
  for (const Case& tried : cases) {
    TextEncoder encoder(tried.vocabulary, tried.letter_case);
    const absl::Status file =
        CallPrep({"encode", "--vocab", tried.vocabulary, "--case", tried.letter_case, "--input",
                  Store("a.jsonl", "{\"text\": \"a\"}\n"), "--output", At("out")},
                 kDoing);
    EXPECT_EQ(ExitStatusFor(file), tried.exit_status) << file;
    EXPECT_THAT(std::string(file.message()), HasSubstr(tried.message));
    for (const Texts& texts : {Texts{"a"}, long_ones, Texts{"a"}})
      EXPECT_EQ(encoder.Encode(texts, kDoing).status(), file);
    EXPECT_THAT(Children(), IsEmpty());
  }
}

TEST_F(TextEncoderTest, AChildThatIsKilledWhileIdleIsReplaced) {
  const Ids ids = OfFile({"ba ko"});
  TextEncoder encoder(vocabulary_, "cased");
  for (const int signal_number : {SIGKILL, SIGTERM, SIGKILL}) {
    ExpectIds(encoder, {"ba ko"}, ids);
    const std::vector<pid_t> children = Children();
    ASSERT_THAT(children, SizeIs(1));
    ::kill(children[0], signal_number);
    ASSERT_TRUE(Await([&] { return !IsRunning(children[0]); }));
  }
  ExpectIds(encoder, {"ba ko"}, ids);
}

// The vocabulary is a pipe, for which the child waits.
TEST_F(TextEncoderTest, AChildThatIsKilledAtWorkIsOneErrorThatSaysSo) {
  ASSERT_EQ(::mkfifo(At("pipe").c_str(), 0600), 0);
  const Ids ids = OfFile({"ba ko"});
  TextEncoder encoder(At("pipe"), "cased");
  std::thread killer([&] {
    const UniqueFd reached(::open(At("pipe").c_str(), O_WRONLY));  // when the child reads
    for (const pid_t child : Children()) ::kill(child, SIGKILL);
  });
  const absl::Status killed = encoder.Encode({"ba ko"}, kDoing).status();
  killer.join();
  EXPECT_EQ(killed, absl::UnavailableError("encoding the prompts: signal 9 ended anyorder-prep; "
                                           "check the free memory and try again"));
  EXPECT_THAT(Children(), IsEmpty());
  std::thread writer([&] { Store("pipe", ReadFile(vocabulary_)); });
  ExpectIds(encoder, {"ba ko"}, ids);
  writer.join();
  ExpectIds(encoder, {"ba ko"}, ids);
}

TEST_F(TextEncoderTest, KilledAtAnyMomentItGivesTheIdsOrTheError) {
  Texts texts;
  for (int i = 0; i < 3000; ++i) texts.push_back(RandomText(20));
  const Ids ids = OfFile(texts);
  TextEncoder encoder(vocabulary_, "cased");
  int num_killed = 0;
  for (int round = 0; round < 20; ++round) {
    ExpectIds(encoder, {texts[0]}, {ids[0]});
    const std::vector<pid_t> children = Children();
    ASSERT_THAT(children, SizeIs(1));
    std::thread killer([child = children[0], delay_us = Random(20'000)] {
      absl::SleepFor(absl::Microseconds(delay_us));
      ::kill(child, SIGKILL);
    });
    const auto found = encoder.Encode(texts, kDoing);
    killer.join();
    if (found.ok()) {
      EXPECT_TRUE(*found == ids);
    } else {
      ++num_killed;
      EXPECT_TRUE(absl::IsUnavailable(found.status())) << found.status();
      EXPECT_THAT(std::string(found.status().message()), HasSubstr("signal 9 ended anyorder-prep"));
    }
    // Then the next texts find it idle, and gone.
    ASSERT_TRUE(Await([&] { return !IsRunning(children[0]); }));
  }
  RecordProperty("num_killed", num_killed);
}

TEST_F(TextEncoderTest, AStuckChildIsEnded) {
  ASSERT_EQ(::mkfifo(At("pipe").c_str(), 0600), 0);
  TextEncoder encoder(At("pipe"), "cased", absl::Milliseconds(300));
  EXPECT_EQ(encoder.Encode({"ba ko"}, kDoing).status(),
            absl::DeadlineExceededError(
                "encoding the prompts: anyorder-prep did not answer within 300ms"));
  EXPECT_THAT(Children(), IsEmpty());
}

TEST_F(TextEncoderTest, CallsShareAChildThatHoldsNothingAndEndsWithTheEncoder) {
  const Ids ids = OfFile({"ba ko"});
  const int64_t before = NumDescriptors();
  pid_t child = 0;
  {
    const UniqueFd stranger(::open("/dev/null", O_RDONLY));  // stays open on exec
    TextEncoder encoder(vocabulary_, "cased");
    EXPECT_THAT(Children(), IsEmpty());
    ExpectIds(encoder, {"ba ko"}, ids);
    const std::vector<pid_t> children = Children();
    ASSERT_THAT(children, SizeIs(1));
    child = children[0];
    EXPECT_EQ(NumDescriptors(absl::StrCat(child)), 3);
    EXPECT_EQ(::getsid(child), child) << "Ctrl-C reaches it";
    const int64_t during = NumDescriptors();
    for (int i = 0; i < 200; ++i) ExpectIds(encoder, {"ba ko"}, ids);
    EXPECT_THAT(Children(), ElementsAre(child));
    EXPECT_EQ(NumDescriptors(), during);
    EXPECT_EQ(::fcntl(stranger.get(), F_GETFD), 0);
  }
  EXPECT_FALSE(IsRunning(child));
  EXPECT_EQ(NumDescriptors(), before);
}

// A fork of this process that does `work` and ends, or is killed.
class OwnerProcess {
 public:
  template <typename Work>
  explicit OwnerProcess(const Work& work) : pid_(::fork()) {
    EXPECT_GE(pid_, 0);
    if (pid_ != 0) return;
    try {
      work();
    } catch (...) {
    }
    ::_exit(1);
  }
  ~OwnerProcess() { Kill(); }
  OwnerProcess(const OwnerProcess&) = delete;
  OwnerProcess& operator=(const OwnerProcess&) = delete;

  void Kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(std::exchange(pid_, -1), nullptr, 0);
  }

 private:
  pid_t pid_;
};

TEST_F(TextEncoderTest, TheChildEndsWithAProcessThatIsKilled) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd reading(ends[0]);
  UniqueFd writing(ends[1]);
  OwnerProcess owner([&] {
    TextEncoder encoder(vocabulary_, "cased");
    if (!encoder.Encode({"ba"}, kDoing).ok()) return;
    const std::vector<pid_t> children = Children();
    if (children.size() != 1) return;
    const ssize_t written = ::write(writing.get(), children.data(), sizeof(pid_t));
    while (written == sizeof(pid_t)) ::pause();
  });
  writing = UniqueFd();  // so that reading ends where the owner does
  pid_t child = 0;
  ASSERT_EQ(::read(reading.get(), &child, sizeof child), static_cast<ssize_t>(sizeof child));
  ASSERT_GT(child, 0);
  EXPECT_TRUE(IsRunning(child));
  owner.Kill();
  EXPECT_TRUE(Await([child] { return !IsRunning(child); }));
}

// The program itself, by files and standard streams.
TEST_F(TextEncoderTest, TheProgramReadsAndWritesStandardStreams) {
  const std::string input = Store("in.jsonl", "{\"text\": \"ba ko\"}\n\n{\"text\": \"\"}\r\n" +
                                                  std::string("{\"text\": \"mi\\nnu\"}"));
  const std::string encode =
      absl::StrCat("'", PrepProgram(), "' encode --vocab '", vocabulary_, "' ");
  const auto shell = [&](const std::string& words) {
    return Capture({"sh", "-c", encode + words});
  };
  EXPECT_EQ(shell("--input " + input + " --output " + At("file")).text, "");
  const std::string ids = ReadFile(At("file"));
  EXPECT_EQ(std::count(ids.begin(), ids.end(), '\n'), 3) << ids;
  EXPECT_EQ(shell("--input - --output - < " + input).text, ids);
  EXPECT_EQ(shell("--input - --output - < /dev/null").text, "");
  EXPECT_EQ(shell("--output - --input " + input).text, ids);
  EXPECT_EQ(shell("--input - --output " + At("again") + " < " + input).text, "");
  EXPECT_EQ(ReadFile(At("again")), ids);

  const std::string bad = Store("bad.jsonl", "{\"text\": \"ba ko\"}\n\n{\"words\": \"ko\"}\n");
  const CapturedOutput streamed = shell("--input - --output - < " + bad);
  EXPECT_EQ(streamed.exit_status, kExitData);
  EXPECT_EQ(streamed.text, ids.substr(0, ids.find('\n') + 1) +
                               "anyorder-prep encode: standard input:3: not a JSON object with a "
                               "string field \"text\"; fix the line\n");
  const CapturedOutput stored = shell("--input " + bad + " --output " + At("none"));
  EXPECT_EQ(stored.exit_status, kExitData);
  EXPECT_THAT(stored.text, HasSubstr("/bad.jsonl:3: not a JSON object"));
  EXPECT_FALSE(fs::exists(At("none")));
  const std::string nul = Store("nul.jsonl", "{\"text\": \"a\\u0000\"}\n");
  EXPECT_THAT(shell("--input - --output - < " + nul).text,
              HasSubstr("standard input:1: the text holds NUL or invalid UTF-8; fix the line"));
  const CapturedOutput full = shell("--input " + input + " --output - > /dev/full");
  EXPECT_EQ(full.exit_status, kExitIo);
  EXPECT_THAT(full.text, HasSubstr("write 'standard output': No space left on device"));
  EXPECT_EQ(shell("--input - --output - <&-").exit_status, kExitIo);
}

}  // namespace
}  // namespace anyorder::launcher
