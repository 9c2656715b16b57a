// The .bin files of llm.c, which have a header, and of nanoGPT, which have none. Documents end at
// the end-of-document id alone.

#include <algorithm>
#include <string>

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

absl::Status ReadLlmC(const RangeFile& file, const LlmCKind& kind, const TokenOptions& options,
                      TakeTokens take) {
  const std::string& path = file.path();
  if (file.size() < kLlmCHeaderBytes) {
    return BadTokenFile(path, "it is truncated: llm.c's header has ", kLlmCHeaderBytes,
                        " bytes, the file ", file.size(), "; fetch it again");
  }
  std::string header;
  RETURN_IF_ERROR(file.Read(0, kLlmCHeaderBytes, header));
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
  return IntegerRuns(file, {bytes, false}, options, take)
      .Pass(kLlmCHeaderBytes, count, /*ends_sentence=*/false, /*ends_document=*/false);
}

}  // namespace

absl::Status ReadFlatTokens(const RangeFile& file, const TokenOptions& options, TakeTokens take) {
  std::string start;
  RETURN_IF_ERROR(file.Read(0, std::min<uint64_t>(file.size(), 4), start));
  start.resize(4);
  for (const LlmCKind& kind : kLlmCKinds)
    if (ReadLittle(start, 0, 4) == kind.magic) return ReadLlmC(file, kind, options, take);
  constexpr IntegerType kUint16{2, false};
  if (file.size() % kUint16.bytes != 0) {
    return BadTokenFile(file.path(), "it has ", file.size(),
                        " bytes, an odd number, and no header that is known: bare uint16 cannot be "
                        "so; fetch it again, or store the ids as .npy");
  }
  return IntegerRuns(file, kUint16, options, take)
      .Pass(0, file.size() / kUint16.bytes, /*ends_sentence=*/false, /*ends_document=*/false);
}

}  // namespace anyorder::data
