// What checkpoints consist of: votes, manifests, safetensors headers, a run directory's LEASE, and
// messages between trainers and the checkpoint service.

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "absl/strings/str_cat.h"

#include "ckpt/chunk_sums.h"
#include "ckpt/layout.h"
#include "ckpt/lease.h"
#include "ckpt/manifest.h"
#include "ckpt/protocol.h"
#include "ckpt/rank_file.h"
#include "ckpt/safetensors.h"
#include "core/base/crc32c.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/testing/frame.h"

namespace anyorder::fuzz {
namespace {

// Sealed JSON files (ckpt/json_values.h) without and with the line of their checksum: mutants of
// the text before it are sealed again, because otherwise only the checksum would be tested.
std::string WithoutSeal(const std::string& sealed) {
  return sealed.substr(0, sealed.rfind("\"crc32c\""));
}

std::string WithSeal(absl::string_view body) {
  const uint32_t crc = Crc32c(body.data(), static_cast<int64_t>(body.size()));
  return absl::StrCat(body, "\"crc32c\": \"", absl::Hex(crc, absl::kZeroPad8), "\"}\n");
}

// A save of two ranks on one node with two tensors.
ckpt::Vote SmallVote() {
  ckpt::Vote vote = {.id = {"run", 3, 300000002000, 200, 2, 1}, .metadata = "{\"k\": 1}"};
  for (int rank = 0; rank < 2; ++rank) {
    const float values[40] = {};
    const uint16_t halves[6] = {};
    const int64_t begin = 40 * rank;
    std::vector<ckpt::TensorRange> ranges = {
        {"master", DType::kFloat32, {8, 10}, begin, begin + 40, values}};
    if (rank == 0) ranges.push_back({"half", DType::kBFloat16, {6}, 0, 6, halves});
    const auto plan = ckpt::PlanRankFile(vote.id, rank, ranges);
    ANYORDER_CHECK_OK(plan.status());
    std::vector<uint8_t> file(plan->layout.file_bytes);
    ckpt::VotedFile voted = {.record = {ckpt::RankFileName(rank, 2), plan->layout.file_bytes,
                                        ckpt::CopyRankFile(*plan, ranges, file.data())},
                             .rank = rank,
                             .pieces = plan->pieces};
    for (size_t i = 0; i < voted.pieces.size(); ++i)
      voted.pieces[i].offset = plan->layout.offsets[i];
    vote.files.push_back(voted);
  }
  return vote;
}

std::vector<std::string> VoteSeeds() { return {WithoutSeal(ckpt::SerializeVote(SmallVote()))}; }

// Parsing, and joining what was taken into a manifest.
void UseVote(absl::string_view text) {
  ckpt::ParseVote(text, "v").status().IgnoreError();
  const absl::StatusOr<ckpt::Vote> vote = ckpt::ParseVote(WithSeal(text), "v");
  if (!vote.ok()) return;
  ckpt::MergeVotes({*vote}).status().IgnoreError();
  ckpt::MergeVotes({*vote, SmallVote()}).status().IgnoreError();
}

std::vector<std::string> ManifestSeeds() {
  return {WithoutSeal(ckpt::SerializeManifest(ValueOrDie(ckpt::MergeVotes({SmallVote()}))))};
}

// A reader indexes files and computes offsets from what is taken.
void UseManifest(absl::string_view text) {
  ckpt::ParseManifest(text, "m").status().IgnoreError();
  const absl::StatusOr<ckpt::Manifest> manifest = ckpt::ParseManifest(WithSeal(text), "m");
  if (!manifest.ok()) return;
  ANYORDER_CHECK(manifest->num_bytes() >= 0);
  for (const auto& [name, tensor] : manifest->tensors) {
    int64_t next = 0;
    for (const ckpt::Segment& segment : tensor.segments) {
      ANYORDER_CHECK(segment.file >= 0 && segment.file < std::ssize(manifest->files));
      const int64_t bytes = (segment.end - segment.begin) * SizeOf(tensor.dtype);
      ANYORDER_CHECK(segment.begin == next && segment.end >= segment.begin) << name;
      ANYORDER_CHECK(segment.offset >= 0 &&
                     segment.offset <= manifest->files[segment.file].bytes - bytes)
          << name;
      next = segment.end;
    }
    ANYORDER_CHECK(next == tensor.shape.num_elements()) << name;
  }
}

std::vector<std::string> LeaseSeeds() {
  const ScratchDirectory scratch;
  const auto owner = ckpt::DescribeThisProcess("run", 1, "socket");
  const auto lease =
      ckpt::Lease::Acquire(FileSystem::Posix(), scratch.path(), owner, absl::Seconds(1));
  ANYORDER_CHECK_OK(lease.status());
  return {WithoutSeal(scratch.Load(ckpt::kLeaseName))};
}

void UseLease(absl::string_view text) {
  static const ScratchDirectory scratch;
  for (const std::string& file : {std::string(text), WithSeal(text)}) {
    scratch.Store(ckpt::kLeaseName, file);
    const auto owner = ckpt::ReadLease(FileSystem::Posix(), scratch.path());
    if (!owner.ok()) continue;
    ckpt::IsKnownDead(*owner);
    ANYORDER_CHECK(!owner->ToString().empty());
  }
}

std::vector<std::string> SafetensorsSeeds() {
  const ckpt::SaveIdentity id = {"run", 3, 300000002000, 200, 2, 1};
  const std::vector<ckpt::TensorPiece> pieces = {{"master", DType::kFloat32, {8, 10}, 0, 40, 0}};
  const auto rank_file = ckpt::LayOutSafetensors({{"master", DType::kFloat32, {40}}},
                                                 ckpt::MetadataFor(id, 0, {"master"}, pieces));
  const auto weights = ckpt::LayOutSafetensors(
      {{"a.weight", DType::kBFloat16, {2, 3}}, {"b", DType::kFloat32, {}}}, {{"format", "pt"}});
  std::vector<std::string> seeds;
  for (const auto& layout : {ValueOrDie(rank_file), ValueOrDie(weights)}) {
    std::string file = layout.header;
    // The padding up to 4 KiB would hide the header from mutations.
    const size_t end = file.find_last_not_of(' ') + 1;
    file.resize(end);
    const uint64_t length = end - 8;
    std::memcpy(file.data(), &length, 8);
    seeds.push_back(file + std::string(layout.file_bytes - layout.header.size(), '\0'));
  }
  return seeds;
}

// The tensors lie in the file, whatever the header said.
void UseSafetensorsHeader(absl::string_view file) {
  const auto file_bytes = static_cast<int64_t>(file.size());
  const auto header = ckpt::ParseSafetensorsHeader(file, file_bytes, "f");
  if (!header.ok()) return;
  for (const ckpt::SafetensorsTensor& tensor : header->tensors) {
    const int64_t bytes = tensor.entry.shape.num_elements() * SizeOf(tensor.entry.dtype);
    ANYORDER_CHECK(tensor.offset >= header->header_bytes && tensor.offset <= file_bytes - bytes);
  }
  ckpt::PiecesOf(*header, "f").status().IgnoreError();
}

void UseSafetensors(absl::string_view text) {
  UseSafetensorsHeader(text);
  // Again with a length that fits the JSON, because mutations move its end.
  const size_t end = text.rfind('}');
  if (end == absl::string_view::npos || end < 8) return;
  std::string fitted(text);
  const uint64_t length = end + 1 - 8;
  std::memcpy(fitted.data(), &length, 8);
  UseSafetensorsHeader(fitted);
}

// A socket's buffer takes this much without a reader.
constexpr size_t kMaxSent = 64 << 10;

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

std::vector<std::string> MessageSeeds() {
  const std::string body = ckpt::SerializeMessage(
      {"test", 3,
       ckpt::Stage{300000002000, 200, 0, 123456, "0123456789abcdef", "{\"k\":1}", "", 1.25}});
  std::vector<std::string> seeds = {body, Frame(body) + Frame(body)};
  ckpt::MessageBody others[] = {ckpt::Hello{.world_size = 2}, ckpt::Register{1, 4096, {}},
                                ckpt::Staged{{false, "full"}}, ckpt::SaveEvent(),
                                ckpt::Shutdown{.only_if_idle = true}};
  for (ckpt::MessageBody& other : others)
    seeds.push_back(ckpt::SerializeMessage({"test", 3, std::move(other)}));
  return seeds;
}

// Bodies, and frames as they come from the socket.
void UseMessage(absl::string_view text) {
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

const bool registered[] = {
    Register({"vote", VoteSeeds, UseVote}),
    Register({"manifest", ManifestSeeds, UseManifest}),
    Register({"lease", LeaseSeeds, UseLease}),
    Register({"safetensors", SafetensorsSeeds, UseSafetensors}),
    Register({"message", MessageSeeds, UseMessage}),
};

}  // namespace
}  // namespace anyorder::fuzz
