// Traces are read as they were written; what is none is refused with its line.

#include "launcher/texts/trace_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/base/unicode.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temporary_directory.h"

namespace anyorder::launcher {
namespace {

using TraceJson = nlohmann::json;

class TraceFileTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::vector<Trace>> Read(const std::string& bytes) const {
    return ReadTraces(folder_.Write("t.jsonl", bytes));
  }
  void ExpectRefused(const std::string& bytes, const std::string& message) const {
    EXPECT_THAT(Read(bytes).status(), Exits(kExitData, message, "`anyorder generate --trace`"));
  }

  const TemporaryDirectory folder_;
};

// Any characters, control characters and those beyond 16 bits included.
std::string RandomTracePiece(std::mt19937_64& random) {
  std::string piece;
  const uint64_t length = random() % 6;
  while (piece.size() < length) {
    const auto c = static_cast<char32_t>(random() % (random() % 2 == 0 ? 0x80 : 0x110000));
    if (c < 0xD800 || c > 0xDFFF) AppendUtf8(c, piece);
  }
  return piece;
}

// Finite, of any size; or unknown.
double RandomNumber(std::mt19937_64& random) {
  if (random() % 8 == 0) return std::numeric_limits<double>::quiet_NaN();
  const double mantissa = std::ldexp(static_cast<double>(random()), -63) - 1;
  return std::ldexp(mantissa, static_cast<int>(random() % 200) - 100);
}

Trace RandomTrace(std::mt19937_64& random) {
  Trace trace;
  trace.prompt = 1 + static_cast<int64_t>(random() % 1000);
  trace.rank = 1 + static_cast<int64_t>(random() % 10);
  trace.method = "llada";
  for (uint64_t i = random() % 5; i > 0; --i)
    trace.prompt_pieces.push_back(RandomTracePiece(random));
  std::vector<int64_t> positions(random() % 30);
  std::iota(positions.begin(), positions.end(), std::ssize(trace.prompt_pieces));
  std::shuffle(positions.begin(), positions.end(), random);
  int64_t pass = 1;
  for (const int64_t position : positions) {
    pass += static_cast<int64_t>(random() % 3);
    trace.written.push_back(
        {pass, position, RandomTracePiece(random), RandomNumber(random), RandomNumber(random)});
  }
  trace.passes = pass + static_cast<int64_t>(random() % 3);
  return trace;
}

// Numbers to their last digit.
std::vector<uint64_t> BitsOf(const Trace& trace) {
  std::vector<uint64_t> bits;
  for (const ShownToken& token : trace.written)
    for (const double number : {token.log_prob, token.confidence})
      bits.push_back(std::isnan(number) ? 1 : std::bit_cast<uint64_t>(number));
  return bits;
}

TEST_F(TraceFileTest, TracesAreReadAsTheyWereWritten) {
  std::mt19937_64 random(2611);
  std::vector<Trace> traces;
  std::string bytes;
  for (int i = 0; i < 300; ++i) bytes += TraceLine(traces.emplace_back(RandomTrace(random)));
  const std::vector<Trace> read = Read(bytes).value();
  ASSERT_EQ(read.size(), traces.size());
  for (size_t i = 0; i < traces.size(); ++i) {
    EXPECT_EQ(TraceLine(read[i]), TraceLine(traces[i]));
    EXPECT_EQ(BitsOf(read[i]), BitsOf(traces[i]));
  }
}

TEST_F(TraceFileTest, LinesAreTheDocumentedOnes) {
  EXPECT_EQ(TraceLine({.prompt = 3,
                       .rank = 1,
                       .method = "dream",
                       .prompt_pieces = {"A"},
                       .passes = 2,
                       .written = {{1, 2, " \xE8", -0.5, HUGE_VAL}, {2, 1, " b", -1, 0.25}}}),
            "{\"prompt\":3,\"rank\":1,\"method\":\"dream\",\"prompt_pieces\":[\"A\"],\"passes\":2,"
            "\"written\":[{\"pass\":1,\"position\":2,\"piece\":\" \xEF\xBF\xBD\",\"log_prob\":-0.5,"
            "\"confidence\":null},{\"pass\":2,\"position\":1,\"piece\":\" b\",\"log_prob\":-1.0,"
            "\"confidence\":0.25}]}\n");
}

TEST_F(TraceFileTest, BlankLinesAndUnknownFieldsArePassedOver) {
  const auto read =
      Read(
          "\r\n{\"prompt\":1,\"rank\":1,\"method\":\"x\",\"prompt_pieces\":[],\"passes\":0,"
          "\"written\":[],\"more\":{}}\r\n\n")
          .value();
  EXPECT_EQ(read.size(), 1);
}

TEST_F(TraceFileTest, WhatIsNoTraceIsRefusedWithItsLine) {
  ExpectRefused("", "t.jsonl holds no text");
  ExpectRefused("{", "t.jsonl:1: not valid JSON");
  ExpectRefused("\n[1]\n", "t.jsonl:2: not a JSON object");
  ExpectRefused(std::string(100'000, '['), "t.jsonl:1: JSON that is nested deeper than 64 levels");
  ExpectRefused("{\"text\": \"a\"}\n", "t.jsonl:1: there is no 'prompt'");
}

TEST_F(TraceFileTest, EachFaultOfATextIsSaid) {
  const std::string good = TraceLine({.method = "llada",
                                      .prompt_pieces = {"A", "B"},
                                      .passes = 2,
                                      .written = {{1, 2, "c", -1, 1}, {2, 3, "d", -1, 1}}});
  const auto expect = [&](const std::function<void(TraceJson&)>& damage,
                          const std::string& message) {
    TraceJson json = TraceJson::parse(good);
    damage(json);
    ExpectRefused(good + json.dump() + "\n", "t.jsonl:2: " + message);
  };
  const std::string token = "entry 2 of 'written': ";
  expect([](TraceJson& j) { j["prompt"] = 0; }, "'prompt' is not a whole number from 1 to ");
  expect([](TraceJson& j) { j["prompt"] = 1.5; }, "'prompt' is not a whole number");
  expect([](TraceJson& j) { j["rank"] = -1; }, "'rank' is not a whole number");
  expect([](TraceJson& j) { j["rank"] = UINT64_MAX; }, "'rank' is not a whole number");
  expect([](TraceJson& j) { j.erase("method"); }, "there is no string 'method'");
  expect([](TraceJson& j) { j["method"] = ""; }, "'method' has 0 bytes");
  expect([](TraceJson& j) { j["passes"] = kMostTraceTokens + 1; },
         "'passes' is not a whole number from 0 to 1048576");
  expect([](TraceJson& j) { j["prompt_pieces"] = "AB"; }, "there is no list 'prompt_pieces'");
  expect([](TraceJson& j) { j["prompt_pieces"][1] = 5; },
         "entry 2 of 'prompt_pieces' is not a string");
  expect([](TraceJson& j) { j.erase("written"); }, "there is no list 'written'");
  expect([](TraceJson& j) { j["written"][1] = 5; }, token + "not a JSON object");
  expect([](TraceJson& j) { j["written"][1]["pass"] = 3; },
         token + "'pass' is not a whole number from 1 to 2");
  expect([](TraceJson& j) { j["written"][0]["pass"] = 2, j["written"][1]["pass"] = 1; },
         token + "pass 1 comes after pass 2");
  expect([](TraceJson& j) { j["written"][1]["position"] = 1; },
         token + "'position' is not a whole number from 2 to 1048577");
  expect([](TraceJson& j) { j["written"][1]["position"] = 1e18; }, token + "'position' is not");
  expect([](TraceJson& j) { j["written"][1]["position"] = 2; },
         token + "position 2 is written twice");
  expect([](TraceJson& j) { j["written"][1].erase("piece"); },
         token + "there is no string 'piece'");
  expect([](TraceJson& j) { j["written"][1]["log_prob"] = "low"; },
         token + "'log_prob' is neither a finite number nor null");
  expect([](TraceJson& j) { j["written"][1].erase("confidence"); },
         token + "'confidence' is neither");
}

}  // namespace
}  // namespace anyorder::launcher
