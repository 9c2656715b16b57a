// Ready token ids and the files of other tokenizers, which anyone may have made. Of token files the
// input's first byte chooses the kind.

#include "data/prep/tokens/token_readers.h"
#include "data/prep/vocabulary.h"
#include "tests/data/prep/tokens/token_writers.h"
#include "tests/fuzz/fuzz_target.h"

namespace anyorder::fuzz {
namespace {

constexpr const char* kTokenNames[] = {"ids.npy", "ids.bin", "pair.idx", "ids.jsonl"};
constexpr uint64_t kTokenVocabulary = 100;

std::vector<std::string> TokenSeeds() {
  const std::vector<int64_t> ids = {1, 2, 3, 4, 5, 6};
  return {'\0' + data::AsNumpy("<u2", "(2, 3)", data::Packed(ids, 2)),
          '\0' + data::AsNumpy("<i8", "(6,)", data::Packed(ids, 8), 2),
          '\1' + data::AsLlmC(20240520, 1, 2, ids),
          '\1' + data::AsLlmC(278895051, 1, 4, ids),
          '\1' + data::Packed(ids, 2),
          '\2' + data::AsMegatron({{{1, 2}, {3}}, {{4, 5, 6}}}, 8, 2).idx,
          '\3' + data::AsJsonIds({{1, 2}, {3}}),
          '\3' + data::AsJsonIds({{1, 2}, {3}}, "input_ids")};
}

void UseTokens(absl::string_view input) {
  static const ScratchDirectory& scratch = *new ScratchDirectory();
  if (input.empty()) return;
  const auto* const name = kTokenNames[static_cast<uint8_t>(input[0]) % std::size(kTokenNames)];
  scratch.Store("pair.bin", data::Packed({1, 2, 3, 4, 5, 6}, 2));
  int num_pieces = 0;
  const auto take = [&](const data::TokenPiece& piece) {
    ANYORDER_CHECK(piece.ids.size() <= data::kMostPieceTokens);
    for (const int32_t id : piece.ids)
      ANYORDER_CHECK(id >= 0 && static_cast<uint64_t>(id) < kTokenVocabulary) << id;
    // An index may name the same tokens any number of times.
    return ++num_pieces < 1000 ? absl::OkStatus() : absl::CancelledError();
  };
  data::ReadTokenFile(scratch.Store(name, input.substr(1)),
                      {.vocab_size = kTokenVocabulary, .pad = 9}, take)
      .IgnoreError();
}

std::vector<std::string> TokenizerSeeds() {
  const std::string model = R"({"added_tokens": [{"id": 3, "content": "<|end|>"}], "model":
      {"type": "BPE", "vocab": {"a": 0, "\u0120b": 1}, "merges": []}})";
  const std::string config = R"({"mask_token": {"content": "<m>"}, "eos_token": "<|end|>",
      "added_tokens_decoder": {"6": {"content": "<m>"}}})";
  return {model + '\0' + config, R"({"model": {"vocab": [["<unk>", 0], ["\u2581a", -1.5]]}})",
          R"({"model": {"type": "WordPiece", "vocab": {"a": 0, "##a": 1, "[MASK]": 2}}})"};
}

// tokenizer.json and, behind a NUL, tokenizer_config.json.
void UseTokenizer(absl::string_view input) {
  const size_t end = std::min(input.find('\0'), input.size());
  const std::string config(input.substr(std::min(end + 1, input.size())));
  const auto read =
      data::ParseHuggingFace(std::string(input.substr(0, end)), config, config, "", "t.json");
  if (!read.ok()) return;
  ANYORDER_CHECK(read->size > 0 && read->is_start_piece.size() == read->size);
  for (const auto& [field, member] : data::kVocabIdFields)
    ANYORDER_CHECK(read->ids.*member < static_cast<int64_t>(read->size)) << field;
}

const bool registered[] = {
    Register({"token_files", TokenSeeds, UseTokens}),
    Register({"tokenizer_files", TokenizerSeeds, UseTokenizer}),
};

}  // namespace
}  // namespace anyorder::fuzz
