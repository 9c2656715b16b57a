// Runs fuzz targets without libFuzzer: their seeds, deep and long ones made of them, regression
// inputs, and seeded mutants.
//
//   fuzz_replay NAME REGRESSIONS-FOLDER MUTANTS     plain replay; CTest runs this
//   fuzz_replay NAME --write-seeds FOLDER           the seeds as files, for libFuzzer
//
// A folder that does not exist is empty. An input that crashes is kept in the working folder and
// its path printed.

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "tests/fuzz/fuzz_target.h"

namespace anyorder::fuzz {
namespace {

std::string g_current;
std::string g_kept_path;

// The process is lost anyway, so this may try what a handler should not.
void KeepCurrent(int signal) {
  FILE* const file = std::fopen(g_kept_path.c_str(), "wb");
  if (file != nullptr) {
    std::fwrite(g_current.data(), 1, g_current.size(), file);
    std::fclose(file);
    std::fprintf(stderr, "input that crashes or takes too long: %s\n", g_kept_path.c_str());
  }
  std::_Exit(128 + signal);
}

// No input may take long, however long it is; what takes half a second is given two minutes on a
// machine that does other things.
constexpr unsigned kSecondsAtMost = 120;

void RunOne(const FuzzTarget& target, std::string input) {
  g_current = std::move(input);
  ::alarm(kSecondsAtMost);
  target.run(g_current);
}

std::string Mutate(std::string text, std::mt19937_64& random) {
  static const std::vector<std::string> tokens = absl::StrSplit(
      "0 -1 9223372036854775807 18446744073709551615 1e400 {} [[[[ null \" \xff \\u0000 }", ' ');
  const auto below = [&](size_t n) { return n == 0 ? 0 : static_cast<size_t>(random() % n); };
  for (size_t step = 0, count = 1 + below(4); step < count; ++step) {
    const size_t at = below(text.size() + 1);
    switch (below(6)) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>(text[at] ^ 1 << below(8));
        break;
      case 1: text.erase(at, below(20)); break;
      case 2: text.insert(at, text.substr(below(text.size() + 1), 1 + below(60))); break;
      case 3: text.insert(at, tokens[below(tokens.size())]); break;
      case 4: {  // a number, where there is one, becomes another
        const size_t begin = text.find_first_of("0123456789", at);
        if (begin == std::string::npos) break;
        const size_t end = std::min(text.size(), text.find_first_not_of("0123456789", begin));
        text.replace(begin, end - begin, tokens[below(tokens.size())]);
        break;
      }
      default:  // binary numbers at their edges
        for (size_t i = at, end = std::min(text.size(), at + (1 << below(4))); i < end; ++i)
          text[i] = below(2) == 0 ? '\xff' : static_cast<char>(below(256));
    }
  }
  return text;
}

// As long as inputs get; run.sh has libFuzzer make them so long.
constexpr size_t kLongBytes = 1 << 20;

std::string Repeated(absl::string_view unit, size_t bytes = kLongBytes) {
  std::string text;
  while (text.size() < bytes) absl::StrAppend(&text, unit);
  return text;
}

// Deep and long inputs, which mutation does not make of small seeds: what opens and never closes,
// and what some parser may look at again for each byte. And each seed with its first number deep or
// long, long in its middle, and many times over.
std::vector<std::string> Stretched(const std::vector<std::string>& seeds) {
  std::vector<std::string> inputs;
  for (const char* unit :
       {"[", "{\"a\":", "a=[", "a.", "[a.", "a={b=", "<",  "<a",  "a",    "9",
        "-", "\n",      "\"",  "\\", ",",   "\t",    "a ", "a\n", "\xff", "\xe2\x80"})
    inputs.push_back(Repeated(unit));
  for (const std::string& seed : seeds) {
    if (seed.empty()) continue;
    const size_t begin = std::min(seed.find_first_of("0123456789"), seed.size());
    const size_t end = std::min(seed.find_first_not_of("0123456789", begin), seed.size());
    for (const char* unit : {"[", "{\"a\":", "9"}) {
      inputs.push_back(seed);
      inputs.back().replace(begin, end - begin, Repeated(unit, kLongBytes / 8));
    }
    // Some targets choose a format by the first byte.
    for (const char* unit : {"[", "{\"a\":"})
      inputs.push_back(seed.substr(0, 1) + Repeated(unit, kLongBytes / 8));
    inputs.push_back(seed);
    inputs.back().insert(seed.size() / 2, Repeated("a"));
    inputs.push_back(Repeated(absl::StrCat(seed, "\n")));
  }
  return inputs;
}

int WriteSeeds(const FuzzTarget& target, const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  const std::vector<std::string> seeds = target.seeds();
  int number = 0;
  for (const auto& inputs : {seeds, Stretched(seeds)}) {
    for (const std::string& input : inputs)
      std::ofstream(folder / absl::StrCat("seed-", number++), std::ios::binary) << input;
  }
  return 0;
}

int Replay(const FuzzTarget& target, const std::string& folder, int num_mutants) {
  std::vector<std::string> inputs = target.seeds();
  ANYORDER_CHECK(!inputs.empty());
  std::error_code absent;
  for (const auto& entry : std::filesystem::directory_iterator(folder, absent)) {
    inputs.push_back(ValueOrDie(ReadWholeFile(entry.path(), kMaxTextBytes)));
  }
  g_kept_path = absl::StrCat("crash-replay-", getpid());
  for (const int signal : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGALRM})
    std::signal(signal, KeepCurrent);
  const std::vector<std::string> stretched = Stretched(target.seeds());
  for (const auto& all : {inputs, stretched})
    for (const std::string& input : all) RunOne(target, input);
  std::mt19937_64 random(20241123);
  for (int i = 0; i < num_mutants; ++i)
    RunOne(target, Mutate(inputs[random() % inputs.size()], random));
  std::printf("%zu inputs, %zu deep and long ones, and %d mutants\n", inputs.size(),
              stretched.size(), num_mutants);
  return 0;
}

}  // namespace
}  // namespace anyorder::fuzz

int main(int argc, char** argv) {
  for (const anyorder::fuzz::FuzzTarget& target : anyorder::fuzz::Targets()) {
    if (argc != 4 || target.name != argv[1]) continue;
    if (std::strcmp(argv[2], "--write-seeds") == 0)
      return anyorder::fuzz::WriteSeeds(target, argv[3]);
    return anyorder::fuzz::Replay(target, argv[2], std::atoi(argv[3]));
  }
  std::fprintf(stderr,
               "usage: fuzz_replay NAME REGRESSIONS-FOLDER MUTANTS | NAME --write-seeds FOLDER\n");
  return 64;
}
