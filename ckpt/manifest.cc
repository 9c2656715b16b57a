#include "ckpt/manifest.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "ckpt/chunk_sums.h"
#include "ckpt/json_values.h"
#include "core/base/counted.h"
#include "core/base/status.h"

namespace anyorder::ckpt {
namespace {

constexpr char kManifestFormat[] = "anyorder-checkpoint";
constexpr char kVoteFormat[] = "anyorder-vote";
constexpr int64_t kFormatVersion = 1;
constexpr char kRangePrefix[] = "range.";
constexpr int64_t kMaxRanks = 1 << 20;
constexpr int64_t kMaxFileBytes = int64_t{1}
                                  << 60;  // sums of sizes and offsets stay far from overflow

void VisitIdentity(auto& id, auto&& visit) {
  visit("run_id", id.run_id);
  visit("attempt", id.attempt);
  visit("generation", id.generation);
  visit("step", id.step);
  visit("world_size", id.world_size);
  visit("num_nodes", id.num_nodes);
}

void VisitSegment(auto& segment, auto&& visit) {
  visit("begin", segment.begin);
  visit("end", segment.end);
  visit("file", segment.file);
  visit("offset", segment.offset);
}

Json IdentityToJson(const char* format, const SaveIdentity& id) {
  Json json = {{"format", format}, {"version", kFormatVersion}};
  VisitIdentity(id, MemberWriter(json));
  json["chunk_bytes"] = kCrcChunkBytes;
  return json;
}

absl::StatusOr<SaveIdentity> IdentityFromJson(const char* format, const ParsedJson& json) {
  ASSIGN_OR_RETURN(const std::string found, GetMember<std::string>(json, "format"));
  ASSIGN_OR_RETURN(const int64_t version, GetMember<int64_t>(json, "version"));
  ASSIGN_OR_RETURN(const int64_t chunk_bytes, GetMember<int64_t>(json, "chunk_bytes"));
  if (found != format || version != kFormatVersion || chunk_bytes != kCrcChunkBytes) {
    return DataLoss("is '", found, "' version ", version, " with chunks of ", chunk_bytes,
                    " bytes; this program reads '", format, "' version ", kFormatVersion);
  }
  SaveIdentity id;
  StrictReader reader(json);
  VisitIdentity(id, reader);
  RETURN_IF_ERROR(reader.status());
  if (id.world_size < 1 || id.world_size > kMaxRanks || id.num_nodes < 1 ||
      id.num_nodes > id.world_size) {
    return DataLoss("was written by ", Counted(id.world_size, "rank"), " on ",
                    Counted(id.num_nodes, "node"), ": invalid world size");
  }
  return id;
}

Json FileToJson(const FileRecord& file) {
  return {{"name", file.name}, {"bytes", file.bytes}, {"crc32c", CrcsToHex(file.crcs)}};
}

absl::StatusOr<FileRecord> FileFromJson(const ParsedJson& json) {
  FileRecord file;
  ASSIGN_OR_RETURN(file.name, GetMember<std::string>(json, "name"));
  ASSIGN_OR_RETURN(file.bytes, GetMember<int64_t>(json, "bytes"));
  ASSIGN_OR_RETURN(const std::string hex, GetMember<std::string>(json, "crc32c"));
  ASSIGN_OR_RETURN(file.crcs, CrcsFromHex(hex));
  // A name with a slash could point outside the checkpoint.
  if (file.name.empty() || absl::StrContains(file.name, "/") || file.name.front() == '.')
    return DataLoss("file name '", file.name, "' is not a plain name");
  if (file.bytes > kMaxFileBytes ||
      static_cast<int64_t>(file.crcs.size()) != NumCrcChunks(file.bytes)) {
    return DataLoss("file '", file.name, "' has the wrong number of CRCs");
  }
  return file;
}

absl::StatusOr<TensorPiece> PieceFromJson(const ParsedJson& json) {
  TensorPiece piece;
  ASSIGN_OR_RETURN(piece.name, GetMember<std::string>(json, "name"));
  ASSIGN_OR_RETURN(piece.global_shape, GetMember<Shape>(json, "shape"));
  ASSIGN_OR_RETURN(piece.begin, GetMember<int64_t>(json, "begin"));
  ASSIGN_OR_RETURN(piece.end, GetMember<int64_t>(json, "end"));
  if (piece.begin > piece.end || piece.end > piece.global_shape.num_elements())
    return DataLoss("tensor '", piece.name, "' has a bad range");
  return piece;
}

Json PieceToJson(const TensorPiece& piece) {
  return {{"name", piece.name},
          {"shape", ShapeToJson(piece.global_shape)},
          {"begin", piece.begin},
          {"end", piece.end}};
}

absl::StatusOr<VotedFile> VotedFileFromJson(const ParsedJson& json) {
  VotedFile file;
  ASSIGN_OR_RETURN(file.record, FileFromJson(json));
  ASSIGN_OR_RETURN(file.rank, GetMember<int>(json, "rank"));
  if (file.rank >= kMaxRanks) return DataLoss("rank ", file.rank, " cannot be");
  ASSIGN_OR_RETURN(const ParsedJson* const pieces, GetArray(json, "pieces"));
  for (const ParsedJson& item : *pieces) {
    ASSIGN_OR_RETURN(TensorPiece piece, PieceFromJson(item));
    ASSIGN_OR_RETURN(piece.dtype, GetMember<DType>(item, "dtype"));
    ASSIGN_OR_RETURN(piece.offset, GetMember<int64_t>(item, "offset"));
    file.pieces.push_back(std::move(piece));
  }
  return file;
}

// Segments must tile [0, elements), and lie inside their files.
absl::Status CheckTensor(const std::string& name, const LogicalTensor& tensor,
                         const std::vector<FileRecord>& files) {
  int64_t covered = 0;
  for (const Segment& segment : tensor.segments) {
    if (segment.begin != covered || segment.end <= segment.begin) {
      return DataLoss("tensor '", name, "' has ", segment.begin > covered ? "a gap" : "an overlap",
                      " at element ", std::min(covered, segment.begin));
    }
    covered = segment.end;
    if (covered > tensor.shape.num_elements()) break;  // before it is multiplied
    const int64_t bytes = (segment.end - segment.begin) * SizeOf(tensor.dtype);
    if (segment.file < 0 || segment.file >= static_cast<int>(files.size()) ||
        segment.offset > files[segment.file].bytes - bytes) {
      return DataLoss("tensor '", name, "' points outside the checkpoint's files");
    }
  }
  if (covered != tensor.shape.num_elements()) {
    return DataLoss("tensor '", name, "' ends at element ", covered, " of ",
                    tensor.shape.num_elements());
  }
  return absl::OkStatus();
}

absl::StatusOr<LogicalTensor> TensorFromJson(const ParsedJson& json) {
  LogicalTensor tensor;
  ASSIGN_OR_RETURN(tensor.dtype, GetMember<DType>(json, "dtype"));
  ASSIGN_OR_RETURN(tensor.shape, GetMember<Shape>(json, "shape"));
  ASSIGN_OR_RETURN(const ParsedJson* const segments, GetArray(json, "segments"));
  for (const ParsedJson& item : *segments) {
    StrictReader reader(item);
    VisitSegment(tensor.segments.emplace_back(), reader);
    RETURN_IF_ERROR(reader.status());
  }
  return tensor;
}

absl::Status AddPieces(const VotedFile& file, int index, Manifest* manifest) {
  for (const TensorPiece& piece : file.pieces) {
    const auto [it, is_new] = manifest->tensors.try_emplace(piece.name);
    LogicalTensor& tensor = it->second;
    if (is_new) {
      tensor.dtype = piece.dtype;
      tensor.shape = piece.global_shape;
    }
    if (tensor.dtype != piece.dtype || !(tensor.shape == piece.global_shape)) {
      return DataLoss("tensor '", piece.name, "' is ", Name(tensor.dtype), tensor.shape.ToString(),
                      " on one rank and ", Name(piece.dtype), piece.global_shape.ToString(),
                      " on rank ", file.rank);
    }
    if (piece.begin == piece.end) continue;
    tensor.segments.push_back({piece.begin, piece.end, index, piece.offset});
  }
  return absl::OkStatus();
}

absl::StatusOr<Manifest> ManifestFromJson(const ParsedJson& json) {
  Manifest manifest;
  ASSIGN_OR_RETURN(manifest.id, IdentityFromJson(kManifestFormat, json));
  ASSIGN_OR_RETURN(manifest.metadata, GetMember<std::string>(json, "metadata"));
  ASSIGN_OR_RETURN(manifest.created, GetMember<std::string>(json, "created"));
  ASSIGN_OR_RETURN(const ParsedJson* const files, GetArray(json, "files"));
  for (const ParsedJson& item : *files) {
    ASSIGN_OR_RETURN(FileRecord file, FileFromJson(item));
    manifest.files.push_back(std::move(file));
  }
  ASSIGN_OR_RETURN(const ParsedJson* const tensors, GetObject(json, "tensors"));
  for (const auto& [name, item] : tensors->items()) {
    ASSIGN_OR_RETURN(LogicalTensor tensor, TensorFromJson(item));
    RETURN_IF_ERROR(CheckTensor(name, tensor, manifest.files));
    manifest.tensors[name] = std::move(tensor);
  }
  return manifest;
}

absl::StatusOr<Vote> VoteFromJson(const ParsedJson& json) {
  Vote vote;
  ASSIGN_OR_RETURN(vote.id, IdentityFromJson(kVoteFormat, json));
  ASSIGN_OR_RETURN(vote.node, GetMember<int>(json, "node"));
  if (vote.node >= vote.id.num_nodes) return DataLoss("no node ", vote.node);
  ASSIGN_OR_RETURN(vote.metadata, GetMember<std::string>(json, "metadata"));
  ASSIGN_OR_RETURN(const ParsedJson* const files, GetArray(json, "files"));
  for (const ParsedJson& item : *files) {
    ASSIGN_OR_RETURN(VotedFile file, VotedFileFromJson(item));
    vote.files.push_back(std::move(file));
  }
  return vote;
}

// Every error in one of these files names the file and is DataLoss.
absl::Status BadFile(absl::string_view path, const absl::Status& status) {
  return DataLoss("'", path, "': ", status.message());
}

template <typename T>
absl::StatusOr<T> ParseSealed(absl::string_view text, absl::string_view path,
                              absl::StatusOr<T> (*parse)(const ParsedJson& json)) {
  const absl::StatusOr<ParsedJson> json = OpenSealedJson(text);
  absl::StatusOr<T> parsed = json.ok() ? parse(*json) : json.status();
  if (!parsed.ok()) return BadFile(path, parsed.status());
  return parsed;
}

}  // namespace

int64_t Manifest::num_bytes() const {
  int64_t bytes = 0;
  for (const FileRecord& file : files) bytes += file.bytes;
  return bytes;
}

SafetensorsMetadata MetadataFor(const SaveIdentity& id, int rank,
                                const std::vector<std::string>& keys,
                                const std::vector<TensorPiece>& pieces) {
  // The identity makes files of two generations differ even when their tensors are equal.
  SafetensorsMetadata metadata = {{"anyorder.run_id", id.run_id},
                                  {"anyorder.generation", absl::StrCat(id.generation)},
                                  {"anyorder.step", absl::StrCat(id.step)},
                                  {"anyorder.rank", absl::StrCat(rank)},
                                  {"anyorder.world_size", absl::StrCat(id.world_size)}};
  for (size_t i = 0; i < keys.size(); ++i)
    metadata[kRangePrefix + keys[i]] = DumpJson(PieceToJson(pieces[i]));
  return metadata;
}

absl::StatusOr<std::vector<TensorPiece>> PiecesOf(const SafetensorsHeader& header,
                                                  absl::string_view path) {
  std::vector<TensorPiece> pieces;
  for (const SafetensorsTensor& tensor : header.tensors) {
    const auto range = header.metadata.find(kRangePrefix + tensor.entry.name);
    if (range == header.metadata.end())
      return DataLoss("'", path, "': tensor '", tensor.entry.name, "' has no range");
    const absl::StatusOr<ParsedJson> json = ParseJsonObject(range->second);
    if (!json.ok()) return BadFile(path, json.status());
    absl::StatusOr<TensorPiece> piece = PieceFromJson(*json);
    if (!piece.ok()) return BadFile(path, piece.status());
    if (piece->end - piece->begin != tensor.entry.shape.num_elements()) {
      return DataLoss("'", path, "': tensor '", tensor.entry.name,
                      "' and its range differ in size");
    }
    piece->dtype = tensor.entry.dtype;
    piece->offset = tensor.offset;
    pieces.push_back(*std::move(piece));
  }
  return pieces;
}

absl::StatusOr<Manifest> MergeVotes(const std::vector<Vote>& votes) {
  if (votes.empty()) return absl::DataLossError("no votes");
  Manifest manifest;
  manifest.id = votes.front().id;
  manifest.created = absl::FormatTime(absl::RFC3339_full, absl::Now(), absl::UTCTimeZone());
  std::set<int> nodes;
  std::map<int, const VotedFile*>
      ranks;  // in rank order, so that the manifest does not depend on the nodes
  for (const Vote& vote : votes) {
    if (!(vote.id == manifest.id) || !nodes.insert(vote.node).second)
      return DataLoss("the vote of node ", vote.node, " belongs to another save");
    if (manifest.metadata.empty()) manifest.metadata = vote.metadata;
    if (!vote.metadata.empty() && vote.metadata != manifest.metadata)
      return DataLoss("node ", vote.node, " gives other metadata than the first node");
    for (const VotedFile& file : vote.files) {
      if (!ranks.try_emplace(file.rank, &file).second)
        return DataLoss("two nodes voted for rank ", file.rank);
    }
  }
  if (static_cast<int>(nodes.size()) != manifest.id.num_nodes ||
      static_cast<int>(ranks.size()) != manifest.id.world_size || ranks.begin()->first != 0 ||
      ranks.rbegin()->first != manifest.id.world_size - 1) {
    return DataLoss("votes of ", nodes.size(), " of ", manifest.id.num_nodes, " nodes hold ",
                    ranks.size(), " of ", manifest.id.world_size, " ranks");
  }
  for (const auto& [rank, file] : ranks) {
    const int index = static_cast<int>(manifest.files.size());
    manifest.files.push_back(file->record);
    RETURN_IF_ERROR(AddPieces(*file, index, &manifest));
  }
  for (auto& [name, tensor] : manifest.tensors) {
    std::sort(tensor.segments.begin(), tensor.segments.end(),
              [](const Segment& a, const Segment& b) { return a.begin < b.begin; });
    RETURN_IF_ERROR(CheckTensor(name, tensor, manifest.files));
  }
  return manifest;
}

std::string SerializeVote(const Vote& vote) {
  Json json = IdentityToJson(kVoteFormat, vote.id);
  json["node"] = vote.node;
  json["metadata"] = vote.metadata;
  json["files"] = Json::array();
  for (const VotedFile& file : vote.files) {
    Json item = FileToJson(file.record);
    item["rank"] = file.rank;
    item["pieces"] = Json::array();
    for (const TensorPiece& piece : file.pieces) {
      item["pieces"].push_back(PieceToJson(piece));
      item["pieces"].back()["dtype"] = std::string(Name(piece.dtype));
      item["pieces"].back()["offset"] = piece.offset;
    }
    json["files"].push_back(std::move(item));
  }
  return SealJson(json);
}

std::string SerializeManifest(const Manifest& manifest) {
  Json json = IdentityToJson(kManifestFormat, manifest.id);
  json["created"] = manifest.created;
  json["metadata"] = manifest.metadata;
  json["files"] = Json::array();
  for (const FileRecord& file : manifest.files) json["files"].push_back(FileToJson(file));
  json["tensors"] = Json::object();
  for (const auto& [name, tensor] : manifest.tensors) {
    Json segments = Json::array();
    for (const Segment& segment : tensor.segments)
      VisitSegment(segment, MemberWriter(segments.emplace_back()));
    json["tensors"][name] = {{"dtype", std::string(Name(tensor.dtype))},
                             {"shape", ShapeToJson(tensor.shape)},
                             {"segments", std::move(segments)}};
  }
  return SealJson(json);
}

absl::StatusOr<Vote> ParseVote(absl::string_view text, absl::string_view path) {
  return ParseSealed(text, path, VoteFromJson);
}

absl::StatusOr<Manifest> ParseManifest(absl::string_view text, absl::string_view path) {
  return ParseSealed(text, path, ManifestFromJson);
}

}  // namespace anyorder::ckpt
