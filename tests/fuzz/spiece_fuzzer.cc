// The vocabulary of a SentencePiece model.

#include "launcher/huggingface/spiece_file.h"
#include "tests/fuzz/fuzz_target.h"

namespace anyorder::fuzz {
namespace {

// A field of a protobuf message shorter than 128 bytes.
std::string Field(int number, const std::string& bytes) {
  return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size())} + bytes;
}

// By hand: only anyorder-prep links the library that writes such files.
std::vector<std::string> Seeds() {
  std::string model;
  for (const char* text : {"<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>"})
    model += Field(1, Field(1, text) + std::string("\x15\0\0\x80\x3f\x18\x03", 7));
  return {model};
}

void Run(absl::string_view text) {
  const auto pieces = launcher::ParsePieces(text, "m");
  if (pieces.ok()) launcher::CheckXlnetPieces(*pieces, "m").IgnoreError();
}

const bool registered = Register({"spiece", Seeds, Run});

}  // namespace
}  // namespace anyorder::fuzz
