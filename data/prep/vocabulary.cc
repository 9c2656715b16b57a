#include "data/prep/vocabulary.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "core/base/digest.h"
#include "core/base/json_members.h"
#include "core/base/named_path.h"
#include "core/base/status.h"
#include "core/base/whole_file.h"
#include "data/prep/model_pieces.h"
#include "data/prep/sentencepiece_bridge.h"
#include "data/prep/tokenizer.h"

namespace anyorder::data {
namespace {

namespace fs = std::filesystem;

std::string FlagOf(absl::string_view field) { return absl::StrCat("--", field, "-id"); }

// The bytes of a file in a tokenizer's directory; "" where there is none.
absl::StatusOr<std::string> ReadIfThere(const fs::path& folder, const char* name) {
  absl::StatusOr<std::string> bytes = ReadFileInside(folder.string(), name, kMaxTableBytes);
  if (absl::IsNotFound(bytes.status())) return std::string();
  return bytes;
}

// A mask that also means something else would hide, or be learnt as, what it is not.
absl::Status CheckMaskIsAlone(const VocabIds& ids) {
  for (const auto& [field, member] : kVocabIdFields) {
    if (member == &VocabIds::mask || member == &VocabIds::unk || ids.mask < 0) continue;
    if (ids.*member != ids.mask) continue;
    return InvalidArgument("the mask has id ", ids.mask, ", which is that of ", field,
                           ", too; declare an id that no text has with --mask-id");
  }
  return absl::OkStatus();
}

// Puts what is declared over what was read, and says in `declared` what differs.
absl::Status Declare(const DeclaredVocabulary& declared, const std::string& name,
                     DatasetVocabulary& vocabulary) {
  const auto add = [&](absl::string_view key, uint64_t value) {
    absl::StrAppend(&vocabulary.declared, vocabulary.declared.empty() ? "" : " ", key, "=", value);
  };
  for (const auto& [field, member] : kVocabIdFields) {
    const int32_t id = declared.ids.*member;
    if (id < 0 || id == vocabulary.ids.*member) continue;
    vocabulary.ids.*member = id;
    add(field, static_cast<uint64_t>(id));
  }
  if (declared.size > 0 && declared.size < vocabulary.size) {
    return InvalidArgument("--vocab-size ", declared.size, " is below the ", vocabulary.size,
                           " ids of '", name, "'; leave it out, or pass a larger one");
  }
  if (vocabulary.is_sentence_piece())
    vocabulary.cleaning = declared.CleaningOr(vocabulary.cleaning);
  const uint64_t read = vocabulary.size;
  vocabulary.size = std::max(vocabulary.size, declared.size);
  for (const auto& [field, member] : kVocabIdFields) {
    const int32_t id = vocabulary.ids.*member;
    if (id < 0 || static_cast<uint64_t>(id) < vocabulary.size) continue;
    return InvalidArgument(FlagOf(field), " ", id, " is outside the vocabulary of ",
                           vocabulary.size, " ids; pass --vocab-size ", int64_t{id} + 1,
                           " or more if the model has that many rows");
  }
  if (vocabulary.size != read) add("vocab_size", vocabulary.size);
  if (vocabulary.ids.eod < 0) vocabulary.ids.eod = vocabulary.ids.eos;
  if (vocabulary.ids.eod < 0) {
    return InvalidArgument("the id that ends a document is not known",
                           name.empty() ? "" : absl::StrCat(" from '", name, "'"),
                           "; pass --eod-id N to `prep`, in GPT-2's vocabulary 50256");
  }
  vocabulary.is_start_piece.resize(vocabulary.size, false);
  return CheckMaskIsAlone(vocabulary.ids);
}

absl::StatusOr<DatasetVocabulary> ReadHuggingFace(const fs::path& path, std::string json) {
  const fs::path folder = path.parent_path();
  ASSIGN_OR_RETURN(const std::string config, ReadIfThere(folder, "tokenizer_config.json"));
  ASSIGN_OR_RETURN(const std::string special, ReadIfThere(folder, "special_tokens_map.json"));
  ASSIGN_OR_RETURN(const std::string added, ReadIfThere(folder, "added_tokens.json"));
  ASSIGN_OR_RETURN(DatasetVocabulary vocabulary,
                   ParseHuggingFace(json, config, special, added, path.string()));
  vocabulary.file = kHuggingFaceFile;
  vocabulary.bytes = std::move(json);
  vocabulary.path = path.string();
  return vocabulary;
}

// How it stands in DatasetIndex::declared; "": as XLNet's.
std::string CleanDeclared(const Cleaning& cleaning) {
  return cleaning.mode == CleanMode::kXlnet ? "" : absl::StrCat("clean=", cleaning.name());
}

Cleaning CleaningOf(const DatasetIndex& index) {
  const auto setting = [&](const char* key) {
    const auto found = index.settings.find(key);
    return found == index.settings.end() ? "" : found->second;
  };
  Cleaning cleaning;
  ParseEnum(setting("case"), cleaning.letter_case);
  ParseEnum(setting("clean"), cleaning.mode);
  return cleaning;
}

// How the texts of the model `bytes`, read from `path`, are cleaned. The dataset whose file it is
// says so. A model of XLNet's layout without a dataset follows Hugging Face's settings: those
// beside it, or those of the imported run that it lies in.
Cleaning RecordedCleaning(const fs::path& path, const std::string& bytes, bool has_xlnet_layout,
                          CleanMode otherwise) {
  const fs::path folder = fs::absolute(path).parent_path();
  const absl::StatusOr<DatasetIndex> index = ReadDatasetIndex(folder.string());
  if (index.ok() && index->tokenizer.digest == DigestOf(bytes).Hex()) return CleaningOf(*index);
  nlohmann::json json;
  for (const char* file : {"import/tokenizer_config.json", "tokenizer_config.json"})
    if (!json.is_object())
      json = TryParseJson(ReadFileInside(folder.string(), file, kMaxTableBytes).value_or(""));
  const auto is = [&](const char* name, bool value) {
    return has_xlnet_layout && FindMember(json, name) != nullptr && json[name] == value;
  };
  Cleaning cleaning{is("do_lower_case", true) ? LetterCase::kUncased : LetterCase::kCased,
                    otherwise};
  if (is("keep_accents", false)) cleaning.mode = CleanMode::kXlnet;
  if (is("keep_accents", true))
    cleaning.mode = is("remove_space", false) ? CleanMode::kNone : CleanMode::kAccents;
  return cleaning;
}

// The special pieces of a SentencePiece model by the names that they usually have.
VocabIds UsualPieces(const SentencePieceBridge& bridge) {
  VocabIds ids;
  for (const auto& [field, member] : kVocabIdFields) {
    const std::string usual = SpecialPiece(field);
    const std::string capitals = absl::AsciiStrToUpper(field);
    for (const std::string& piece : {usual, absl::StrCat("<", field, ">"), "[" + capitals + "]"})
      if (ids.*member < 0) ids.*member = bridge.FindPiece(piece);
  }
  return ids;
}

absl::StatusOr<DatasetVocabulary> ReadSentencePiece(const std::string& path, std::string model) {
  SentencePieceBridge bridge;
  const std::string error = model.empty() ? "the file is empty" : bridge.Load(model);
  if (!error.empty()) {
    return DataLoss("'", path, "' is neither Hugging Face's tokenizer.json nor a SentencePiece ",
                    "model (", error, "); name one of them");
  }
  DatasetVocabulary vocabulary;
  // A model that `--vocab` takes keeps its name: then it is the same tokenizer.
  vocabulary.file = Tokenizer::Load(model, path).ok() ? kTokenizerFile : kOtherModelFile;
  vocabulary.cleaning =
      RecordedCleaning(path, model, vocabulary.file == kTokenizerFile, CleanMode::kNone);
  vocabulary.bytes = std::move(model);
  vocabulary.path = path;
  vocabulary.size = static_cast<uint64_t>(bridge.vocab_size());
  vocabulary.ids = UsualPieces(bridge);
  for (int32_t id = 0; id < bridge.vocab_size(); ++id)
    vocabulary.is_start_piece.push_back(IsStartPiece(bridge.piece(id).text));
  return vocabulary;
}

bool IsHuggingFace(const std::string& path, const std::string& bytes) {
  return path.ends_with(".json") || bytes.starts_with("{");
}

absl::StatusOr<DatasetVocabulary> ReadFileOfTokenizer(const std::string& path) {
  ASSIGN_OR_RETURN(std::string bytes, ReadWholeFile(path, kMaxTableBytes));
  return IsHuggingFace(path, bytes) ? ReadHuggingFace(path, std::move(bytes))
                                    : ReadSentencePiece(path, std::move(bytes));
}

// A dataset has settled what its ids mean.
absl::StatusOr<DatasetVocabulary> ReadOfDataset(const std::string& folder,
                                                const DeclaredVocabulary& declared) {
  ASSIGN_OR_RETURN(const DatasetIndex index, ReadDatasetIndex(folder));
  const auto differs = [&](const std::string& flag, int64_t value, int64_t its) {
    return InvalidArgument(flag, " ", value, " is not what dataset '", folder, "' has, ",
                           its < 0 ? "none" : absl::StrCat(its), "; leave it out");
  };
  for (const auto& [field, member] : kVocabIdFields) {
    const int32_t id = declared.ids.*member;
    if (id >= 0 && id != index.vocab_ids.*member)
      return differs(FlagOf(field), id, index.vocab_ids.*member);
  }
  if (declared.size > 0 && declared.size != index.vocab_size) {
    return differs("--vocab-size", static_cast<int64_t>(declared.size),
                   static_cast<int64_t>(index.vocab_size));
  }
  const Cleaning cleaning = CleaningOf(index);
  if (index.tokenizer.file != kHuggingFaceFile &&
      declared.clean.value_or(cleaning.mode) != cleaning.mode) {
    return InvalidArgument("--clean ", EnumName(*declared.clean),
                           " is not how the texts of dataset '", folder, "' are cleaned, ",
                           cleaning.name(), "; leave it out");
  }
  RETURN_IF_ERROR(CheckFileInside(folder, index.tokenizer.file));
  const std::string path = absl::StrCat(folder, "/", index.tokenizer.file);
  DatasetVocabulary vocabulary;
  if (index.tokenizer.file == kDeclaredFile) {
    ASSIGN_OR_RETURN(vocabulary.bytes, ReadWholeFile(path, kMaxTableBytes));
    vocabulary.is_start_piece.assign(index.vocab_size, true);
  } else {
    ASSIGN_OR_RETURN(vocabulary, ReadFileOfTokenizer(path));
  }
  vocabulary.file = index.tokenizer.file;
  vocabulary.declared = std::string(
      absl::StripSuffix(absl::StripSuffix(index.declared, CleanDeclared(cleaning)), " "));
  vocabulary.cleaning = {declared.CleaningOr(cleaning).letter_case, cleaning.mode};
  vocabulary.size = index.vocab_size;
  vocabulary.ids = index.vocab_ids;
  vocabulary.is_start_piece.resize(vocabulary.size, false);
  if (vocabulary.Digest() != index.tokenizer_digest) {
    return DataLoss("'", path, "' is not the file that dataset '", folder,
                    "' was made with; restore it or prepare the data again");
  }
  return vocabulary;
}

}  // namespace

std::string DatasetVocabulary::AllDeclared() const {
  const absl::string_view clean = CleanDeclared(cleaning);
  return absl::StrCat(declared, declared.empty() || clean.empty() ? "" : " ", clean);
}

std::string DatasetVocabulary::Digest() const {
  return TokenizerDigest(DigestOf(bytes).Hex(), AllDeclared());
}

std::map<std::string, std::string> DatasetVocabulary::TextSettings() const {
  if (is_hugging_face()) return {{"text", "as written"}};
  return {{"case", EnumName(cleaning.letter_case)}, {"clean", cleaning.name()}};
}

absl::StatusOr<DatasetVocabulary> ReadVocabulary(const std::string& path,
                                                 const DeclaredVocabulary& declared) {
  std::string file = path;
  if (IsDirectory(path)) {
    if (IsThere(fs::path(path) / kIndexFile)) return ReadOfDataset(path, declared);
    file.clear();
    for (const char* name : {kHuggingFaceFile, kOtherModelFile, kTokenizerFile}) {
      if (!file.empty() || !IsThere(fs::path(path) / name)) continue;
      RETURN_IF_ERROR(CheckFileInside(path, name));
      file = (fs::path(path) / name).string();
    }
    if (file.empty()) {
      return InvalidArgument("'", path, "' holds no ", kHuggingFaceFile, ", ", kOtherModelFile,
                             " or ", kTokenizerFile,
                             "; name a directory that does, a dataset, or such a file");
    }
  }
  ASSIGN_OR_RETURN(DatasetVocabulary vocabulary, ReadFileOfTokenizer(file));
  RETURN_IF_ERROR(Declare(declared, file, vocabulary));
  return vocabulary;
}

absl::StatusOr<DatasetVocabulary> ReadVocabularyOf(const std::string& path,
                                                   const std::string& digest) {
  ASSIGN_OR_RETURN(const DatasetVocabulary read, ReadVocabulary(path, {}));
  DatasetVocabulary vocabulary = read;
  for (const auto& [mode, unused] : kEnumNames<CleanMode>) {
    if (!read.is_sentence_piece() || vocabulary.Digest() == digest) break;
    vocabulary.cleaning.mode = mode;
  }
  return vocabulary.Digest() == digest ? vocabulary : read;
}

absl::StatusOr<std::optional<DatasetVocabulary>> ReadGivenVocabulary(
    const std::string& vocab, const std::string& tokenizer, const DeclaredVocabulary& declared) {
  if (tokenizer.empty() && vocab.empty()) return std::nullopt;
  if (tokenizer.empty()) {
    ASSIGN_OR_RETURN(std::string model, ReadWholeFile(vocab, kMaxTableBytes));
    ASSIGN_OR_RETURN(const Tokenizer loaded, Tokenizer::Load(model, vocab));
    return VocabularyOf(loaded, std::move(model), vocab, declared);
  }
  ASSIGN_OR_RETURN(DatasetVocabulary vocabulary, ReadVocabulary(tokenizer, declared));
  if (vocabulary.file == kDeclaredFile) {
    return InvalidArgument("dataset '", tokenizer,
                           "' knows no tokenizer, only the ids that were declared for its tokens; "
                           "encode the text elsewhere and pass --tokens");
  }
  const bool is_uncased = declared.letter_case == LetterCase::kUncased;
  if (vocabulary.is_hugging_face() &&
      (is_uncased || declared.clean.value_or(CleanMode::kNone) != CleanMode::kNone)) {
    return InvalidArgument(
        is_uncased ? "--case uncased" : "--clean",
        " is not for a tokenizer.json, which is given texts as they are written and lower-cases by "
        "itself if it should; leave it out");
  }
  return vocabulary;
}

DatasetVocabulary VocabularyOf(const Tokenizer& tokenizer, std::string model, std::string path,
                               const DeclaredVocabulary& declared) {
  Cleaning recorded;
  if (!path.empty()) recorded = RecordedCleaning(path, model, true, CleanMode::kXlnet);
  return {.file = kTokenizerFile,
          .bytes = std::move(model),
          .path = std::move(path),
          .cleaning = declared.CleaningOr(recorded),
          .size = tokenizer.vocab_size(),
          .ids = tokenizer.vocab_ids(),
          .is_start_piece = tokenizer.is_start_piece()};
}

absl::StatusOr<DatasetVocabulary> VocabularyOf(const DeclaredVocabulary& declared) {
  if (declared.size == 0) {
    return absl::InvalidArgumentError(
        "--tokens needs the vocabulary that the ids belong to: pass --vocab-size N and --eod-id N, "
        "or --tokenizer PATH");
  }
  DatasetVocabulary vocabulary;
  vocabulary.size = declared.size;
  vocabulary.is_start_piece.assign(declared.size, true);
  RETURN_IF_ERROR(Declare(declared, "", vocabulary));
  nlohmann::json ids = nlohmann::json::object();
  for (const auto& [field, member] : kVocabIdFields)
    if (vocabulary.ids.*member >= 0) ids[field] = vocabulary.ids.*member;
  vocabulary.file = kDeclaredFile;
  vocabulary.bytes =
      DumpJson(nlohmann::json{{"ids", ids}, {"vocab_size", vocabulary.size}}, 2) + "\n";
  vocabulary.declared.clear();  // the file says all of it
  return vocabulary;
}

absl::StatusOr<Tokenizer> Tokenizer::LoadOther(const DatasetVocabulary& vocabulary) {
  if (vocabulary.file == kTokenizerFile && vocabulary.declared.empty()) {
    absl::StatusOr<Tokenizer> tokenizer = Load(vocabulary.bytes, vocabulary.path);
    const bool is_as_written = vocabulary.cleaning.mode == CleanMode::kNone;
    if (tokenizer.ok() && is_as_written && tokenizer->segmentation_ == Segmentation::kDigitComma)
      tokenizer->segmentation_ = Segmentation::kLibrary;
    return tokenizer;
  }
  Tokenizer tokenizer;
  tokenizer.bridge_ = std::make_unique<SentencePieceBridge>();
  if (const std::string error = tokenizer.bridge_->Load(vocabulary.bytes); !error.empty())
    return Internal("SentencePiece could not load '", vocabulary.path, "' again: ", error);
  tokenizer.vocab_ids_ = vocabulary.ids;
  tokenizer.is_start_piece_ = vocabulary.is_start_piece;
  return tokenizer;
}

}  // namespace anyorder::data
