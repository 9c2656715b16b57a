// Reads the vocabulary from tokenizer.json and the other files of its directory (vocabulary.h).

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"

#include "core/base/json_members.h"
#include "core/base/status.h"
#include "data/prep/model_pieces.h"
#include "data/prep/vocabulary.h"

namespace anyorder::data {
namespace {

using Json = nlohmann::json;

constexpr std::pair<const char*, int32_t VocabIds::*> kTokenRoles[] = {
    {"unk_token", &VocabIds::unk},  {"bos_token", &VocabIds::bos}, {"eos_token", &VocabIds::eos},
    {"cls_token", &VocabIds::cls},  {"sep_token", &VocabIds::sep}, {"pad_token", &VocabIds::pad},
    {"mask_token", &VocabIds::mask}};

// Masks of models whose tokenizer_config.json has the token but does not say what it is for.
constexpr const char* kMaskNames[] = {"<|mdm_mask|>", "<|mask|>", "<mask>", "[MASK]"};

// Byte-level BPE writes a space as U+0120 and a line end as U+010A.
constexpr const char* kByteSpace = "\xC4\xA0";
constexpr const char* kByteLineEnd = "\xC4\x8A";
constexpr const char* kMetaspace = "\xE2\x96\x81";  // U+2581

// Reads the pieces and the roles of one tokenizer.
class TokenizerJson {
 public:
  explicit TokenizerJson(std::string name) : name_(std::move(name)) {}

  absl::Status ReadModel(const std::string& bytes) {
    const Json root = TryParseJson(bytes);
    if (!root.is_object()) return Damaged("it is ", WhyNoJsonObject(bytes));
    const Json* const model = FindMember(root, "model", &Json::is_object);
    if (model == nullptr) return Damaged("it is not Hugging Face's tokenizer.json");
    const Json* const type = FindMember(*model, "type");
    continues_with_hashes_ = type != nullptr && *type == "WordPiece";
    const Json* const vocab = FindMember(*model, "vocab");
    if (vocab == nullptr) return Damaged("its model has no vocabulary");
    RETURN_IF_ERROR(vocab->is_array() ? ReadList(*vocab) : ReadMap(*vocab));
    if (const Json* const added = FindMember(root, "added_tokens", &Json::is_array)) {
      for (const Json& token : *added) {
        if (!token.is_object()) return Damaged("an entry of added_tokens is not an object");
        RETURN_IF_ERROR(AddToken(token.value("content", Json()), token.value("id", Json())));
      }
    }
    return absl::OkStatus();
  }

  // The tokens that only tokenizer_config.json or added_tokens.json has.
  absl::Status ReadAdded(const Json& config, const Json& added) {
    if (const Json* decoder = FindMember(config, "added_tokens_decoder", &Json::is_object)) {
      for (const auto& [key, token] : decoder->items()) {
        int64_t id = -1;
        if (!absl::SimpleAtoi(key, &id) || !token.is_object())
          return Damaged("added_tokens_decoder of tokenizer_config.json is not by ids");
        RETURN_IF_ERROR(AddToken(token.value("content", Json()), id));
      }
    }
    for (const auto& [content, id] : added.items()) RETURN_IF_ERROR(AddToken(content, id));
    return absl::OkStatus();
  }

  void ReadRoles(const Json& config, const Json& special) {
    for (const auto& [role, member] : kTokenRoles) {
      for (const Json* file : {&config, &special}) {
        const auto found = ids_.find(TokenNamed(*file, role));
        if (vocabulary_.ids.*member < 0 && found != ids_.end())
          vocabulary_.ids.*member = found->second;
      }
    }
    for (const char* mask : kMaskNames) {
      const auto found = added_.find(mask);
      if (vocabulary_.ids.mask < 0 && found != added_.end()) vocabulary_.ids.mask = found->second;
    }
  }

  absl::StatusOr<DatasetVocabulary> Finish() {
    if (ids_.empty()) return Damaged("its vocabulary is empty");
    vocabulary_.is_start_piece.assign(vocabulary_.size, false);
    bool has_marks = continues_with_hashes_;
    for (const auto& [piece, id] : ids_) {
      has_marks = has_marks || piece.starts_with(kByteSpace) || piece.starts_with(kMetaspace);
      vocabulary_.is_start_piece[static_cast<size_t>(id)] = BeginsWord(piece);
    }
    if (!has_marks) vocabulary_.is_start_piece.assign(vocabulary_.size, true);
    return std::move(vocabulary_);
  }

 private:
  template <typename... Parts>
  absl::Status Damaged(const Parts&... what) const {
    return DataLoss("'", name_, "': ", what..., "; fetch the tokenizer's files again");
  }

  absl::Status Add(const std::string& piece, const Json& id) {
    const bool is_id = id.is_number_integer() && id >= 0 && id < kMostDeclaredIds;
    if (!is_id) return Damaged("'", piece, "' has id ", DumpJson(id), ", not a small whole number");
    const auto number = id.get<int32_t>();
    ids_.emplace(piece, number);
    vocabulary_.size = std::max<uint64_t>(vocabulary_.size, static_cast<uint64_t>(number) + 1);
    return absl::OkStatus();
  }

  absl::Status AddToken(const Json& content, const Json& id) {
    if (!content.is_string()) return Damaged("an added token has no content");
    RETURN_IF_ERROR(Add(content.get<std::string>(), id));
    added_.emplace(content.get<std::string>(), id.get<int32_t>());
    return absl::OkStatus();
  }

  absl::Status ReadMap(const Json& vocab) {
    if (!vocab.is_object()) return Damaged("its vocabulary is neither an object nor a list");
    for (const auto& [piece, id] : vocab.items()) RETURN_IF_ERROR(Add(piece, id));
    return absl::OkStatus();
  }

  // Of a unigram model: pieces with their scores, ids by place.
  absl::Status ReadList(const Json& vocab) {
    for (size_t i = 0; i < vocab.size(); ++i) {
      const Json& entry = vocab[i];
      if (!entry.is_array() || entry.empty() || !entry[0].is_string())
        return Damaged("entry ", i, " of its vocabulary is not a piece with a score");
      RETURN_IF_ERROR(Add(entry[0].get<std::string>(), i));
    }
    return absl::OkStatus();
  }

  // The token of a role: a string, or an object with the string.
  static std::string TokenNamed(const Json& file, const char* role) {
    const Json* found = FindMember(file, role);
    if (found != nullptr && found->is_object()) found = FindMember(*found, "content");
    return found != nullptr && found->is_string() ? found->get<std::string>() : "";
  }

  bool BeginsWord(const std::string& piece) const {
    if (continues_with_hashes_) return !piece.starts_with("##");
    return IsStartPiece(piece) || piece.starts_with(kByteSpace) || piece.starts_with(kByteLineEnd);
  }

  const std::string name_;
  bool continues_with_hashes_ = false;  // WordPiece: "##ing"
  std::map<std::string, int32_t> ids_, added_;
  DatasetVocabulary vocabulary_;
};

// An object, empty where there is no file.
absl::StatusOr<Json> ParseNeighbour(const std::string& bytes, const char* file,
                                    const std::string& name) {
  if (bytes.empty()) return Json::object();
  Json root = TryParseJson(bytes);
  if (root.is_object()) return root;
  return DataLoss(file, " in the directory of '", name, "' is ", WhyNoJsonObject(bytes),
                  "; fetch it again, or remove it");
}

}  // namespace

absl::StatusOr<DatasetVocabulary> ParseHuggingFace(const std::string& json,
                                                   const std::string& config,
                                                   const std::string& special_tokens,
                                                   const std::string& added_tokens,
                                                   const std::string& name) {
  TokenizerJson reader(name);
  RETURN_IF_ERROR(reader.ReadModel(json));
  ASSIGN_OR_RETURN(const Json settings, ParseNeighbour(config, "tokenizer_config.json", name));
  ASSIGN_OR_RETURN(const Json special,
                   ParseNeighbour(special_tokens, "special_tokens_map.json", name));
  ASSIGN_OR_RETURN(const Json added, ParseNeighbour(added_tokens, "added_tokens.json", name));
  RETURN_IF_ERROR(reader.ReadAdded(settings, added));
  reader.ReadRoles(settings, special);
  return reader.Finish();
}

}  // namespace anyorder::data
