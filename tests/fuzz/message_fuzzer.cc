// Messages between trainers and the checkpoint service: bodies, and frames as they come from the
// socket.

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <optional>

#include "ckpt/chunk_sums.h"
#include "ckpt/protocol.h"
#include "core/base/check.h"
#include "core/base/crc32c.h"
#include "tests/ckpt/stage_message.h"
#include "tests/fuzz/fuzz_target.h"

namespace anyorder::fuzz {
namespace {

// A socket's buffer takes this much without a reader.
constexpr size_t kMaxSent = 64 << 10;

std::string Frame(absl::string_view body) {
  std::string frame = "AOCK";
  for (const uint32_t word : {static_cast<uint32_t>(body.size()),
                              Crc32c(body.data(), static_cast<int64_t>(body.size()))}) {
    frame.append(reinterpret_cast<const char*>(&word), 4);
  }
  frame.append(body.data(), body.size());
  return frame;
}

// Receives `sent` as the service would, to its end or the first error; returns the number of
// messages.
int Receive(absl::string_view sent) {
  std::array<int, 2> ends{};
  ANYORDER_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
  ckpt::Channel channel{UniqueFd(ends[1])};
  ANYORDER_CHECK(write(ends[0], sent.data(), sent.size()) == static_cast<ssize_t>(sent.size()));
  close(ends[0]);
  for (int count = 0;; ++count) {
    const auto message = channel.TryReceive();
    if (!message.ok() || !message->has_value()) return count;
  }
}

std::vector<std::string> Seeds() {
  const std::string body = ckpt::SerializeMessage(ckpt::StageMessage());
  std::vector<std::string> seeds = {body, Frame(body) + Frame(body)};
  ckpt::MessageBody others[] = {ckpt::Hello{.world_size = 2}, ckpt::Register{1, 4096, {}},
                                ckpt::Staged{{false, "full"}}, ckpt::SaveEvent(),
                                ckpt::Shutdown{.only_if_idle = true}};
  for (ckpt::MessageBody& other : others)
    seeds.push_back(ckpt::SerializeMessage({"test", 3, std::move(other)}));
  return seeds;
}

void Run(absl::string_view text) {
  const absl::StatusOr<ckpt::Message> message = ckpt::ParseMessage(text);
  if (message.ok()) {
    if (const auto* stage = std::get_if<ckpt::Stage>(&message->body))
      ckpt::CrcsFromHex(stage->crcs).status().IgnoreError();
    ANYORDER_CHECK_OK(ckpt::ParseMessage(ckpt::SerializeMessage(*message)).status());
  }
  if (text.size() > kMaxSent) return;
  Receive(text);
  // A sound frame passes if and only if its body does; a Register needs a descriptor, too, and has
  // none here.
  const bool is_whole = message.ok() && !std::holds_alternative<ckpt::Register>(message->body);
  ANYORDER_CHECK(Receive(Frame(text)) == (is_whole ? 1 : 0));
}

const bool registered = Register({"message", Seeds, Run});

}  // namespace
}  // namespace anyorder::fuzz
