#include "ckpt/protocol.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>

#include "absl/time/clock.h"

#include "ckpt/staging_buffer.h"
#include "core/base/crc32c.h"
#include "tests/ckpt/service_fixture.h"

namespace anyorder::ckpt {
namespace {

using ::testing::HasSubstr;

std::array<int, 2> SocketPair() {
  std::array<int, 2> ends{};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  return ends;
}

absl::Time Soon() {
  return absl::Now() + absl::Seconds(10);
}

TEST(ChannelTest, MessagesArriveWholeAndInOrderWithTheirMemory) {
  const std::array<int, 2> ends = SocketPair();
  Channel left{UniqueFd(ends[0])};
  Channel right{UniqueFd(ends[1])};
  const auto memory = StagingBuffer::Create(8192);
  ASSERT_TRUE(memory.ok());
  std::memcpy((*memory)->data(), "staged", 7);
  std::thread sender([&] {
    Message big;
    big.type = MessageType::kStage;
    big.crcs = std::string(3 << 20, 'a');  // more than a socket buffers
    big.copy_ms = 1.5;
    EXPECT_TRUE(left.Send(big, Soon()).ok());
    Message with_memory;
    with_memory.type = MessageType::kRegister;
    with_memory.bytes = 8192;
    with_memory.fd = *(*memory)->Duplicate();
    EXPECT_TRUE(left.Send(with_memory, Soon()).ok());
  });
  const absl::StatusOr<Message> first = right.Receive(Soon());
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->crcs.size(), size_t{3} << 20);
  EXPECT_EQ(first->copy_ms, 1.5);
  absl::StatusOr<Message> second = right.Receive(Soon());
  sender.join();
  ASSERT_TRUE(second.ok()) << second.status();
  const auto mapped = StagingBuffer::Map(std::move(second->fd), second->bytes);
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  EXPECT_STREQ(reinterpret_cast<const char*>((*mapped)->data()), "staged");
}

TEST(ChannelTest, WhatASenderLeftBeforeItDiedIsStillRead) {
  const std::array<int, 2> ends = SocketPair();
  Channel right{UniqueFd(ends[1])};
  {
    Channel left{UniqueFd(ends[0])};
    Message message;
    message.step = 7;
    ASSERT_TRUE(left.Send(message, Soon()).ok());
  }
  Message answer;
  EXPECT_FALSE(right.Send(answer, Soon()).ok());  // nobody there, but the message is
  const absl::StatusOr<Message> read = right.Receive(Soon());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->step, 7);
  EXPECT_TRUE(absl::IsUnavailable(right.Receive(Soon()).status()));
}

TEST(ChannelTest, GarbageIsRefused) {
  const std::string body = "{\"type\":1}";
  const uint32_t crc = Crc32c(body.data(), static_cast<int64_t>(body.size()));
  const auto frame = [](uint32_t magic, uint32_t length, uint32_t sum, const std::string& text) {
    std::string out(12, '\0');
    std::memcpy(out.data(), &magic, 4);
    std::memcpy(out.data() + 4, &length, 4);
    std::memcpy(out.data() + 8, &sum, 4);
    return out + text;
  };
  constexpr uint32_t kMagic = 0x4b434f41;
  const auto send = [](const std::string& bytes) {
    const std::array<int, 2> ends = SocketPair();
    Channel channel{UniqueFd(ends[1])};
    EXPECT_EQ(write(ends[0], bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    close(ends[0]);
    return channel.Receive(Soon()).status();
  };
  EXPECT_TRUE(send(frame(kMagic, 10, crc, body)).ok());
  EXPECT_TRUE(absl::IsDataLoss(send(frame(kMagic + 1, 10, crc, body))));
  EXPECT_TRUE(absl::IsDataLoss(send(frame(kMagic, kMaxMessageBytes + 1, crc, body))));
  EXPECT_TRUE(absl::IsDataLoss(send(frame(kMagic, 10, crc + 1, body))));
  EXPECT_TRUE(absl::IsUnavailable(send(frame(kMagic, 11, crc, body))));  // never completed
  for (const std::string bad : {"{\"type\":99}", "{\"type\":1,\"step\":-4}",
                                "{\"type\":1,\"ok\":3}", "[]", "{\"type\":3}"}) {
    const uint32_t sum = Crc32c(bad.data(), static_cast<int64_t>(bad.size()));
    const auto length = static_cast<uint32_t>(bad.size());
    EXPECT_TRUE(absl::IsDataLoss(send(frame(kMagic, length, sum, bad)))) << bad;
  }
}

TEST(StagingBufferTest, MemoryThatCouldShrinkIsRefused) {
  UniqueFd fd(memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(fd.get(), 4096), 0);
  EXPECT_TRUE(absl::IsInvalidArgument(StagingBuffer::Map(std::move(fd), 4096).status()));
  const auto sealed = StagingBuffer::Create(4096);
  ASSERT_TRUE(sealed.ok());
  EXPECT_FALSE(StagingBuffer::Map(*(*sealed)->Duplicate(), 8192).ok());
  EXPECT_TRUE(StagingBuffer::Map(*(*sealed)->Duplicate(), 4096).ok());
}

TEST(SocketTest, ADirectoryOpenToOthersIsRefused) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/s/sock";
  ASSERT_TRUE(ListenOn(path).ok());
  ASSERT_EQ(chmod((directory.path() + "/s").c_str(), 0755), 0);
  EXPECT_TRUE(absl::IsPermissionDenied(ListenOn(path).status()));
}

TEST(SocketTest, ALeftOverSocketIsReplacedALiveOneIsNot) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/s/sock";
  { ASSERT_TRUE(ListenOn(path).ok()); }
  ASSERT_TRUE(std::filesystem::exists(path));
  const auto second = ListenOn(path);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_TRUE(absl::IsAlreadyExists(ListenOn(path).status()));
}

TEST(SocketTest, ALongPathIsRefusedAndTheDefaultIsShort) {
  EXPECT_THAT(ListenOn("/tmp/" + std::string(200, 'x') + "/s").status().message(),
              HasSubstr("the limit is 107"));
  EXPECT_LT(DefaultSocketPath("/" + std::string(300, 'x'), 3).size(), 107u);
}

}  // namespace
}  // namespace anyorder::ckpt
