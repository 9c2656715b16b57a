// Seeded mutations of everything that is parsed from files and sockets: an answer or an error,
// never a crash, a hang or a huge allocation. Sealed files are sealed again after the mutation,
// because otherwise only the checksum is tested. Build with the asan preset to see what merely
// reads astray.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "ckpt/chunk_sums.h"
#include "ckpt/lease.h"
#include "ckpt/manifest.h"
#include "ckpt/protocol.h"
#include "ckpt/safetensors.h"
#include "core/base/crc32c.h"
#include "tests/ckpt/stage_message.h"
#include "tests/ckpt/staged_save.h"

namespace anyorder::ckpt {
namespace {

constexpr int kNumMutants = 20'000;

// Text that parsers of numbers, nesting and names stumble over.
const std::vector<std::string>& Tokens() {
  static const auto* const tokens = new std::vector<std::string>{"0",
                                                                 "-1",
                                                                 "1",
                                                                 "2147483648",
                                                                 "4294967296",
                                                                 "9223372036854775807",
                                                                 "18446744073709551615",
                                                                 "1e9",
                                                                 "1e400",
                                                                 "0.5",
                                                                 "-0",
                                                                 "null",
                                                                 "true",
                                                                 "\"\"",
                                                                 "{}",
                                                                 "[]",
                                                                 "[[[[",
                                                                 "{\"\":",
                                                                 "\"\\u0000\"",
                                                                 "\"../../x\"",
                                                                 "\"..\"",
                                                                 "\xff",
                                                                 "\\",
                                                                 "\"",
                                                                 std::string(1, '\0'),
                                                                 ",",
                                                                 ":",
                                                                 "}"};
  return *tokens;
}

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}
  size_t Below(size_t n) { return n == 0 ? 0 : random_() % n; }

  std::string Mutate(std::string text) {
    for (size_t i = 0, count = 1 + Below(4); i < count; ++i)
      Step(&text);
    return text;
  }

 private:
  void Step(std::string* text) {
    const size_t at = Below(text->size() + 1);
    const size_t length = Below(std::min<size_t>(40, text->size() - at) + 1);
    switch (Below(7)) {
      case 0:
        if (at < text->size()) (*text)[at] = static_cast<char>((*text)[at] ^ 1 << Below(8));
        break;
      case 1:
        text->erase(at, length);
        break;
      case 2:
        text->insert(at, text->substr(Below(text->size() + 1), 1 + Below(60)));
        break;
      case 3:
        text->resize(at);
        break;
      case 4:
        text->insert(at, Tokens()[Below(Tokens().size())]);
        break;
      default:  // a number, where there is one, becomes another
        ReplaceNumber(text);
    }
  }
  void ReplaceNumber(std::string* text) {
    const size_t begin = text->find_first_of("0123456789", Below(text->size() + 1));
    if (begin == std::string::npos) return;
    const size_t end = std::min(text->size(), text->find_first_not_of("0123456789", begin));
    text->replace(begin, end - begin, Tokens()[Below(Tokens().size())]);
  }

  std::mt19937_64 random_;
};

// "text" without its last line, and with a last line that fits.
std::string Body(const std::string& sealed) {
  return sealed.substr(0, sealed.rfind("\"crc32c\""));
}
std::string Seal(const std::string& body) {
  const uint32_t crc = Crc32c(body.data(), static_cast<int64_t>(body.size()));
  return absl::StrCat(body, "\"crc32c\": \"", absl::Hex(crc, absl::kZeroPad8), "\"}\n");
}

// Mutants of `good` go to `parse`, which says whether it took them. Some must be taken, or nothing
// behind the first check was tested; most must not.
void Fuzz(const std::string& good, const std::function<bool(const std::string&)>& parse) {
  ASSERT_TRUE(parse(good));
  Mutator mutator(20241123);
  int num_taken = 0;
  for (int i = 0; i < kNumMutants; ++i)
    num_taken += parse(mutator.Mutate(good)) ? 1 : 0;
  EXPECT_GT(num_taken, 0);
  EXPECT_LT(num_taken, kNumMutants);
}

class ParserFuzzTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // Enough for everything here many times over; an allocation by a number in the input fails the
    // test.
    rlimit limit{};
    getrlimit(RLIMIT_AS, &limit);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    limit.rlim_cur = rlim_t{4} << 30;
    setrlimit(RLIMIT_AS, &limit);
#endif
    PrepareWithTwoCommits(&fs_, 3);
  }
  std::string FileOf(const std::string& name) const {
    return fs_.Contents(JoinPath(CheckpointPath(kRunDir, 100), name));
  }
  ModelFileSystem fs_;
};

TEST_F(ParserFuzzTest, Manifests) {
  Fuzz(Body(FileOf(kManifestName)), [](const std::string& body) {
    const absl::StatusOr<Manifest> manifest = ParseManifest(Seal(body), "m");
    if (!manifest.ok()) return false;
    // What was taken must be safe to use: the reader indexes files and computes offsets from it.
    for (const auto& [name, tensor] : manifest->tensors) {
      for (const Segment& segment : tensor.segments) {
        const FileRecord& file = manifest->files.at(segment.file);
        EXPECT_LE(segment.offset + (segment.end - segment.begin) * SizeOf(tensor.dtype),
                  file.bytes);
        EXPECT_GE(segment.offset, 0);
      }
    }
    EXPECT_GE(manifest->num_bytes(), 0);
    return true;
  });
}

TEST_F(ParserFuzzTest, Votes) {
  std::vector<Vote> others;
  for (const int node : {0, 2})
    others.push_back(*ParseVote(FileOf(VoteName(node)), "v"));
  Fuzz(Body(FileOf(VoteName(1))), [&](const std::string& body) {
    const absl::StatusOr<Vote> vote = ParseVote(Seal(body), "v");
    if (vote.ok()) MergeVotes({others[0], *vote, others[1]}).status().IgnoreError();
    return vote.ok();
  });
}

TEST_F(ParserFuzzTest, SafetensorsHeaders) {
  const std::string file = FileOf(RankFileName(1, kWorldSize));
  const std::string json = file.substr(8, file.find("  ") - 8);
  const std::string data = file.substr(4096);
  Fuzz(json, [&](const std::string& text) {
    std::string whole(8, '\0');
    const uint64_t length = text.size();
    std::memcpy(whole.data(), &length, 8);
    absl::StrAppend(&whole, text, data);
    const auto header = ParseSafetensorsHeader(whole, static_cast<int64_t>(whole.size()), "f");
    if (header.ok()) PiecesOf(*header, "f").status().IgnoreError();
    return header.ok();
  });
  // The length field, too.
  Mutator mutator(7);
  for (int i = 0; i < kNumMutants; ++i) {
    std::string bad = file;
    for (int byte = 0; byte < 8; ++byte)
      bad[byte] = static_cast<char>(mutator.Below(4) == 0 ? mutator.Below(256) : bad[byte]);
    ParseSafetensorsHeader(bad, static_cast<int64_t>(bad.size()), "f").status().IgnoreError();
  }
}

TEST_F(ParserFuzzTest, Leases) {
  const auto lease =
      Lease::Acquire(&fs_, kRunDir, DescribeThisProcess("test", 1, "socket"), absl::Seconds(1));
  ASSERT_TRUE(lease.ok());
  const std::string path = JoinPath(kRunDir, kLeaseName);
  Fuzz(Body(fs_.Contents(path)), [&](const std::string& body) {
    fs_.Overwrite(path, Seal(body));
    const absl::StatusOr<LeaseOwner> owner = ReadLease(&fs_, kRunDir);
    if (owner.ok()) IsKnownDead(*owner);
    return owner.ok();
  });
}

TEST_F(ParserFuzzTest, Messages) {
  Fuzz(SerializeMessage(StageMessage()), [](const std::string& body) {
    const absl::StatusOr<Message> message = ParseMessage(body);
    if (message.ok()) CrcsFromHex(message->crcs).status().IgnoreError();
    return message.ok();
  });
}

TEST_F(ParserFuzzTest, Frames) {
  std::array<int, 2> ends{};
  const std::string body = SerializeMessage(StageMessage());
  std::string frame = "AOCK";
  for (const uint32_t word : {static_cast<uint32_t>(body.size()),
                              Crc32c(body.data(), static_cast<int64_t>(body.size()))}) {
    frame.append(reinterpret_cast<const char*>(&word), 4);
  }
  frame += body;
  Mutator mutator(11);
  int num_refused = 0;
  for (int i = 0; i < 3000; ++i) {
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    Channel channel{UniqueFd(ends[1])};
    const std::string sent = frame + mutator.Mutate(frame) + frame;
    ASSERT_EQ(write(ends[0], sent.data(), sent.size()), static_cast<ssize_t>(sent.size()));
    close(ends[0]);
    absl::StatusOr<std::optional<Message>> message = channel.TryReceive();
    ASSERT_TRUE(message.ok() && message->has_value());  // the whole one before the damage
    for (int count = 0; count < 5 && message.ok(); ++count)
      message = channel.TryReceive();
    EXPECT_FALSE(message.ok());
    num_refused += absl::IsDataLoss(message.status()) ? 1 : 0;
  }
  EXPECT_GT(num_refused, 1000);
}

// Inputs that are small to write and dear to read, if read without care.
TEST_F(ParserFuzzTest, BombsAreRefusedOrReadInLinearTime) {
  EXPECT_FALSE(ParseMessage(std::string(1 << 20, '[')).ok());
  std::string nested = "{\"type\":1,\"x\":";
  for (int i = 0; i < 500'000; ++i)
    nested += "{\"a\":";
  EXPECT_FALSE(ParseMessage(nested).ok());
  nested = std::string(500'000, '[') + std::string(500'000, ']');
  EXPECT_TRUE(ParseMessage("{\"type\":1,\"x\":" + nested + "}").ok());
  // With a search through all earlier members for each new one, these would take minutes.
  std::string many = "{\"type\":1";
  std::string tensors = "{\"__metadata__\":{\"a\":\"b\"}";
  for (int i = 0; i < 200'000; ++i) {
    absl::StrAppend(&many, ",\"k", i, "\":0");
    absl::StrAppend(&tensors, ",\"k", i,
                    "\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}");
  }
  EXPECT_TRUE(ParseMessage(many + "}").ok());
  tensors += "}";
  std::string file(8, '\0');
  const uint64_t length = tensors.size();
  std::memcpy(file.data(), &length, 8);
  file += tensors;
  const auto header = ParseSafetensorsHeader(file, static_cast<int64_t>(file.size()), "f");
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->tensors.size(), 200'000u);
}

TEST_F(ParserFuzzTest, AFloodOfSmallMessagesIsReadInLinearTime) {
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  Channel receiver{UniqueFd(ends[1])};
  constexpr int kNumMessages = 200'000;
  std::thread flood([&] {
    Channel sender{UniqueFd(ends[0])};
    Message small;
    for (int i = 0; i < kNumMessages; ++i)
      ASSERT_TRUE(sender.Send(small, absl::Now() + absl::Seconds(60)).ok());
  });
  for (int i = 0; i < kNumMessages; ++i)
    ASSERT_TRUE(receiver.Receive(absl::Now() + absl::Seconds(60)).ok()) << i;
  flood.join();
}

TEST_F(ParserFuzzTest, DescriptorsThatNobodyAskedForEndTheConnection) {
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  Channel sender{UniqueFd(ends[0])};
  Channel receiver{UniqueFd(ends[1])};
  absl::Status status;
  for (int i = 0; i < 1000 && status.ok(); ++i) {
    Message hello;  // no Register, and yet with a descriptor
    hello.fd = UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC));
    ASSERT_TRUE(sender.Send(hello, absl::Now() + absl::Seconds(10)).ok());
    status = receiver.Receive(absl::Now() + absl::Seconds(10)).status();
  }
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
}

TEST_F(ParserFuzzTest, AFileTooLargeForItsKindIsNotReadWhole) {
  class Giant final : public ReadableFile {
   public:
    int64_t size() const override { return int64_t{1} << 40; }
    absl::Status ReadAt(int64_t, void*, int64_t) const override { return absl::OkStatus(); }
  };
  class GiantFileSystem final : public ModelFileSystem {
   public:
    absl::StatusOr<std::unique_ptr<ReadableFile>> OpenForRead(const std::string&) override {
      return std::make_unique<Giant>();
    }
  };
  GiantFileSystem giants;
  EXPECT_TRUE(absl::IsDataLoss(ReadSmallFile(&giants, "/run/LEASE").status()));
  EXPECT_TRUE(
      absl::IsDataLoss(Checkpoint::Open("/run/checkpoints/step-000000001", &giants).status()));
}

}  // namespace
}  // namespace anyorder::ckpt
