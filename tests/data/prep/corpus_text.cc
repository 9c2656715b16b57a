#include "tests/data/prep/corpus_text.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

#include "core/base/check.h"
#include "core/base/philox.h"
#include "data/prep/cleaning.h"
#include "tests/data/dataset/dataset_files.h"

namespace anyorder::data {
namespace {

std::string MakeWord(RandomStream& random) {
  constexpr const char* kSyllables[] = {"an", "be", "cor", "da", "el",        "fi", "gra", "ho",
                                        "in", "ju", "ka",  "lo", "m\xC3\xA9", "no", "ost", "pri",
                                        "qu", "ra", "sel", "ta", "un",        "vo", "wim", "ze"};
  std::string word;
  const uint32_t count = 1 + random.Below(3);
  for (uint32_t i = 0; i < count; ++i) word += kSyllables[random.Below(std::size(kSyllables))];
  return word;
}

std::string MakeSentence(RandomStream& random) {
  std::string sentence;
  const uint32_t words = 6 + random.Below(20);
  for (uint32_t i = 0; i < words; ++i) {
    if (i > 0) sentence += ' ';
    const uint32_t kind = random.Below(24);
    if (kind == 0) {
      sentence.append(std::to_string(random.Below(9000))).append(",");
    } else if (kind == 1) {
      sentence.append("(").append(MakeWord(random)).append(")");
    } else {
      sentence += MakeWord(random);
    }
  }
  return sentence + ".";
}

std::string ProgramPath() {
  const char* folder = std::getenv("ANYORDER_BIN");
  ANYORDER_CHECK(folder != nullptr) << "set ANYORDER_BIN to build/bin, as CTest does";
  return std::string(folder) + "/anyorder-prep";
}

// Starts the program with its output in the two files. In the child nothing is allocated before
// exec.
int Start(const std::vector<std::string>& arguments, const std::string& out_path,
          const std::string& error_path, const ProgramLimits& limits) {
  std::vector<std::string> all = Joined({ProgramPath()}, arguments);
  std::vector<char*> argv;
  for (std::string& argument : all) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const int pid = ::fork();
  ANYORDER_CHECK(pid >= 0) << "fork failed";
  if (pid > 0) return pid;
  ::dup2(::open(out_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644), STDOUT_FILENO);
  ::dup2(::open(error_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644), STDERR_FILENO);
  if (limits.max_file_bytes > 0) {
    const rlimit limit{limits.max_file_bytes, limits.max_file_bytes};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  constexpr uid_t kNobody = 65534;
  if (limits.as_nobody && ::setresuid(kNobody, kNobody, kNobody) != 0) ::_exit(127);
  ::execv(argv[0], argv.data());
  ::_exit(127);
}

}  // namespace

std::vector<TestDocument> MakeDocuments(int count, uint64_t seed) {
  std::vector<TestDocument> documents;
  RandomStream random(seed, RandomPurpose::kPrep, 1, 2);
  for (int i = 0; i < count; ++i) {
    TestDocument document;
    const uint32_t lines = 1 + random.Below(8);
    for (uint32_t k = 0; k < lines; ++k) document.push_back(MakeSentence(random));
    documents.push_back(std::move(document));
  }
  return documents;
}

TestDocument AllLines(const std::vector<TestDocument>& documents) {
  TestDocument all;
  for (const TestDocument& document : documents)
    all.insert(all.end(), document.begin(), document.end());
  return all;
}

std::string AsTxt(const std::vector<TestDocument>& documents) {
  std::string text;
  for (const TestDocument& document : documents) {
    if (!text.empty()) text += '\n';
    for (const std::string& line : document) text += line + '\n';
  }
  return text;
}

std::string AsJsonl(const std::vector<TestDocument>& documents) {
  std::string text;
  for (const TestDocument& document : documents)
    text += nlohmann::json{{"id", 7}, {"text", absl::StrJoin(document, "\n")}}.dump() + "\n";
  return text;
}

std::string AsTable(const std::vector<TestDocument>& documents, char separator) {
  std::string out = absl::StrCat("id", std::string(1, separator), "text\n");
  for (const TestDocument& document : documents) {
    const std::string text = absl::StrReplaceAll(absl::StrJoin(document, "\n"), {{"\"", "\"\""}});
    absl::StrAppend(&out, "\"7\"", std::string(1, separator), "\"", text, "\"\r\n");
  }
  return out;
}

std::vector<std::string> Joined(std::vector<std::string> words,
                                const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

ProgramResult Done(ProgramResult result) {
  EXPECT_EQ(result.exit_status, 0) << result.error;
  return result;
}

void ExpectRefusal(const ProgramResult& result, int status, const std::string& message) {
  EXPECT_EQ(result.exit_status, status) << result.error;
  EXPECT_THAT(result.error, testing::HasSubstr(message));
  EXPECT_EQ(std::count(result.error.begin(), result.error.end(), '\n'), 1) << result.error;
}

std::string PrepFolderTest::Store(const std::string& name, const std::string& bytes) const {
  WriteFile(folder_ + "/" + name, bytes);
  return folder_ + "/" + name;
}

bool PrepFolderTest::StartAndKill(const std::vector<std::string>& arguments,
                                  const std::string& name) const {
  const int pid = StartPrepProgram(arguments);
  int status = 0;
  while (!std::filesystem::exists(output_ + "/.anyorder-prep/" + name)) {
    if (::waitpid(pid, &status, WNOHANG) == pid) return false;
    ::usleep(300);
  }
  ::kill(pid, SIGKILL);
  ::waitpid(pid, &status, 0);
  return WIFSIGNALED(status);
}

absl::StatusOr<PrepSummary> TextPrepTest::Prepare(const std::string& name,
                                                  const std::string& text) {
  options_.inputs = {Store(name, text)};
  options_.output = Output(name);
  return RunPrep(options_);
}

PrepSummary TextPrepTest::ExpectSameForWorkers(const std::vector<int>& counts,
                                               const std::string& text) {
  PrepSummary summary;
  std::vector<std::pair<std::string, std::string>> first;
  for (const int workers : counts) {
    options_.workers = workers;
    summary = Prepare(absl::StrCat("w", workers, ".txt"), text).value();
    const auto tree = ReadTree(options_.output);
    if (first.empty()) first = tree;
    EXPECT_TRUE(tree == first) << workers << " workers";
  }
  return summary;
}

ProgramResult ExampleFolderTest::Run(const std::string& input, const std::string& output,
                                     const std::vector<std::string>& more) const {
  return RunPrepProgram(
      Joined({"--examples", input, "--output", output, "--vocab", TestModelPath()}, more));
}

void ExampleFolderTest::ExpectRefused(const std::string& name, const std::string& lines,
                                      const std::string& message,
                                      const std::vector<std::string>& more, int status) const {
  ExpectRefusal(Run(Store(name, lines), output_, more), status, message);
  EXPECT_FALSE(std::filesystem::exists(output_)) << lines;
}

std::vector<int32_t> ExampleFolderTest::Ids(const std::string& text) {
  std::vector<int32_t> ids;
  EXPECT_TRUE(Tokenizer::Load(TestModel(), "model")->Encode(text, ids).ok());
  return ids;
}

ProgramResult RunPrepProgram(const std::vector<std::string>& arguments,
                             const ProgramLimits& limits) {
  const TemporaryDirectory folder;
  const std::string out_path = folder.path() + "/out";
  const std::string error_path = folder.path() + "/error";
  const int pid = Start(arguments, out_path, error_path, limits);
  int status = 0;
  rusage usage{};
  ANYORDER_CHECK(::wait4(pid, &status, 0, &usage) == pid);
  ProgramResult result;
  if (WIFEXITED(status)) result.exit_status = WEXITSTATUS(status);
  result.out = ReadFile(out_path);
  result.error = ReadFile(error_path);
  result.max_resident_bytes = usage.ru_maxrss * 1024;
  return result;
}

int StartPrepProgram(const std::vector<std::string>& arguments, const std::string& error_path) {
  return Start(arguments, "/dev/null", error_path, {});
}

std::vector<std::pair<std::string, std::string>> ReadTree(const std::string& directory) {
  std::vector<std::pair<std::string, std::string>> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    const std::string name = std::filesystem::relative(entry.path(), directory).string();
    files.emplace_back(name, entry.is_regular_file() ? ReadFile(entry.path().string()) : "");
  }
  std::sort(files.begin(), files.end());
  return files;
}

absl::StatusOr<std::string> TrainOn(const VocabTraining& training, const std::string& text) {
  std::istringstream lines(text);
  std::vector<std::string> sentences;
  for (std::string line; std::getline(lines, line);) sentences.push_back(line);
  return TrainTokenizer(training, sentences);
}

const std::string& TestModel() {
  static const auto* const model =
      new std::string(TrainOn({.size = 300}, AsTxt(MakeDocuments(300, 1))).value());
  return *model;
}

std::string TestModelPath() {
  static const TemporaryDirectory directory;
  const std::string path = directory.path() + "/spiece.model";
  if (!std::filesystem::exists(path)) WriteFile(path, TestModel());
  return path;
}

}  // namespace anyorder::data
