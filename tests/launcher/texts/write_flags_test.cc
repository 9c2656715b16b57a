// An option means the same on a command line and in JSON, and both refuse what is out of its
// bounds or has no effect.

#include "launcher/texts/write_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

#include "core/base/status.h"
#include "launcher/process/command_line.h"
#include "launcher/texts/object_reader.h"
#include "launcher/texts/request_json.h"
#include "tests/testing/acts_on.h"
#include "tests/testing/status_matchers.h"

namespace anyorder::launcher {

Subcommand DeclareFill(CLI::App& front);  // fill.cc
namespace {

// Keys and their values as JSON has them, without the quotes of a name.
using Given = std::vector<std::pair<std::string, std::string>>;

ModelFacts AllMethods() {
  ModelFacts facts{.seq_len = 64};
  for (const auto& [unused, name] : kEnumNames<WriteMethod>) facts.methods.emplace_back(name);
  return facts;
}

std::string Dashed(const std::string& key) { return absl::StrReplaceAll(key, {{"_", "-"}}); }

// InvalidArgument with the line that a user sees.
absl::Status Parse(CLI::App& app, std::vector<std::string> words) {
  words.insert(words.begin(), "anyorder");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  ::testing::internal::CaptureStderr();
  const auto status = ParseCommandLine(app, static_cast<int>(argv.size()), argv.data());
  const std::string line = ::testing::internal::GetCapturedStderr();
  return status ? InvalidArgument(line) : absl::OkStatus();
}

absl::StatusOr<WriteOptions> OnCommandLine(const Given& given) {
  CLI::App app("", "anyorder");
  WriteFlags flags;
  AddWriteFlags(&app, flags);
  std::vector<std::string> words;
  for (const auto& [key, value] : given)
    words.push_back(absl::StrCat("--", Dashed(key), value == "true" ? "" : "=" + value));
  RETURN_IF_ERROR(Parse(app, words));
  return OptionsOf(flags, AllMethods());
}

nlohmann::json ToJson(const Given& given) {
  nlohmann::json object = nlohmann::json::object();
  for (const auto& [key, value] : given) {
    object[key] = nlohmann::json::parse(value, nullptr, /*allow_exceptions=*/false);
    if (object[key].is_discarded()) object[key] = value;
  }
  return object;
}

absl::StatusOr<WriteOptions> InJson(const Given& given) {
  const nlohmann::json object = ToJson(given);
  ObjectReader reader(object);
  WriteOptions options;
  ReadWriteOptions(reader, AllMethods(), options);
  RETURN_IF_ERROR(reader.End());
  return options;
}

struct OptionCase {
  std::string key;
  std::vector<std::string> wrong;
  std::vector<std::string> right;
  std::function<void(WriteOptions&)> last;  // what the last of the right ones changes
  std::string method = "llada";
  Given needs = {};
};

std::vector<OptionCase> OptionCases() {
  using Options = WriteOptions;
  static constexpr int64_t kMost = int64_t{1} << 20;
  const std::vector<std::string> from_0 = {"0", "1048576"}, from_1 = {"1", "1048576"};
  const std::vector<std::string> not_from_0 = {"-1", "1048577", "0.5", "many"};
  const std::vector<std::string> not_from_1 = {"0", "1048577"};
  const std::vector<std::string> flag = {"true"};
  return {
      {"temperature",
       {"-0.1", "1000000.5", "hot"},
       {"0", "1e6"},
       [](Options& o) { o.draw.cuts.temperature = 1e6; },
       "left-to-right"},
      {"top_k", not_from_0, from_0, [](Options& o) { o.draw.cuts.top_k = kMost; }},
      {"top_p", {"0", "1.01"}, {"1", "0.01"}, [](Options& o) { o.draw.cuts.top_p = 0.01; }},
      {"seed",
       {"-1", "9223372036854775808"},
       {"0", "9223372036854775807"},
       [](Options& o) { o.draw.seed = INT64_MAX; }},
      {"steps", not_from_0, from_0, [](Options& o) { o.steps = kMost; }},
      {"block_length", not_from_0, from_0, [](Options& o) { o.block_len = kMost; }},
      {"confidence", {"sure"}, {"margin"}, [](Options& o) { o.confidence = Confidence::kMargin; }},
      {"random_positions", {}, flag, [](Options& o) { o.origin = true; }, "dream"},
      {"order_temperature",
       {"-1", "1000000.5"},
       {"0", "1e6"},
       [](Options& o) { o.order_temperature = 1e6; },
       "dream"},
      {"guidance", {"-0.5", "1000.5"}, {"0", "1000"}, [](Options& o) { o.guidance = 1e3; }},
      {"threshold", {"-0.1", "1.1"}, {"0", "1"}, [](Options& o) { o.threshold = 1; }, "threshold"},
      {"cache",
       {"prefx"},
       {"dual"},
       [](Options& o) { o.cache = BlockCache::kDual; },
       "llada",
       {{"block_length", "4"}}},
      {"end_last", {}, flag, [](Options& o) { o.delay_end = true; }},
      {"group_length", not_from_1, from_1, [](Options& o) { o.group_len = kMost; }, "a3"},
      {"draft", not_from_0, from_0, [](Options& o) { o.draft = kMost; }, "speculative"},
      {"orders",
       {"0", "1025"},
       {"1", "1024"},
       [](Options& o) { o.orders = 1024; },
       "burst",
       {{"literal", "true"}}},
      {"random_order", {}, flag, [](Options& o) { o.random_order = true; }, "a3"},
      {"recompute", {}, flag, [](Options& o) { o.recompute = true; }},
      {"literal", {}, flag, [](Options& o) { o.literal = true; }, "llada", {{"end_last", "true"}}},
  };
}

TEST(WriteFlagsTest, EveryOptionHasTheSameBoundsOnCommandLinesAndInJson) {
  std::set<std::string> keys;
  for (const OptionCase& one : OptionCases()) {
    SCOPED_TRACE(one.key);
    keys.insert(one.key);
    Given given = one.needs;
    given.emplace_back("method", one.method);
    WriteOptions expected = InJson(given).value();
    one.last(expected);
    given.emplace_back(one.key, "[]");
    EXPECT_EQ(FaultyKey(InJson(given).status()), one.key);
    for (const std::string& value : one.wrong) {
      given.back().second = value;
      EXPECT_THAT(OnCommandLine(given).status(),
                  Says(absl::StrCat("--", Dashed(one.key), ": must be ")));
      EXPECT_EQ(FaultyKey(InJson(given).status()), one.key) << value;
    }
    for (const std::string& value : one.right) {
      given.back().second = value;
      const auto told = OnCommandLine(given), read = InJson(given);
      ASSERT_TRUE(told.ok() && read.ok()) << told.status() << read.status() << value;
      EXPECT_EQ(*told, *read) << value;
    }
    EXPECT_EQ(InJson(given).value(), expected);
  }
  const WriteOptions options;
  auto visit = [&keys](const char* key, const auto&...) { EXPECT_EQ(keys.erase(key), 1u) << key; };
  WriteOptions::VisitFields(options, visit);
  EXPECT_TRUE(keys.empty());
}

TEST(WriteFlagsTest, OptionsOfOtherMethodsAreRefusedByName) {
  for (const OptionCase& one : OptionCases()) {
    for (const auto& [method, name] : kEnumNames<WriteMethod>) {
      if (ActsOn(one.key, method)) continue;
      const Given given = {{"method", name}, {one.key, one.right.back()}};
      const std::string words =
          absl::StrCat(" has no effect with method \"", name, "\", only with ");
      EXPECT_THAT(OnCommandLine(given).status(), Says(Dashed(one.key) + words));
      EXPECT_THAT(InJson(given).status(), Says(one.key + words));
    }
  }
}

TEST(FillFlagsTest, EveryOptionHasTheSameBoundsOnCommandLinesAndInJson) {
  const struct {
    const char *flag, *key;
    std::vector<std::string> wrong, right;
  } cases[] = {
      {"--alternatives", "alternatives", {"0", "1025"}, {"1", "1024"}},
      {"--max-blank", "max_blank_tokens", {"0", "1048577"}, {"1", "1048576"}},
      {"--fit-tokens", "fit_tokens", {"-1", "1048577"}, {"0", "1048576"}},
      {"--length-penalty", "length_penalty", {"-0.5", "100.5"}, {"0", "100"}},
      {"--mean-length", "mean_length", {"-1", "1000000.5"}, {"0", "1000000"}},
      {"--bound-samples", "bound_samples", {"0", "1048577"}, {"1", "1048576"}},
  };
  for (const auto& one : cases) {
    const auto on_command_line = [&one](const std::string& value) {
      CLI::App app("", "anyorder");
      DeclareFill(app);
      return Parse(app,
                   {"fill", ".", "--input=-", "--output=-", absl::StrCat(one.flag, "=", value)});
    };
    const auto in_json = [&one](const std::string& value) {
      TextRequest request{.what = FillRequest()};
      return ParseFillLine(ToJson({{"text", "a ___"}, {one.key, value}}), AllMethods(), request);
    };
    for (const std::string& value : one.wrong) {
      EXPECT_THAT(on_command_line(value), Says(absl::StrCat(one.flag, ": must be ")));
      EXPECT_EQ(FaultyKey(in_json(value)), one.key) << value;
    }
    for (const std::string& value : one.right) {
      EXPECT_TRUE(on_command_line(value).ok()) << one.flag << value;
      EXPECT_TRUE(in_json(value).ok()) << one.key << value;
    }
  }
}

}  // namespace
}  // namespace anyorder::launcher
