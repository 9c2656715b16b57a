#include "data/dataset/dataset.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

#include "core/base/check.h"
#include "core/base/digest.h"
#include "core/base/status.h"
#include "data/dataset/mapped_file.h"
#include "data/dataset/shard_format.h"

namespace anyorder::data {

namespace {

// Fills out[i] with bit begin + i.
absl::Status UnpackBits(const CheckedArray& bits, uint64_t begin, uint64_t end, uint8_t* out) {
  const uint64_t first_byte = begin / 8;
  ANYORDER_ASSIGN_OR_RETURN(const uint8_t* const bytes, bits.Bytes(first_byte, BitmapBytes(end)));
  const uint64_t base = first_byte * 8;
  for (uint64_t i = begin; i < end; ++i) *out++ = (bytes[(i - base) / 8] >> (i % 8)) & 1;
  return absl::OkStatus();
}

// Fills out[i] with element begin + i and `largest` with the largest of them; memcpy because
// dataset.json may give an unaligned offset.
template <typename Element>
absl::Status Widen(const CheckedArray& array, uint64_t begin, uint64_t end, int32_t* out,
                   uint64_t* largest) {
  ANYORDER_ASSIGN_OR_RETURN(const uint8_t* const bytes,
                            array.Bytes(begin * sizeof(Element), end * sizeof(Element)));
  Element most = 0;
  for (uint64_t i = 0; i < end - begin; ++i) {
    Element value;
    std::memcpy(&value, bytes + i * sizeof(Element), sizeof(Element));
    most = std::max(most, value);
    out[i] = static_cast<int32_t>(value);
  }
  *largest = most;
  return absl::OkStatus();
}

absl::Status CheckDigest(const std::string& path, const std::string& expected) {
  const absl::StatusOr<Digest128> found = DigestOfFile(path);
  if (absl::IsNotFound(found.status())) {
    return DataLoss("'", path,
                    "' is missing but dataset.json lists it; restore it or prepare the data again");
  }
  ANYORDER_ASSIGN_OR_RETURN(const Digest128 digest, found);
  if (digest.Hex() == expected) return absl::OkStatus();
  return DataLoss("'", path, "' has digest ", digest.Hex(), " but dataset.json says ", expected,
                  "; restore it or prepare the data again");
}

// Places in File::arrays, of a shard and of lanes.h5.
enum ShardArray : size_t { kTokenIds, kSentenceBits, kDocumentBits, kWordBits };
enum LaneArray : size_t { kForwardCells, kBackwardCells };

}  // namespace

struct Dataset::File {
  const DatasetFile& entry;
  MappedFile mapped;
  std::vector<CheckedArray> arrays = {};

  absl::Status Verify() const {
    for (const CheckedArray& array : arrays)
      ANYORDER_RETURN_IF_ERROR(array.Bytes(0, array.size_bytes()).status());
    return CheckDigest(mapped.path(), entry.digest);
  }
};

Dataset::Dataset(std::string directory, DatasetIndex index)
    : directory_(std::move(directory)), index_(std::move(index)) {}

Dataset::~Dataset() = default;

absl::StatusOr<std::unique_ptr<Dataset>> Dataset::Open(const std::string& directory,
                                                       const DatasetOptions& options) {
  ANYORDER_ASSIGN_OR_RETURN(DatasetIndex index, ReadDatasetIndex(directory));
  std::unique_ptr<Dataset> dataset(new Dataset(directory, std::move(index)));
  const DatasetIndex& entries = dataset->index_;
  ANYORDER_RETURN_IF_ERROR(
      CheckDigest(absl::StrCat(directory, "/", entries.tokenizer.file), entries.tokenizer_digest));
  for (const DatasetFile& shard : entries.shards) {
    const uint64_t bitmap_bytes = BitmapBytes(shard.num_tokens);
    ANYORDER_ASSIGN_OR_RETURN(
        dataset->shards_.emplace_back(),
        dataset->OpenFile(shard, {{kTokens, shard.num_tokens * entries.token_bytes},
                                  {kSentenceFlags, bitmap_bytes},
                                  {kDocumentStarts, bitmap_bytes},
                                  {kWordStarts, bitmap_bytes}}));
  }
  const uint64_t table_bytes = 2 * sizeof(uint64_t) * entries.num_lane_cells;
  ANYORDER_ASSIGN_OR_RETURN(dataset->lanes_,
                            dataset->OpenFile(entries.lanes, {{kLanesForward, table_bytes},
                                                              {kLanesBackward, table_bytes}}));
  if (entries.examples) {
    ANYORDER_ASSIGN_OR_RETURN(dataset->examples_,
                              StoredExamples::Open(directory, entries, *dataset));
  }
  if (options.verify) ANYORDER_RETURN_IF_ERROR(dataset->Verify());
  return dataset;
}

absl::StatusOr<std::unique_ptr<Dataset::File>> Dataset::OpenFile(
    const DatasetFile& entry,
    std::initializer_list<std::pair<const char*, uint64_t>> arrays) const {
  const std::string path = absl::StrCat(directory_, "/", entry.file);
  ANYORDER_ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::Open(path, entry.bytes));
  auto file = std::make_unique<File>(File{.entry = entry, .mapped = std::move(mapped)});
  std::vector<ByteRange> guarded;
  for (const auto& [name, bytes] : arrays) {
    ANYORDER_ASSIGN_OR_RETURN(CheckedArray array,
                              CheckedArray::Open(file->mapped, entry.arrays, name, bytes));
    guarded.push_back(array.range());
    file->arrays.push_back(std::move(array));
  }
  // What no chunk's checksum guards: HDF5's own structures, which only other tools parse, the
  // attributes, which differ in any other file, and the checksums.
  const std::string found = DigestOutside(file->mapped.bytes(), std::move(guarded)).Hex();
  if (found == entry.metadata_digest) return file;
  return DataLoss(
      "'", path, "' is damaged, or a file of another dataset: its metadata have digest ", found,
      " but dataset.json says ", entry.metadata_digest, "; restore it or prepare the data again");
}

VocabularyIds Dataset::vocabulary() const {
  const VocabIds& ids = index_.vocab_ids;
  return {ids.sep, ids.cls, ids.mask, static_cast<int64_t>(index_.vocab_size), ids.bos, ids.eos};
}

template <typename Read>
absl::Status Dataset::ForEachShard(int64_t begin, int64_t end, Read read) const {
  ANYORDER_CHECK(0 <= begin && begin <= end && end <= num_tokens())
      << begin << ".." << end << " of " << num_tokens();
  const auto shard_tokens = static_cast<int64_t>(index_.shard_tokens);
  for (int64_t at = begin; at < end;) {
    const int64_t shard_begin = at / shard_tokens * shard_tokens;
    const int64_t part_end = std::min(end, shard_begin + shard_tokens);
    ANYORDER_RETURN_IF_ERROR(
        read(*shards_[at / shard_tokens], at - shard_begin, part_end - shard_begin, at - begin));
    at = part_end;
  }
  return absl::OkStatus();
}

absl::Status Dataset::ReadTokens(int64_t begin, int64_t end, int32_t* out) const {
  return ForEachShard(begin, end, [&](const File& shard, int64_t from, int64_t to, int64_t offset) {
    uint64_t largest = 0;
    ANYORDER_RETURN_IF_ERROR(
        index_.token_bytes == 2
            ? Widen<uint16_t>(shard.arrays[kTokenIds], from, to, out + offset, &largest)
            : Widen<uint32_t>(shard.arrays[kTokenIds], from, to, out + offset, &largest));
    if (largest < index_.vocab_size) return absl::OkStatus();
    // An id is a row of the embedding table: one outside would be read from
    // other memory.
    return DataLoss("'", shard.mapped.path(), "' tokens ", from, " to ", to - 1, " hold id ",
                    largest, " but the vocabulary has ", index_.vocab_size,
                    "; prepare the data again");
  });
}

absl::Status Dataset::ReadBits(size_t array, int64_t begin, int64_t end, uint8_t* out) const {
  return ForEachShard(begin, end, [&](const File& shard, int64_t from, int64_t to, int64_t offset) {
    return UnpackBits(shard.arrays[array], from, to, out + offset);
  });
}

absl::Status Dataset::ReadSentenceFlags(int64_t begin, int64_t end, uint8_t* out) const {
  return ReadBits(kSentenceBits, begin, end, out);
}

absl::Status Dataset::ReadWordStarts(int64_t begin, int64_t end, uint8_t* out) const {
  return ReadBits(kWordBits, begin, end, out);
}

absl::Status Dataset::ReadDocumentStarts(int64_t begin, int64_t end, uint8_t* out) const {
  return ReadBits(kDocumentBits, begin, end, out);
}

absl::StatusOr<LaneRange> Dataset::ReadLaneRange(int64_t stream, int64_t num_streams,
                                                 bool backward) const {
  ANYORDER_CHECK(stream >= 0 && stream < num_streams) << stream << " of " << num_streams;
  const auto num_cells = static_cast<int64_t>(index_.num_lane_cells);
  const int64_t first_cell = stream * num_cells / num_streams;
  const int64_t end_cell = (stream + 1) * num_cells / num_streams;
  if (first_cell == end_cell) return LaneRange{};
  const CheckedArray& table = lanes_->arrays[backward ? kBackwardCells : kForwardCells];
  uint64_t first[2];  // {begin, end} of the stream's first cell in the table's own order, and of
                      // its last
  uint64_t last[2];
  for (auto& [cell, row] : {std::pair{first_cell, first}, std::pair{end_cell - 1, last}}) {
    ANYORDER_ASSIGN_OR_RETURN(const uint8_t* const bytes,
                              table.Bytes(cell * sizeof first, (cell + 1) * sizeof first));
    std::memcpy(row, bytes, sizeof first);
  }
  // Cells of the backward table run from the corpus's end, so there the last cell comes first.
  const LaneRange range = {.begin = static_cast<int64_t>(backward ? last[0] : first[0]),
                           .end = static_cast<int64_t>(backward ? first[1] : last[1])};
  if (range.begin < 0 || range.begin > range.end || range.end > num_tokens()) {
    return DataLoss("'", directory_, "/", index_.lanes.file, "' cells ", first_cell, " to ",
                    end_cell - 1, " hold tokens ", range.begin, " to ", range.end, " of ",
                    num_tokens(), "; prepare the data again");
  }
  return range;
}

absl::Status Dataset::Verify() const {
  for (const std::unique_ptr<File>& shard : shards_) ANYORDER_RETURN_IF_ERROR(shard->Verify());
  return lanes_->Verify();
}

}  // namespace anyorder::data
