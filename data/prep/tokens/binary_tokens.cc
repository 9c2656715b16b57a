// The .bin files of llm.c, which have a header, and of nanoGPT, which have none. Documents end at
// the end-of-document id alone.

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "data/prep/tokens/token_readers.h"

namespace anyorder::data {
namespace {

// The header of llm.c is 256 int32: magic number, version, number of tokens.
constexpr uint64_t kLlmCHeaderBytes = 256 * 4;

struct LlmCKind {
  uint64_t magic;
  uint64_t version;
  uint64_t token_bytes;  // 0: the header's fourth number
};
constexpr LlmCKind kLlmCKinds[] = {
    {20240520, 1, 2},   // GPT-2's vocabulary
    {20240801, 7, 4},   // Llama 3's
    {278895051, 1, 0},  // NeMo's files after its example
};

const LlmCKind* FindLlmC(uint64_t magic) {
  const auto* found = std::find_if(std::begin(kLlmCKinds), std::end(kLlmCKinds),
                                   [&](const LlmCKind& kind) { return kind.magic == magic; });
  return found == std::end(kLlmCKinds) ? nullptr : found;
}

class FlatTokens : public TokenFile {
 public:
  FlatTokens(RangeFile file, uint64_t offset, uint64_t count, IntegerType type,
             const TokenOptions& options)
      : file_(std::move(file)),
        options_(options),
        run_(file_, type, options_),
        type_(type),
        offset_(offset),
        left_(count) {}

  absl::StatusOr<bool> Next(TokenPiece& piece) override {
    piece.ids.clear();
    piece.ends_document = false;
    if (left_ == 0) return false;
    const uint64_t take = std::min(kMostPieceTokens, left_);
    RETURN_IF_ERROR(run_.Append(offset_, take, piece.ids));
    offset_ += take * type_.bytes;
    left_ -= take;
    return true;
  }

 private:
  const RangeFile file_;
  const TokenOptions options_;
  IntegerRun run_;
  const IntegerType type_;
  uint64_t offset_;
  uint64_t left_;
};

}  // namespace

bool IsLlmC(absl::string_view start) {
  return start.size() >= 4 && FindLlmC(ReadLittle(start, 0, 4)) != nullptr;
}

TokenFileOrStatus OpenLlmC(RangeFile file, const TokenOptions& options) {
  const std::string& path = file.path();
  if (file.size() < kLlmCHeaderBytes) {
    return BadTokenFile(path, "it is truncated: llm.c's header has ", kLlmCHeaderBytes,
                        " bytes, the file ", file.size(), "; fetch it again");
  }
  std::string header;
  RETURN_IF_ERROR(file.Read(0, kLlmCHeaderBytes, header));
  const LlmCKind& kind = *FindLlmC(ReadLittle(header, 0, 4));
  const uint64_t version = ReadLittle(header, 4, 4);
  const uint64_t count = ReadLittle(header, 8, 4);
  const uint64_t bytes = kind.token_bytes > 0 ? kind.token_bytes : ReadLittle(header, 12, 4);
  if (version != kind.version) {
    return BadTokenFile(path, "version ", version, " of llm.c's header with magic ", kind.magic,
                        " is not known, only ", kind.version, "; write the file again");
  }
  if (bytes != 2 && bytes != 4) {
    return BadTokenFile(path, "its header says ", bytes,
                        " bytes a token, which is neither 2 nor 4; write the file again");
  }
  if (file.size() - kLlmCHeaderBytes != count * bytes) {
    return BadTokenFile(path, "its header says ", count, " tokens of ", bytes, " bytes, but ",
                        file.size() - kLlmCHeaderBytes, " bytes follow; fetch it again");
  }
  return std::make_unique<FlatTokens>(std::move(file), kLlmCHeaderBytes, count,
                                      IntegerType{bytes, false}, options);
}

TokenFileOrStatus OpenBareTokens(RangeFile file, const TokenOptions& options) {
  constexpr IntegerType kUint16{2, false};
  if (file.size() % kUint16.bytes != 0) {
    return BadTokenFile(file.path(), "it has ", file.size(),
                        " bytes, an odd number, and no header that is known: bare uint16 cannot be "
                        "so; fetch it again, or store the ids as .npy");
  }
  const uint64_t count = file.size() / kUint16.bytes;
  return std::make_unique<FlatTokens>(std::move(file), 0, count, kUint16, options);
}

}  // namespace anyorder::data
