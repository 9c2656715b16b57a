#include "data/dataset/dataset_index.h"

#include <filesystem>
#include <limits>
#include <system_error>

#include "absl/strings/str_cat.h"

#include "core/base/digest.h"
#include "core/base/file_system.h"
#include "core/base/json_members.h"
#include "core/base/status.h"
#include "data/dataset/shard_format.h"

namespace anyorder::data {
namespace {

using Json = nlohmann::json;  // std::map inside: keys come out sorted, which dataset_digest needs

constexpr std::pair<const char*, uint64_t DatasetIndex::*> kIntegerFields[] = {
    {"num_tokens", &DatasetIndex::num_tokens},
    {"num_documents", &DatasetIndex::num_documents},
    {"num_sentences", &DatasetIndex::num_sentences},
    {"token_bytes", &DatasetIndex::token_bytes},
    {"shard_tokens", &DatasetIndex::shard_tokens},
    {"chunk_bytes", &DatasetIndex::chunk_bytes},
    {"vocab_size", &DatasetIndex::vocab_size},
};

constexpr std::pair<const char*, std::string DatasetIndex::*> kStringFields[] = {
    {"tokenizer_digest", &DatasetIndex::tokenizer_digest},
    {"corpus_digest", &DatasetIndex::corpus_digest},
    {"dataset_digest", &DatasetIndex::dataset_digest},
};

using Reader = MemberReader<Json>;

// The member `key` if it exists; otherwise null and noted.
const Json* Require(const Json& object, const std::string& key, Reader& reader) {
  const Json* const member = FindMember(object, key);
  if (member == nullptr) reader.Note(key);
  return member;
}

void ReadFileEntry(const Json* object, DatasetFile& entry, Reader& parent) {
  if (object == nullptr) return;
  Reader reader(*object);
  reader("file", entry.file);
  reader("digest", entry.digest);
  reader("bytes", entry.bytes);
  if (entry.file.empty() || entry.file.find('/') != std::string::npos) reader.Note("file");
  if (!reader.bad().empty())
    parent.Note(absl::StrCat("shards, tokenizer or examples: ", reader.bad()));
}

// Every tokenizer has an id for the end of a document; it may lack the others.
void ReadVocabIds(const Json& object, VocabIds& ids, Reader& parent) {
  Reader reader(object);
  for (const auto& [key, member] : kVocabIdFields) {
    if (member != &VocabIds::eod && object.is_object() && !object.contains(key)) continue;
    uint64_t id = 0;
    reader(key, id);
    if (id > static_cast<uint64_t>(std::numeric_limits<int32_t>::max())) reader.Note(key);
    ids.*member = static_cast<int32_t>(id);
  }
  if (!reader.bad().empty()) parent.Note(absl::StrCat("vocab_ids.", reader.bad()));
}

void ReadExamples(const Json& object, ExamplesEntry& entry, Reader& parent) {
  Reader reader(object);
  ReadFileEntry(&object, entry.table, parent);
  reader("num_examples", entry.num_examples);
  reader("num_parts", entry.num_parts);
  std::string task;
  reader("task", task);
  if (!ParseEnum(task, entry.task)) reader.Note("task");
  reader("classes", entry.classes);
  if (const Json* const origins = FindMember(object, "sources"))
    ReadFileEntry(origins, entry.origins.emplace(), reader);
  if (!reader.bad().empty()) parent.Note(absl::StrCat("examples.", reader.bad()));
}

// What fits of an object.
template <typename Value>
void ReadMap(const Json* object, std::map<std::string, Value>& map) {
  if (object == nullptr || !object->is_object()) return;
  for (const auto& [key, value] : object->items())
    if (Holds<Value>(value)) map[key] = value.template get<Value>();
}

// Fills `index` from `root`. Returns the name of the first bad member, "" if all are good.
std::string ReadMembers(const Json& root, DatasetIndex& index) {
  Reader reader(root);
  for (const auto& [key, member] : kIntegerFields) reader(key, index.*member);
  for (const auto& [key, member] : kStringFields) reader(key, index.*member);
  if (const Json* ids = Require(root, "vocab_ids", reader))
    ReadVocabIds(*ids, index.vocab_ids, reader);
  if (root.contains("declared")) reader("declared", index.declared);
  ReadFileEntry(Require(root, "shards", reader), index.shards, reader);
  ReadFileEntry(Require(root, "tokenizer", reader), index.tokenizer, reader);
  if (const Json* examples = FindMember(root, "examples"))
    ReadExamples(*examples, index.examples.emplace(), reader);
  ReadMap(Require(root, "settings", reader), index.settings);
  ReadMap(Require(root, "counts", reader), index.counts);
  return reader.bad();
}

// "" if the numbers of `index` fit together; otherwise what does not.
std::string FindInconsistency(const DatasetIndex& index) {
  if (index.shard_tokens == 0 || index.shard_tokens % kShardTokensMultiple != 0)
    return absl::StrCat("shard_tokens ", index.shard_tokens, " is not a positive multiple of ", 64);
  // Far beyond any corpus, and far enough from 2^63 that sums of positions cannot wrap.
  if (index.num_tokens > uint64_t{1} << 56) return "num_tokens is above 2^56";
  if (index.shard_tokens > uint64_t{1} << 40) return "shard_tokens is above 2^40";
  if (index.vocab_size > uint64_t{1} << 30) return "vocab_size is above 2^30";
  if (index.token_bytes != TokenBytes(index.vocab_size))
    return "token_bytes does not fit vocab_size";
  if (index.chunk_bytes != kChunkBytes) return "chunk_bytes is not 65536";
  for (const auto& [key, member] : kVocabIdFields) {
    const int32_t id = index.vocab_ids.*member;
    if (id >= 0 && static_cast<uint64_t>(id) >= index.vocab_size)
      return absl::StrCat("vocab_ids.", key, " is outside the vocabulary");
  }
  // Every part has a token at least, so that no size that follows from these can wrap.
  if (index.examples && (index.examples->num_examples == 0 ||
                         index.examples->num_examples > index.examples->num_parts ||
                         index.examples->num_parts > index.num_tokens ||
                         index.examples->num_parts > uint64_t{1} << 31)) {
    return absl::StrCat("examples: ", index.examples->num_examples, " of ",
                        index.examples->num_parts, " parts do not fit ", index.num_tokens,
                        " tokens");
  }
  return "";
}

Json FileEntry(const DatasetFile& entry) {
  return {{"file", entry.file}, {"bytes", entry.bytes}, {"digest", entry.digest}};
}

}  // namespace

std::string TokenizerDigest(const std::string& file_digest, const std::string& declared) {
  return declared.empty() ? file_digest : DigestOf(absl::StrCat(file_digest, " ", declared)).Hex();
}

absl::StatusOr<DatasetIndex> ReadDatasetIndex(const std::string& directory) {
  const std::string path = absl::StrCat(directory, "/", kIndexFile);
  const absl::StatusOr<std::string> text = ReadSmallFile(FileSystem::Posix(), path);
  if (!text.ok()) {
    return Annotate(text.status(),
                    "not a finished dataset (run anyorder-prep to make or finish it)");
  }
  const auto damaged = [&](absl::string_view why) {
    return DataLoss("'", path, "': ", why, "; restore it or prepare the data again");
  };
  absl::StatusOr<Json> parsed = ParseJsonObject(*text);
  if (!parsed.ok()) return damaged(parsed.status().message());
  Json& root = *parsed;
  if (root.value("format", Json()) != kFormatName) return damaged("not an anyorder dataset");
  const Json version = root.value("format_version", Json());
  if (version != kIndexVersion && version != kIndexVersion - 1) {
    return FailedPrecondition("'", path, "' has format version ", DumpJson(version),
                              ", this program reads ", kIndexVersion - 1, " and ", kIndexVersion,
                              "; prepare the same text again: anyorder-prep --input TEXT "
                              "--output NEW-FOLDER --vocab '",
                              directory, "/", kTokenizerFile,
                              "', with the options under \"settings\"");
  }
  DatasetIndex index;
  const std::string bad = ReadMembers(root, index);
  if (!bad.empty()) return damaged(absl::StrCat("missing or ill-typed: ", bad));
  root.erase("dataset_digest");
  // Only the digest's own value can differ after a faithful rewrite of the file.
  if (DigestOf(DumpJson(root)).Hex() != index.dataset_digest)
    return damaged("does not match its dataset_digest");
  const std::string fault = FindInconsistency(index);
  if (!fault.empty()) return damaged(fault);
  return index;
}

std::string SerializeDatasetIndex(const DatasetIndex& index) {
  Json root{{"format", kFormatName}, {"format_version", kIndexVersion}};
  for (const auto& [key, member] : kIntegerFields) root[key] = index.*member;
  for (const auto& [key, member] : kVocabIdFields) {
    if (index.vocab_ids.*member >= 0)
      root["vocab_ids"][key] = static_cast<uint32_t>(index.vocab_ids.*member);
  }
  root["shards"] = FileEntry(index.shards);
  root["tokenizer"] = FileEntry(index.tokenizer);
  if (!index.declared.empty()) root["declared"] = index.declared;
  if (index.examples) {
    Json& examples = root["examples"] = FileEntry(index.examples->table);
    examples["task"] = EnumName(index.examples->task);
    examples["num_examples"] = index.examples->num_examples;
    examples["num_parts"] = index.examples->num_parts;
    examples["classes"] = index.examples->classes;
    if (index.examples->origins) examples["sources"] = FileEntry(*index.examples->origins);
  }
  root["settings"] = index.settings;
  root["counts"] = index.counts;
  root["tokenizer_digest"] = index.tokenizer_digest;
  root["corpus_digest"] = index.corpus_digest;
  root["dataset_digest"] = DigestOf(DumpJson(root)).Hex();
  return DumpJson(root, 2) + "\n";
}

absl::Status CheckIsDataset(absl::string_view what, const std::string& directory) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_status found = fs::status(directory, error);
  const bool has_index = !error && fs::exists(absl::StrCat(directory, "/", kIndexFile), error);
  std::string why;
  if (found.type() == fs::file_type::not_found) {
    why = "does not exist";
  } else if (error == std::errc::permission_denied ||
             error == std::errc::too_many_symbolic_link_levels) {
    why = absl::StrCat("cannot be read (", error.message(), ")");
  } else if (has_index || error) {
    return absl::OkStatus();  // a disk that fails is for the reader to report
  } else if (!fs::is_directory(found)) {
    why = "is not a directory";
  } else {
    why = fs::exists(directory + "/config.toml", error) ? "is a run directory"
                                                        : absl::StrCat("holds no ", kIndexFile);
  }
  return InvalidArgument(what, " '", directory, "' ", why,
                         "; name a directory that `anyorder prep --output` wrote");
}

}  // namespace anyorder::data
