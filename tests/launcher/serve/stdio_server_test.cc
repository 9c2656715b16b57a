#include "launcher/serve/stdio_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/base/json_members.h"
#include "core/base/unique_fd.h"
#include "launcher/serve/answer.h"
#include "tests/launcher/serve/fake_service.h"

namespace anyorder::launcher {
namespace {

using ::testing::ElementsAre;

struct Pipe {
  Pipe() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(::pipe(ends), 0);
    out = UniqueFd(ends[0]);
    in = UniqueFd(ends[1]);
  }
  UniqueFd out, in;
};

void WriteToPipe(int fd, const std::string& text) {
  EXPECT_EQ(::write(fd, text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

// All lines, those that are too long as "?".
std::vector<std::string> ReadLines(LineReader& reader, std::mt19937& random) {
  std::vector<std::string> lines;
  while (true) {
    const size_t most = 1 + random() % 5;
    const auto next = reader.Next(most);
    EXPECT_TRUE(next.ok()) << next.status();
    if (!next.ok() || next->empty()) return lines;
    EXPECT_LE(next->size(), most);
    for (const auto& line : *next) lines.push_back(line.ok() ? *line : "?");
  }
}

// Whatever the pieces are in which a text arrives, its lines are what stands between line ends.
TEST(LineReaderTest, LinesAreWholeHoweverTheyArrive) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  constexpr size_t kMostBytes = 100;
  for (int round = 0; round < 200; ++round) {
    std::string text;
    std::vector<std::string> expected;
    for (size_t n = random() % 30; n > 0; --n) {
      // Some have exactly as many bytes as they may.
      const size_t bytes = random() % 4 == 0 ? kMostBytes - 2 + random() % 5 : random() % 40;
      const std::string line(bytes, static_cast<char>('a' + random() % 26));
      expected.push_back(bytes > kMostBytes ? "?" : line);
      text += line + "\n";
    }
    // The last one needs no end.
    if (!expected.empty() && !expected.back().empty() && random() % 2 == 0) text.pop_back();
    Pipe pipe;
    const auto writer_seed = static_cast<unsigned>(random());
    std::thread writer([&pipe, &text, writer_seed] {
      std::mt19937 pieces(writer_seed);
      for (size_t at = 0; at < text.size();) {
        const size_t bytes = std::min<size_t>(text.size() - at, 1 + pieces() % 150);
        WriteToPipe(pipe.in.get(), text.substr(at, bytes));
        at += bytes;
      }
      pipe.in = UniqueFd();
    });
    LineReader reader(pipe.out.get(), kMostBytes);
    EXPECT_EQ(ReadLines(reader, random), expected) << text;
    writer.join();
  }
}

TEST(RespondTest, WhenRefusedEachLineHasAnAnswerWithItsId) {
  FakeTextService service;
  std::vector<std::string> answers;
  for (const auto& response : Respond(service,
                                      {std::string(R"({"id": "a", "op": "facts"})"),
                                       std::string("nonsense"), absl::OutOfRangeError("too long")},
                                      {}, absl::UnavailableError("no more")))
    answers.push_back(DumpJson(response));
  const std::string error = R"("error":{"code":"unavailable","message":"no more"}})";
  EXPECT_THAT(answers, ElementsAre(R"({"id":"a",)" + error, R"({"id":null,)" + error,
                                   R"({"id":null,)" + error));
}

}  // namespace
}  // namespace anyorder::launcher
