// Megatron's indexed dataset, version 1. The .idx holds a header of 34 bytes, the tokens and the
// first byte of every sequence, and the first sequence of every document; the .bin has the tokens.
// A sequence becomes a sentence.

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
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

class MegatronTokens : public TokenFile {
 public:
  MegatronTokens(RangeFile idx, RangeFile bin, const MegatronIndex& index,
                 const TokenOptions& options)
      : idx_(std::move(idx)),
        bin_(std::move(bin)),
        index_(index),
        options_(options),
        run_(bin_, index.type, options_) {}

  // Reads the bounds of documents and checks that they are in order.
  absl::Status ReadBounds() {
    std::string bytes;
    const uint64_t offset = kIndexHeaderBytes + index_.num_sequences * kEntryBytes;
    RETURN_IF_ERROR(idx_.Read(offset, index_.num_bounds * 8, bytes));
    for (uint64_t i = 0; i < index_.num_bounds; ++i) {
      bounds_.push_back(ReadLittle(bytes, 8 * i, 8));
      const uint64_t least = i == 0 ? 0 : bounds_[i - 1];
      if (bounds_[i] >= least && bounds_[i] <= index_.num_sequences) continue;
      return BadTokenFile(idx_.path(), "bound ", i, " of its documents is ", bounds_[i],
                          ", not from ", least, " to ", index_.num_sequences,
                          "; make the index again");
    }
    return absl::OkStatus();
  }

  absl::StatusOr<bool> Next(TokenPiece& piece) override {
    piece.ids.clear();
    if (done_ == length_) {
      if (sequence_ == index_.num_sequences) return false;
      RETURN_IF_ERROR(BeginSequence());
    }
    const uint64_t take = std::min(kMostPieceTokens, length_ - done_);
    RETURN_IF_ERROR(run_.Append(offset_ + done_ * index_.type.bytes, take, piece.ids));
    done_ += take;
    const bool ends_sequence = done_ == length_;
    piece.ends_sentence = ends_sequence;
    piece.ends_document = ends_sequence && EndsDocument();
    return true;
  }

 private:
  absl::Status BeginSequence() {
    const uint64_t i = sequence_++;
    const uint64_t in_block = i % kEntriesAtOnce;
    if (in_block == 0) {
      const uint64_t count = std::min(kEntriesAtOnce, index_.num_sequences - i);
      const uint64_t offsets = kIndexHeaderBytes + 4 * index_.num_sequences;
      RETURN_IF_ERROR(idx_.Read(kIndexHeaderBytes + 4 * i, 4 * count, lengths_));
      RETURN_IF_ERROR(idx_.Read(offsets + 8 * i, 8 * count, offsets_));
    }
    length_ = ReadLittle(lengths_, 4 * in_block, 4);
    offset_ = ReadLittle(offsets_, 8 * in_block, 8);
    done_ = 0;
    const bool fits = length_ <= std::numeric_limits<int32_t>::max() && offset_ <= bin_.size() &&
                      length_ <= (bin_.size() - offset_) / index_.type.bytes;
    if (fits) return absl::OkStatus();
    return BadTokenFile(idx_.path(), "sequence ", i, " has ", length_, " tokens from byte ",
                        offset_, " on, but '", bin_.path(), "' has ", bin_.size(),
                        " bytes; fetch both files again");
  }

  // Whether the sequence before `sequence_` is the last of a document.
  bool EndsDocument() {
    while (bound_ < bounds_.size() && bounds_[bound_] < sequence_) ++bound_;
    return bound_ < bounds_.size() && bounds_[bound_] == sequence_;
  }

  const RangeFile idx_, bin_;
  const MegatronIndex index_;
  const TokenOptions options_;
  IntegerRun run_;
  std::vector<uint64_t> bounds_;
  uint64_t bound_ = 0;
  uint64_t sequence_ = 0;          // the next one
  std::string lengths_, offsets_;  // of the block of kEntriesAtOnce sequences that it is in
  // Of the one that is being read.
  uint64_t offset_ = 0;
  uint64_t length_ = 0;
  uint64_t done_ = 0;
};

}  // namespace

TokenFileOrStatus OpenMegatron(RangeFile idx, const TokenOptions& options) {
  ASSIGN_OR_RETURN(const MegatronIndex index, ParseIndex(idx));
  const std::string stem = idx.path().substr(0, idx.path().size() - 4);  // without .idx
  absl::StatusOr<RangeFile> bin = RangeFile::Open(stem + ".bin");
  if (absl::IsNotFound(bin.status())) {
    return BadTokenFile(idx.path(), "it is an index, but the tokens '", stem,
                        ".bin' are missing; put both files into one directory");
  }
  RETURN_IF_ERROR(bin.status());
  auto tokens = std::make_unique<MegatronTokens>(std::move(idx), *std::move(bin), index, options);
  RETURN_IF_ERROR(tokens->ReadBounds());
  return tokens;
}

}  // namespace anyorder::data
