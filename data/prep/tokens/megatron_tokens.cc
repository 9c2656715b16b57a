// Megatron's indexed dataset, version 1. The .idx holds a header of 34 bytes, the tokens and the
// first byte of every sequence, and the first sequence of every document; the .bin has the tokens.
// A sequence becomes a sentence.

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "data/prep/tokens/token_readers.h"

namespace anyorder::data {
namespace {

constexpr uint64_t kIndexHeaderBytes = 34;
constexpr uint64_t kEntryBytes = 4 + 8;  // of a sequence: its length and where it begins

constexpr uint64_t kEntriesAtOnce = 8192;

struct MegatronIndex {
  IntegerType type;
  uint64_t num_sequences = 0;
  uint64_t num_bounds = 0;  // documents + 1
};

// Megatron's numbers for the types of tokens; 6 and 7 are floating-point.
bool FindType(uint64_t code, IntegerType& type) {
  constexpr IntegerType kTypes[] = {{1, false}, {1, true}, {2, true}, {4, true}, {8, true}};
  if (code == 8) type = {2, false};
  if (code >= 1 && code <= 5) type = kTypes[code - 1];
  return type.bytes > 0;
}

absl::StatusOr<MegatronIndex> ParseIndex(const RangeFile& file) {
  const std::string& path = file.path();
  std::string header;
  RETURN_IF_ERROR(file.Read(0, std::min<uint64_t>(file.size(), kIndexHeaderBytes), header));
  if (!header.starts_with(std::string(kMegatronMagic)))
    return BadTokenFile(path, "it does not begin as Megatron's .idx files do; make it again");
  if (header.size() < kIndexHeaderBytes)
    return BadTokenFile(path, "it is truncated within its header; fetch it again");
  if (const uint64_t version = ReadLittle(header, 9, 8); version != 1)
    return BadTokenFile(path, "version ", version, " of Megatron's index is not known, only 1");
  MegatronIndex index;
  if (const uint64_t code = ReadLittle(header, 17, 1); !FindType(code, index.type)) {
    return BadTokenFile(path, "type ", code,
                        " of its tokens is no integer; make it again with integer ids");
  }
  index.num_sequences = ReadLittle(header, 18, 8);
  index.num_bounds = ReadLittle(header, 26, 8);
  const uint64_t room = file.size() - kIndexHeaderBytes;
  const bool fits = index.num_sequences <= room / kEntryBytes &&
                    index.num_bounds <= (room - index.num_sequences * kEntryBytes) / 8;
  if (!fits) {
    return BadTokenFile(path, "it is truncated: it names ", index.num_sequences, " sequences and ",
                        index.num_bounds, " bounds of documents, but has ", file.size(),
                        " bytes; fetch it again");
  }
  return index;
}

// The bounds of documents, in order.
absl::StatusOr<std::vector<uint64_t>> ReadBounds(const RangeFile& idx, const MegatronIndex& index) {
  std::string bytes;
  const uint64_t offset = kIndexHeaderBytes + index.num_sequences * kEntryBytes;
  RETURN_IF_ERROR(idx.Read(offset, index.num_bounds * 8, bytes));
  std::vector<uint64_t> bounds;
  for (uint64_t i = 0; i < index.num_bounds; ++i) {
    const uint64_t least = i == 0 ? 0 : bounds.back();
    bounds.push_back(ReadLittle(bytes, 8 * i, 8));
    if (bounds[i] >= least && bounds[i] <= index.num_sequences) continue;
    return BadTokenFile(idx.path(), "bound ", i, " of its documents is ", bounds[i], ", not from ",
                        least, " to ", index.num_sequences, "; make the index again");
  }
  return bounds;
}

}  // namespace

absl::Status ReadMegatron(const RangeFile& idx, const TokenOptions& options, TakeTokens take) {
  ASSIGN_OR_RETURN(const MegatronIndex index, ParseIndex(idx));
  const std::string stem = idx.path().substr(0, idx.path().size() - 4);  // without .idx
  const absl::StatusOr<RangeFile> bin = RangeFile::Open(stem + ".bin");
  if (absl::IsNotFound(bin.status())) {
    return BadTokenFile(idx.path(), "it is an index, but the tokens '", stem,
                        ".bin' are missing; put both files into one directory");
  }
  RETURN_IF_ERROR(bin.status());
  ASSIGN_OR_RETURN(const std::vector<uint64_t> bounds, ReadBounds(idx, index));
  IntegerRuns runs(*bin, index.type, options, take);
  auto bound = bounds.begin();
  std::string lengths, offsets;  // of a block of kEntriesAtOnce sequences
  for (uint64_t i = 0; i < index.num_sequences; ++i) {
    const uint64_t in_block = i % kEntriesAtOnce;
    if (in_block == 0) {
      const uint64_t count = std::min(kEntriesAtOnce, index.num_sequences - i);
      const uint64_t first_offset = kIndexHeaderBytes + 4 * index.num_sequences;
      RETURN_IF_ERROR(idx.Read(kIndexHeaderBytes + 4 * i, 4 * count, lengths));
      RETURN_IF_ERROR(idx.Read(first_offset + 8 * i, 8 * count, offsets));
    }
    const uint64_t length = ReadLittle(lengths, 4 * in_block, 4);
    const uint64_t offset = ReadLittle(offsets, 8 * in_block, 8);
    const bool fits = length <= std::numeric_limits<int32_t>::max() && offset <= bin->size() &&
                      length <= (bin->size() - offset) / index.type.bytes;
    if (!fits) {
      return BadTokenFile(idx.path(), "sequence ", i, " has ", length, " tokens from byte ", offset,
                          " on, but '", bin->path(), "' has ", bin->size(),
                          " bytes; fetch both files again");
    }
    while (bound != bounds.end() && *bound <= i) ++bound;
    RETURN_IF_ERROR(runs.Pass(offset, length, /*ends_sentence=*/true,
                              /*ends_document=*/bound != bounds.end() && *bound == i + 1));
  }
  return absl::OkStatus();
}

}  // namespace anyorder::data
