#include "ckpt/protocol.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"

#include "ckpt/staging_buffer.h"
#include "core/base/crc32c.h"
#include "core/base/file_system.h"
#include "core/base/monotonic_clock.h"
#include "tests/ckpt/service_fixture.h"
#include "tests/testing/patience.h"
#include "tests/testing/stranger.h"

namespace anyorder::ckpt {
namespace {

std::array<int, 2> SocketPair() {
  std::array<int, 2> ends{};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  return ends;
}

absl::Time Soon() { return MonotonicNow() + kPatience; }

TEST(ChannelTest, MessagesArriveWholeAndInOrderWithTheirMemory) {
  const std::array<int, 2> ends = SocketPair();
  Channel left{UniqueFd(ends[0])};
  Channel right{UniqueFd(ends[1])};
  const auto memory = StagingBuffer::Create(8192).value();
  std::memcpy(memory->data(), "staged", 7);
  std::thread sender([&] {
    Message big = {"test", 3, Stage{.copy_ms = 1.25}};
    std::get<Stage>(big.body).crcs = std::string(3 << 20, 'a');  // more than a socket buffers
    EXPECT_TRUE(left.Send(big, Soon()).ok());
    const Message memory_message = {"", 0, Register{0, 8192, *memory->Duplicate()}};
    EXPECT_TRUE(left.Send(memory_message, Soon()).ok());
  });
  const Message first = right.Receive(Soon()).value();
  EXPECT_EQ(first.run_id, "test");
  EXPECT_EQ(first.attempt, 3);
  EXPECT_EQ(std::get<Stage>(first.body).crcs.size(), size_t{3} << 20);
  EXPECT_EQ(std::get<Stage>(first.body).copy_ms, 1.25);
  absl::StatusOr<Message> second = right.Receive(Soon());
  sender.join();
  ASSERT_TRUE(second.ok()) << second.status();
  Register& registered = std::get<Register>(second->body);
  const auto mapped = StagingBuffer::Map(std::move(registered.fd), registered.bytes).value();
  EXPECT_STREQ(reinterpret_cast<const char*>(mapped->data()), "staged");
}

TEST(ChannelTest, WhatASenderLeftBeforeItDiedIsStillRead) {
  const std::array<int, 2> ends = SocketPair();
  Channel right{UniqueFd(ends[1])};
  {
    Channel left{UniqueFd(ends[0])};
    ASSERT_TRUE(left.Send({"", 0, Begin{.step = 7}}, Soon()).ok());
  }
  EXPECT_FALSE(right.Send({}, Soon()).ok());  // the peer is gone; its message is still there
  const Message read = right.Receive(Soon()).value();
  EXPECT_EQ(std::get<Begin>(read.body).step, 7);
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
  const auto send = [](const std::string& bytes, uint32_t max_bytes = kMaxMessageBytes) {
    const std::array<int, 2> ends = SocketPair();
    Channel channel(UniqueFd(ends[1]), max_bytes);
    EXPECT_EQ(write(ends[0], bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    close(ends[0]);
    return channel.Receive(Soon()).status();
  };
  EXPECT_TRUE(send(frame(kMagic, 10, crc, body)).ok());
  EXPECT_TRUE(absl::IsDataLoss(send(frame(kMagic + 1, 10, crc, body))));
  EXPECT_TRUE(absl::IsDataLoss(send(frame(kMagic, kMaxMessageBytes + 1, crc, body))));
  EXPECT_TRUE(send(frame(kMagic, 10, crc, body), 10).ok());
  EXPECT_TRUE(absl::IsDataLoss(send(frame(kMagic, 11, crc, ""), 10)));  // before it has come
  EXPECT_TRUE(absl::IsDataLoss(send(frame(kMagic, 10, crc + 1, body))));
  EXPECT_TRUE(absl::IsUnavailable(send(frame(kMagic, 11, crc, body))));  // never completed
  for (const std::string bad :
       {"{\"type\":0}", "{\"type\":12}", "{\"type\":1,\"rank\":-4}", "{\"type\":2,\"ok\":3}", "[]",
        "{\"type\":3}", "{\"type\":8}", "{\"type\":8,\"state\":\"SAVED\"}"}) {
    const uint32_t sum = Crc32c(bad.data(), static_cast<int64_t>(bad.size()));
    const auto length = static_cast<uint32_t>(bad.size());
    EXPECT_TRUE(absl::IsDataLoss(send(frame(kMagic, length, sum, bad)))) << bad;
  }
}

// The wire is read by services and trainers of other builds: numbers and names are fixed.
TEST(MessageTest, EveryKindHasItsNumberAndFields) {
  std::pair<MessageBody, std::string> kinds[] = {
      {Hello{1, 2, 3, 4, 5},
       R"("type":1,"run_id":"r","attempt":6,"rank":1,"world_size":2,"local_world_size":3,"node":4,"num_nodes":5)"},
      {Welcome{{true, ""}}, R"("type":2,"run_id":"r","attempt":6,"ok":true)"},
      {Register{1, 2, {}}, R"("type":3,"run_id":"r","attempt":6,"buffer":1,"bytes":2)"},
      {Registered{{false, "no"}}, R"("type":4,"run_id":"r","attempt":6,"reason":"no")"},
      {Begin{1, 2, 3}, R"("type":5,"run_id":"r","attempt":6,"generation":1,"step":2,"buffer":3)"},
      {Stage{1, 2, 3, 4, "c", "m", "w", 1.5},
       R"("type":6,"run_id":"r","attempt":6,"generation":1,"step":2,"buffer":3,"bytes":4,"crcs":"c","metadata":"m","reason":"w","copy_ms":1.5)"},
      {Staged{{true, ""}}, R"("type":7,"run_id":"r","attempt":6,"ok":true)"},
      {SaveEvent{1, 2, SaveState::kCommitted, "", 3, 1.5},
       R"("type":8,"run_id":"r","attempt":6,"generation":2,"step":1,"state":"COMMITTED","bytes":3,"seconds":1.5)"},
      {BufferFree{1, 2}, R"("type":9,"run_id":"r","attempt":6,"generation":2,"buffer":1)"},
      {Shutdown{true}, R"("type":10,"run_id":"r","attempt":6,"only_if_idle":true)"},
      {ShuttingDown{{true, ""}}, R"("type":11,"run_id":"r","attempt":6,"ok":true)"}};
  for (auto& [body, fields] : kinds) {
    const absl::StatusOr<Message> parsed = ParseMessage("{" + fields + "}");
    ASSERT_TRUE(parsed.ok()) << fields << ": " << parsed.status();
    EXPECT_EQ(SerializeMessage(*parsed), "{" + fields + "}");
    EXPECT_EQ(parsed->body.index(), body.index()) << fields;
    EXPECT_EQ(SerializeMessage({"r", 6, std::move(body)}), "{" + fields + "}");
  }
}

// Inputs that are small to write and expensive to read, if read without care.
TEST(MessageTest, BombsAreRefusedOrReadInLinearTime) {
  EXPECT_FALSE(ParseMessage(std::string(1 << 20, '[')).ok());
  std::string nested = "{\"type\":1,\"x\":";
  for (int i = 0; i < 500'000; ++i) nested += "{\"a\":";
  EXPECT_FALSE(ParseMessage(nested).ok());
  nested = std::string(500'000, '[') + std::string(500'000, ']');
  EXPECT_FALSE(ParseMessage("{\"type\":1,\"x\":" + nested + "}").ok());
  // With a search through all earlier members for each new one, this would take minutes.
  std::string many = "{\"type\":1";
  for (int i = 0; i < 200'000; ++i) absl::StrAppend(&many, ",\"k", i, "\":0");
  EXPECT_TRUE(ParseMessage(many + "}").ok());
}

TEST(ChannelTest, AFloodOfSmallMessagesIsReadInLinearTime) {
  const std::array<int, 2> ends = SocketPair();
  Channel receiver{UniqueFd(ends[1])};
  constexpr int kNumMessages = 200'000;
  std::thread flood([&] {
    Channel sender{UniqueFd(ends[0])};
    for (int i = 0; i < kNumMessages; ++i) ASSERT_TRUE(sender.Send({}, Soon()).ok());
  });
  for (int i = 0; i < kNumMessages; ++i) ASSERT_TRUE(receiver.Receive(Soon()).ok()) << i;
  flood.join();
}

TEST(ChannelTest, DescriptorsThatNoMessageAsksForEndTheConnection) {
  const std::array<int, 2> ends = SocketPair();
  Channel receiver{UniqueFd(ends[1])};
  const UniqueFd sender(ends[0]);
  absl::Status status = absl::DeadlineExceededError("");
  for (int i = 0; i < 1000 && absl::IsDeadlineExceeded(status); ++i) {
    char byte = 'A';  // of a frame's magic
    iovec piece = {&byte, 1};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    msghdr header = {};
    header.msg_iov = &piece;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    *rights = {
        .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    std::memcpy(CMSG_DATA(rights), &ends[0], sizeof(int));
    ASSERT_EQ(sendmsg(sender.get(), &header, 0), 1);
    status = receiver.Receive(MonotonicNow() + absl::Milliseconds(1)).status();
  }
  EXPECT_THAT(status, Says("descriptors that no message asks for"));
}

TEST(StagingBufferTest, MemoryThatCouldShrinkIsRefused) {
  UniqueFd fd(memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(fd.get(), 4096), 0);
  EXPECT_TRUE(absl::IsInvalidArgument(StagingBuffer::Map(std::move(fd), 4096).status()));
  const auto sealed = StagingBuffer::Create(4096).value();
  EXPECT_FALSE(StagingBuffer::Map(*sealed->Duplicate(), 8192).ok());
  EXPECT_TRUE(StagingBuffer::Map(*sealed->Duplicate(), 4096).ok());
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
  const auto second = ListenOn(path).value();
  EXPECT_TRUE(absl::IsAlreadyExists(ListenOn(path).status()));
}

// Of a run directory that any name in /tmp could stand in for.
std::string LongRunDirectory(const TemporaryDirectory& parent) {
  const std::string path = absl::StrCat(parent.path(), "/", std::string(200, 'x'));
  EXPECT_TRUE(std::filesystem::create_directory(path));
  return path;
}

TEST(SocketTest, APathMayBeLongerThanAnAddress) {
  const TemporaryDirectory directory;
  const std::string path = DefaultSocketPath(LongRunDirectory(directory), 3);
  ASSERT_GT(path.size(), sizeof(sockaddr_un::sun_path));
  EXPECT_TRUE(absl::IsUnavailable(ConnectChannel(path).status()));  // not there yet
  auto listener = ListenOn(path);
  ASSERT_TRUE(listener.ok()) << listener.status();
  EXPECT_TRUE(std::filesystem::is_socket(path));
  EXPECT_TRUE(ConnectChannel(path).ok());
  EXPECT_TRUE(AcceptChannel(*listener).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(ListenOn(path).status()));
  EXPECT_THAT(ListenOn(absl::StrCat(ParentPath(path), "/", std::string(200, 's'))).status(),
              Says("which no address holds"));
}

TEST(SocketTest, AStrangerWhoTakesNamesInTmpIsInNobodysWay) {
  ANYORDER_NEEDS_STRANGER();
  const TemporaryDirectory directory;
  const std::string run = LongRunDirectory(directory);
  const std::string taken = absl::StrCat("/tmp/anyorder-", geteuid());
  const bool is_new = AsStranger([&] { return mkdir(taken.c_str(), 0777) == 0; });
  const auto listener = ListenOn(DefaultSocketPath(run, 0));
  EXPECT_TRUE(listener.ok()) << listener.status();
  EXPECT_TRUE(ConnectChannel(DefaultSocketPath(run, 0)).ok());
  if (is_new) std::filesystem::remove(taken);
}

TEST(SocketTest, AStrangerNeitherReachesASocketNorStandsInForOne) {
  ANYORDER_NEEDS_STRANGER();
  const TemporaryDirectory directory;
  ASSERT_EQ(chmod(directory.path().c_str(), 0777), 0);
  const std::string path = directory.path() + "/s/sock";
  auto listener = ListenOn(path);
  ASSERT_TRUE(listener.ok()) << listener.status();
  const auto connects = [&path] { return ConnectChannel(path).ok(); };
  EXPECT_FALSE(AsStranger(connects));
  // Not even where the directory lets him in.
  std::filesystem::permissions(ParentPath(path), std::filesystem::perms::all);
  std::filesystem::permissions(path, std::filesystem::perms::all);
  AsStranger(connects);
  EXPECT_THAT(AcceptChannel(*listener).status(), Says("another user"));

  const std::string bait = directory.path() + "/bait";
  const UniqueFd fake(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_TRUE(AsStranger([&] {
    sockaddr_un name{AF_UNIX, {}};
    std::memcpy(name.sun_path, bait.c_str(), bait.size());
    return bind(fake.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) == 0 &&
           listen(fake.get(), 1) == 0;
  }));
  EXPECT_TRUE(absl::IsPermissionDenied(ConnectChannel(bait).status()));
  // His directory is no place for ours.
  ASSERT_TRUE(AsStranger([&] { return mkdir((bait + ".d").c_str(), 0700) == 0; }));
  EXPECT_TRUE(absl::IsPermissionDenied(ListenOn(bait + ".d/sock").status()));
}

}  // namespace
}  // namespace anyorder::ckpt
