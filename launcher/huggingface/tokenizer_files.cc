#include "launcher/huggingface/tokenizer_files.h"

#include <utf8proc.h>

#include <map>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "core/base/check.h"
#include "core/base/file_system.h"
#include "core/base/json_members.h"
#include "core/base/log.h"
#include "core/base/status.h"
#include "core/base/whole_file.h"
#include "core/objective/objective_traits.h"

namespace anyorder::launcher {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kWordMark[] = "\u2581";
// Python's str.isspace(), by which lines are split and stripped.
constexpr char kSpaces[] =
    "[\\x{0009}-\\x{000d}\\x{001c}-\\x{0020}\\x{0085}\\x{00a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}"
    "\\x{2029}\\x{202f}\\x{205f}\\x{3000}]+";
// Python's lower() gives a sigma at the end of a word another form; `Lowercase` below knows letters
// only one by one.
constexpr char kFinalSigma[] =
    "\\p{Cased}\\p{Case_Ignorable}*\\K\u03a3(?!\\p{Case_Ignorable}*\\p{Cased})";
// Below any score: pieces that text must not become.
constexpr double kNeverChosen = 100;

Json Replace(const Json& pattern, const char* content) {
  return {{"type", "Replace"}, {"pattern", pattern}, {"content", content}};
}
Json Regex(const std::string& text) { return {{"Regex", text}}; }
Json Literal(const char* text) { return {{"String", text}}; }
Json Strip() { return {{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}}; }

// A class of all code points that combine with the one before them (accents): in no other way can
// the library say so, since its own StripAccents also drops marks of class 0.
std::string CombiningMarks() {
  std::string marks;
  constexpr utf8proc_int32_t kEnd = 0x110000;
  for (utf8proc_int32_t first = 0; first < kEnd; ++first) {
    utf8proc_int32_t end = first;
    while (end < kEnd && utf8proc_get_property(end)->combining_class != 0) ++end;
    if (end == first) continue;
    absl::StrAppend(&marks, "\\x{", absl::Hex(first), "}-\\x{", absl::Hex(end - 1), "}");
    first = end;
  }
  return absl::StrCat("[", marks, "]");
}

// data/prep/cleaning.h step by step, then what SentencePiece does before it looks for pieces.
Json Normalizer(const Vocabulary& vocabulary, const data::Cleaning& cleaning) {
  Json steps = Json::array();
  const auto add = [&](std::initializer_list<Json> more) {
    for (const Json& step : more) steps.push_back(step);
  };
  if (cleaning.mode != data::CleanMode::kNone)
    add({Replace(Regex(kSpaces), " "), Strip(), Replace(Literal("``"), "\""),
         Replace(Literal("''"), "\"")});
  if (cleaning.mode == data::CleanMode::kXlnet)
    add({Json{{"type", "NFKD"}}, Replace(Regex(CombiningMarks()), "")});
  if (cleaning.letter_case == data::LetterCase::kUncased) {
    steps.push_back(Replace(Regex(kFinalSigma), "\u03c2"));
    steps.push_back({{"type", "Lowercase"}});
  }
  if (!vocabulary.rules.charsmap.empty()) {
    // The map composes what belongs together, the library's reader of it only what is one grapheme.
    steps.push_back({{"type", "NFC"}});
    steps.push_back({{"type", "Precompiled"},
                     {"precompiled_charsmap", absl::Base64Escape(vocabulary.rules.charsmap)}});
  }
  if (!vocabulary.rules.keeps_spaces) add({Replace(Regex(" +"), " "), Strip()});
  add({Json{{"type", "Prepend"}, {"prepend", kWordMark}}, Replace(Literal(" "), kWordMark)});
  return {{"type", "Sequence"}, {"normalizers", steps}};
}

Json Split(const Json& pattern, const char* behavior) {
  return {{"type", "Split"}, {"pattern", pattern}, {"behavior", behavior}, {"invert", false}};
}

// Of characters each is a token, else words are found first: no piece goes beyond one, but one of
// several spaces.
Json PreTokenizer(const data::ModelRules& rules) {
  if (rules.type == data::ModelType::kUnigram && rules.keeps_spaces) return nullptr;
  if (rules.type == data::ModelType::kCharacters) return Split(Regex("(?m:.)"), "Isolated");
  return Split(Literal(kWordMark), "MergedWithNext");
}

bool IsSpecial(const data::VocabularyPiece& piece) {
  return piece.kind == data::PieceKind::kControl || piece.kind == data::PieceKind::kUnknown;
}

Json Model(const Vocabulary& vocabulary, bool has_comma_rule) {
  const bool is_unigram = vocabulary.rules.type == data::ModelType::kUnigram;
  Json entries = is_unigram ? Json::array() : Json::object();
  int64_t id = 0, unknown = 0;
  for (const data::VocabularyPiece& piece : vocabulary.pieces) {
    if (piece.kind == data::PieceKind::kUnknown) unknown = id;
    // The digit-comma rule never leaves such a piece in a text.
    const bool is_kept_out =
        IsSpecial(piece) || (has_comma_rule && data::EndsInDigitComma(piece.text));
    if (is_unigram) {
      entries.push_back({piece.text, piece.score - (is_kept_out ? kNeverChosen : 0)});
    } else {
      entries[piece.text] = id;
    }
    ++id;
  }
  if (!is_unigram) return {{"type", "WordLevel"}, {"vocab", entries}, {"unk_token", "<unk>"}};
  return {{"type", "Unigram"}, {"unk_id", unknown}, {"vocab", entries}, {"byte_fallback", false}};
}

// Found in a text before anything else is done to it, so that users can write <mask>.
Json AddedTokens(const Vocabulary& vocabulary) {
  Json tokens = Json::array();
  int64_t id = 0;
  for (const data::VocabularyPiece& piece : vocabulary.pieces) {
    if (IsSpecial(piece)) {
      tokens.push_back({{"id", id},
                        {"content", piece.text},
                        {"single_word", false},
                        {"lstrip", piece.text == "<mask>"},
                        {"rstrip", false},
                        {"normalized", false},
                        {"special", true}});
    }
    ++id;
  }
  return tokens;
}

Json FrameParts(const std::string& parts) {
  Json list = Json::array();
  for (const absl::string_view part : absl::StrSplit(parts, ' ')) {
    const std::vector<std::string> sides = absl::StrSplit(part, ':');
    const bool is_text = sides[0] == "A" || sides[0] == "B";
    list.push_back({{is_text ? "Sequence" : "SpecialToken",
                     {{"id", sides[0]}, {"type_id", sides[1][0] - '0'}}}});
  }
  return list;
}

// Null for text that stands alone.
Json PostProcessor(const Vocabulary& vocabulary, const std::string& objective) {
  InputLayout layout = kXlnetLayout;
  if (!objective.empty()) {
    const absl::StatusOr<const ObjectiveTraits*> traits = ObjectiveNamed(objective);
    ANYORDER_CHECK_OK(traits.status());
    layout = (*traits)->layout;
  }
  if (layout.IsAlone()) return nullptr;
  const std::string pair = layout.Of(2);
  Json special = Json::object();
  int64_t id = 0;
  for (const data::VocabularyPiece& piece : vocabulary.pieces) {
    if (absl::StrContains(pair, absl::StrCat(piece.text, ":")) && IsSpecial(piece))
      special[piece.text] = {{"id", piece.text}, {"ids", {id}}, {"tokens", {piece.text}}};
    ++id;
  }
  return {{"type", "TemplateProcessing"},
          {"single", FrameParts(layout.Of(1))},
          {"pair", FrameParts(pair)},
          {"special_tokens", special}};
}

// <eop> is none: text may hold it, and it is a piece like any other.
Json SpecialTokens() {
  return {{"bos_token", "<s>"},     {"eos_token", "</s>"},
          {"unk_token", "<unk>"},   {"sep_token", "<sep>"},
          {"pad_token", "<pad>"},   {"cls_token", "<cls>"},
          {"mask_token", "<mask>"}, {"additional_special_tokens", {"<eod>"}}};
}

// Loads tokenizer.json as it is. Other classes of transformers add to it, and its own class for
// XLNet would, from version 5 on, replace all of it but the pieces.
constexpr char kPlainClass[] = "PreTrainedTokenizerFast";

Json TokenizerConfig(const TokenizerSettings& settings) {
  Json json = SpecialTokens();
  json["tokenizer_class"] = kPlainClass;
  json["do_lower_case"] = settings.cleaning.letter_case == data::LetterCase::kUncased;
  json["remove_space"] = settings.cleaning.mode != data::CleanMode::kNone;
  json["keep_accents"] = settings.cleaning.mode != data::CleanMode::kXlnet;
  json["clean_up_tokenization_spaces"] = false;
  json["padding_side"] = settings.objective.empty() ? "left" : "right";
  json["model_max_length"] = settings.max_length;
  // From version 5 on transformers gives segments only to those who ask.
  json["model_input_names"] = {"input_ids", "token_type_ids", "attention_mask"};
  return json;
}

// {id: token} of a tokenizer.json.
std::map<int64_t, std::string> TokensOf(const nlohmann::json& file) {
  using Json = nlohmann::json;  // of any number of members
  const auto member = [](const Json& json, const char* name) {
    const Json* const found = FindMember(json, name);
    return found == nullptr ? Json() : *found;
  };
  std::map<int64_t, std::string> tokens;
  const auto add = [&](const Json& id, const Json& text) {
    if (id.is_number_integer() && text.is_string()) tokens[id] = text;
  };
  const Json vocab = member(member(file, "model"), "vocab");
  if (vocab.is_array()) {  // Unigram: pieces with scores, in order
    for (size_t id = 0; id < vocab.size(); ++id)
      if (vocab[id].is_array() && !vocab[id].empty()) add(id, vocab[id][0]);
  } else {
    for (const auto& [text, id] : vocab.items()) add(id, text);
  }
  for (const Json& token : member(file, "added_tokens"))
    add(member(token, "id"), member(token, "content"));
  return tokens;
}

}  // namespace

absl::StatusOr<std::string> TokenizerText(const Vocabulary& vocabulary,
                                          const TokenizerSettings& settings) {
  if (vocabulary.rules.type == data::ModelType::kBpe)
    return absl::UnimplementedError("the vocabulary was trained by byte-pair encoding");
  if (!vocabulary.rules.has_xlnet_spaces)
    return absl::UnimplementedError("the vocabulary has other rules for spaces than XLNet's");
  const Json json = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", AddedTokens(vocabulary)},
      {"normalizer", Normalizer(vocabulary, settings.cleaning)},
      {"pre_tokenizer", PreTokenizer(vocabulary.rules)},
      {"post_processor", PostProcessor(vocabulary, settings.objective)},
      {"decoder",
       {{"type", "Metaspace"},
        {"replacement", kWordMark},
        {"prepend_scheme", "always"},
        {"split", true}}},
      {"model", Model(vocabulary, settings.cleaning.mode != data::CleanMode::kNone)}};
  return DumpJson(json, 2) + "\n";
}

absl::Status WriteTokenizerFiles(const Vocabulary& vocabulary, const TokenizerSettings& settings,
                                 const std::string& directory) {
  RETURN_IF_ERROR(WriteFileAtomically(JoinPath(directory, "special_tokens_map.json"),
                                      DumpJson(SpecialTokens(), 2) + "\n"));
  RETURN_IF_ERROR(WriteFileAtomically(JoinPath(directory, "tokenizer_config.json"),
                                      DumpJson(TokenizerConfig(settings), 2) + "\n"));
  const absl::StatusOr<std::string> text = TokenizerText(vocabulary, settings);
  if (text.ok()) return WriteFileAtomically(JoinPath(directory, "tokenizer.json"), *text);
  LogWarning(absl::StrCat("tokenizer.json is left out: ", text.status().message(),
                          "; load spiece.model with SentencePiece"));
  return absl::OkStatus();
}

absl::Status WriteOtherTokenizerFiles(const std::string& source, const data::VocabIds& ids,
                                      int64_t max_length, const std::string& directory) {
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(source, kMaxTableBytes));
  const auto file = ParseJsonObject(text, "; prepare the data again");
  RETURN_IF_ERROR(Annotate(file.status(), source));
  const std::map<int64_t, std::string> tokens = TokensOf(*file);
  Json config = {{"tokenizer_class", kPlainClass},
                 {"clean_up_tokenization_spaces", false},
                 {"model_max_length", max_length}};
  for (const auto& [role, id] : data::kVocabIdFields) {
    const auto token = tokens.find(ids.*id);
    // Ends of documents and of paragraphs are no roles of transformers'.
    if (token != tokens.end() && id != &data::VocabIds::eod && id != &data::VocabIds::eop)
      config[absl::StrCat(role, "_token")] = token->second;
  }
  RETURN_IF_ERROR(WriteFileAtomically(JoinPath(directory, "tokenizer_config.json"),
                                      DumpJson(config, 2) + "\n"));
  return WriteFileAtomically(JoinPath(directory, "tokenizer.json"), text);
}

}  // namespace anyorder::launcher
