#include "data/prep/sentencepiece_bridge.h"

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>
#include <utf8proc.h>

#include <algorithm>
#include <unordered_map>

#include "core/base/unicode.h"

namespace anyorder::data {
namespace {

constexpr std::string_view kWordMark = "\xE2\x96\x81";  // U+2581

// Thread sums are added in thread order, so the number of threads is part of the result: it is
// fixed here for every machine.
constexpr char kTrainerThreads[] = "4";

std::string WithoutWordMarks(std::string_view text) {
  std::string out(text);
  for (size_t at = 0; (at = out.find(kWordMark, at)) != out.npos;) out.erase(at, kWordMark.size());
  return out;
}

// What the library says, without its code names, source files and conditions: "Internal:
// ./src/x.cc(580) [a <= b] Message". "" if nothing else is left.
std::string PlainError(const sentencepiece::util::Status& status) {
  const std::string_view text = status.error_message();
  if (text.find(".cc(") == std::string_view::npos) return std::string(text);
  const size_t condition_end = text.rfind(']');
  if (condition_end == std::string_view::npos) return "";
  const size_t begin = text.find_first_not_of(' ', condition_end + 1);
  return begin == std::string_view::npos ? "" : std::string(text.substr(begin));
}

// Unknown words, each of which has a word mark before it, or unknown characters, none of which is a
// word mark.
size_t NumUnknown(std::string_view run) {
  size_t marks = 0;
  size_t characters = 0;
  for (size_t i = 0; i < run.size(); ++i) {
    marks += run.substr(i, kWordMark.size()) == kWordMark ? 1 : 0;
    characters += (static_cast<unsigned char>(run[i]) & 0xC0) != 0x80 ? 1 : 0;
  }
  return marks > 0 ? marks : characters;
}

class SentenceSource : public sentencepiece::SentenceIterator {
 public:
  explicit SentenceSource(const std::vector<std::string>& sentences) : sentences_(sentences) {}
  bool done() const override { return next_ == sentences_.size(); }
  void Next() override { ++next_; }
  const std::string& value() const override { return sentences_[next_]; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  const std::vector<std::string>& sentences_;
  size_t next_ = 0;
};

}  // namespace

// More than one character, the last a comma, the one before it a digit.
bool EndsInDigitComma(std::string_view piece) {
  if (piece.size() < 2 || piece.back() != ',') return false;
  piece.remove_suffix(1);
  size_t start = piece.size() - 1;
  while (start > 0 && (static_cast<unsigned char>(piece[start]) & 0xC0) == 0x80) --start;
  const auto last = static_cast<utf8proc_int32_t>(NextCodePoint(piece, start));
  return utf8proc_category(last) == UTF8PROC_CATEGORY_ND;
}

struct SentencePieceBridge::Impl {
  sentencepiece::SentencePieceProcessor processor;
  // Kept between calls, so that its many small messages are allocated once (the library clears it).
  sentencepiece::ImmutableSentencePieceText found;
  int32_t unknown_id = 0;
  // What the digit-comma rule makes of each piece it applies to.
  std::unordered_map<int32_t, std::vector<int32_t>> digit_comma;
  std::vector<bool> has_digit_comma;  // indexed by id; faster than the map for the common "no"

  std::string Append(int32_t id, std::string_view piece, Segmentation how,
                     std::vector<int32_t>& ids) const;
  std::string Split(std::string_view piece, std::vector<int32_t>& ids) const;
  void AppendSplitBytes(std::string_view text, PieceBytes whole, const std::vector<int32_t>& ids,
                        std::vector<PieceBytes>& bytes) const;
};

// Appends what the library's `id` becomes. Unknown text keeps its spelling, to which the
// digit-comma rule applies as to any piece.
std::string SentencePieceBridge::Impl::Append(int32_t id, std::string_view piece, Segmentation how,
                                              std::vector<int32_t>& ids) const {
  if (how == Segmentation::kDigitComma) {
    if (id == unknown_id && EndsInDigitComma(piece)) return Split(piece, ids);
    if (has_digit_comma[static_cast<size_t>(id)]) {
      const std::vector<int32_t>& split = digit_comma.at(id);
      ids.insert(ids.end(), split.begin(), split.end());
      return "";
    }
  }
  const bool is_split = how == Segmentation::kSplitUnknown && id == unknown_id;
  ids.insert(ids.end(), is_split ? NumUnknown(piece) : 1, id);
  return "";
}

// Appends the ids of `piece` under the digit-comma rule, which must apply to it.
std::string SentencePieceBridge::Impl::Split(std::string_view piece,
                                             std::vector<int32_t>& ids) const {
  std::vector<std::string> parts;
  const auto status = processor.Encode(WithoutWordMarks(piece.substr(0, piece.size() - 1)), &parts);
  if (!status.ok()) return status.ToString();
  const bool is_inside_word = piece.substr(0, kWordMark.size()) != kWordMark;
  if (is_inside_word && !parts.empty() && parts[0].compare(0, kWordMark.size(), kWordMark) == 0) {
    // SentencePiece put a mark before text that is inside a word.
    parts[0].erase(0, kWordMark.size());
    if (parts[0].empty()) parts.erase(parts.begin());
  }
  for (const std::string& part : parts) ids.push_back(processor.PieceToId(part));
  ids.push_back(processor.PieceToId(","));
  return "";
}

// Appends the bytes of those of `ids` that have none yet, which the rule made of a piece with the
// bytes `whole`. Where their spellings do not tell, all have those of the whole.
void SentencePieceBridge::Impl::AppendSplitBytes(std::string_view text, PieceBytes whole,
                                                 const std::vector<int32_t>& ids,
                                                 std::vector<PieceBytes>& bytes) const {
  std::vector<PieceBytes> parts;
  PieceBytes next{whole.begin, whole.begin};
  if (next.begin < whole.end && text[next.begin] == ' ') ++next.begin;
  next.end = next.begin;
  bool is_spelled = true;
  for (size_t i = bytes.size(); i < ids.size(); ++i) {
    is_spelled = is_spelled && ids[i] != unknown_id;
    next.end += static_cast<uint32_t>(WithoutWordMarks(processor.IdToPiece(ids[i])).size());
    parts.push_back(next);
    next.begin = next.end;
  }
  if (is_spelled && next.end == whole.end) bytes.insert(bytes.end(), parts.begin(), parts.end());
  bytes.resize(ids.size(), whole);
}

SentencePieceBridge::SentencePieceBridge() : impl_(std::make_unique<Impl>()) {}
SentencePieceBridge::~SentencePieceBridge() = default;

std::string SentencePieceBridge::Load(const std::string& model) {
  const auto status = impl_->processor.LoadFromSerializedProto(model);
  if (!status.ok()) {
    const std::string error = PlainError(status);
    return error.empty() ? "damaged or cut off" : error;
  }
  impl_->unknown_id = impl_->processor.unk_id();
  const int32_t size = vocab_size();
  impl_->has_digit_comma.assign(static_cast<size_t>(size), false);
  for (int32_t id = 0; id < size; ++id) {
    const std::string& text = impl_->processor.IdToPiece(id);
    if (!EndsInDigitComma(text)) continue;
    impl_->has_digit_comma[static_cast<size_t>(id)] = true;
    if (std::string error = impl_->Split(text, impl_->digit_comma[id]); !error.empty())
      return error;
  }
  return "";
}

int32_t SentencePieceBridge::vocab_size() const { return impl_->processor.GetPieceSize(); }

VocabularyPiece SentencePieceBridge::piece(int32_t id) const {
  const sentencepiece::SentencePieceProcessor& processor = impl_->processor;
  VocabularyPiece piece{.text = processor.IdToPiece(id), .score = processor.GetScore(id)};
  if (processor.IsByte(id)) piece.kind = PieceKind::kByte;
  if (processor.IsUnknown(id)) piece.kind = PieceKind::kUnknown;
  if (processor.IsControl(id)) piece.kind = PieceKind::kControl;
  if (processor.IsUnused(id)) piece.kind = PieceKind::kUnused;
  return piece;
}

std::vector<VocabularyPiece> SentencePieceBridge::pieces() const {
  std::vector<VocabularyPiece> pieces;
  for (int32_t id = 0; id < vocab_size(); ++id) pieces.push_back(piece(id));
  return pieces;
}

int32_t SentencePieceBridge::FindPiece(const std::string& piece) const {
  const int32_t id = impl_->processor.PieceToId(piece);
  return impl_->processor.IdToPiece(id) == piece ? id : -1;
}

std::string SentencePieceBridge::Encode(std::string_view text, std::vector<int32_t>& ids,
                                        Segmentation how, std::vector<PieceBytes>* bytes) const {
  sentencepiece::ImmutableSentencePieceText& found = impl_->found;
  const auto status = impl_->processor.Encode({text.data(), text.size()}, found.mutable_proto());
  if (!status.ok()) return status.ToString();
  const size_t count = found.pieces_size();
  for (size_t i = 0; i < count; ++i) {
    const auto piece = found.pieces(static_cast<int>(i));
    const auto& spelling = piece.piece();
    std::string error = impl_->Append(static_cast<int32_t>(piece.id()),
                                      {spelling.data(), spelling.size()}, how, ids);
    if (!error.empty()) return error;
    if (bytes == nullptr) continue;
    const PieceBytes whole{piece.begin(), piece.end()};
    if (how == Segmentation::kDigitComma && ids.size() > bytes->size() + 1) {
      impl_->AppendSplitBytes(text, whole, ids, *bytes);
    } else {
      bytes->resize(ids.size(), whole);
    }
  }
  return "";
}

std::string TrainSentencePiece(const std::string& type, uint64_t vocab_size, bool takes_fewer,
                               CleanMode clean, const std::vector<std::string>& sentences,
                               std::string& model) {
  std::unordered_map<std::string, std::string> settings = {
      {"model_type", type},
      {"vocab_size", std::to_string(vocab_size)},
      {"character_coverage", "0.99995"},
      {"control_symbols", "<cls>,<sep>,<pad>,<mask>,<eod>"},
      // A list in CSV syntax: """" is one double quote.
      {"user_defined_symbols", "<eop>,.,(,),\"\"\"\",-,\xE2\x80\x93,\xC2\xA3,\xE2\x82\xAC"},
      // The caller already bounded the sample; 0 takes every sentence, in the caller's order.
      {"input_sentence_size", "0"},
      {"shuffle_input_sentence", "false"},
      {"num_threads", kTrainerThreads},
      {"minloglevel", "2"},
  };
  // NFKC would take Thai's am apart, say.
  if (clean != CleanMode::kXlnet) settings["normalization_rule_name"] = "identity";
  if (clean == CleanMode::kNone) {
    settings["remove_extra_whitespaces"] = "false";
    settings["allow_whitespace_only_pieces"] = "true";
  }
  if (type != "unigram") {
    settings["character_coverage"] = "1.0";
    settings["normalization_rule_name"] = "identity";  // the text was cleaned; a word stays one
    settings["control_symbols"] += ",<eop>";           // the same id, but text cannot make it
    settings.erase("user_defined_symbols");
  }
  // In the trainer a tab stands between pieces: it becomes one only where it is asked for.
  const auto has_tab = [](const std::string& line) { return line.find('\t') != line.npos; };
  if (clean == CleanMode::kNone && std::any_of(sentences.begin(), sentences.end(), has_tab)) {
    std::string& symbols = settings["user_defined_symbols"];
    symbols += symbols.empty() ? "\t" : ",\t";
  }
  if (takes_fewer) settings["hard_vocab_limit"] = "false";
  SentenceSource source(sentences);
  const auto status = sentencepiece::SentencePieceTrainer::Train(settings, &source, &model);
  if (status.ok()) return "";
  const std::string error = PlainError(status);
  return error.empty() ? status.ToString() : error;
}

}  // namespace anyorder::data
