#include "data/trec/document_files.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <fstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"

#include "core/base/json_members.h"
#include "core/base/status.h"

namespace anyorder::data {
namespace {

using Json = nlohmann::json;

constexpr absl::string_view kRecordEnd = "</DOC>";

// What stands between <NAME> and </NAME> from `at` on, which moves behind it; false if there is no
// such element.
bool NextElement(absl::string_view text, absl::string_view name, size_t* at,
                 absl::string_view* content) {
  const std::string open = absl::StrCat("<", name, ">");
  const size_t begin = text.find(open, *at);
  if (begin == absl::string_view::npos) return false;
  const size_t end = text.find(absl::StrCat("</", name, ">"), begin);
  if (end == absl::string_view::npos) return false;
  *content = text.substr(begin + open.size(), end - begin - open.size());
  *at = end;
  return true;
}

bool BeginsTag(absl::string_view text) {
  return text.size() > 1 && (absl::ascii_isalpha(text[1]) || text[1] == '/' || text[1] == '!');
}

std::string WithoutTags(absl::string_view text) {
  std::string plain;
  for (size_t at = 0; at < text.size(); ++at) {
    const size_t close = text[at] == '<' ? text.find('>', at) : absl::string_view::npos;
    const bool is_tag = close != absl::string_view::npos && BeginsTag(text.substr(at));
    plain.push_back(is_tag ? ' ' : text[at]);
    if (is_tag) at = close;
  }
  return absl::StrReplaceAll(
      plain, {{"&lt;", "<"}, {"&gt;", ">"}, {"&quot;", "\""}, {"&apos;", "'"}, {"&amp;", "&"}});
}

std::string ValidText(std::string text) {
  std::replace(text.begin(), text.end(), '\0', ' ');
  return TryParseJson(DumpJson(Json(text))).get<std::string>();
}

class DocumentReader {
 public:
  DocumentReader(const std::unordered_set<std::string>& wanted, TrecDocuments* documents)
      : wanted_(wanted), documents_(*documents) {}

  absl::Status Take(const std::string& line) {
    if (is_trec_) return TakeTrecLine(line);
    const absl::string_view bare = absl::StripAsciiWhitespace(line);
    if (bare.empty()) return absl::OkStatus();
    if (is_first_ && bare.front() == '<') {
      is_trec_ = true;
      return TakeTrecLine(line);
    }
    is_first_ = false;
    return TakeJson(line);
  }

  absl::Status Finish() const {
    if (is_trec_ && !record_.empty())
      return DataLoss("the last <DOC> has no </DOC>; the file is cut off");
    if (num_documents_ > 0) return absl::OkStatus();
    return DataLoss("the file holds no document; name one of JSON lines or of <DOC> records");
  }

 private:
  absl::Status TakeJson(const std::string& line) {
    const Json object = TryParseJson(line);
    if (object.is_discarded()) return DataLoss(WhyNoJsonObject(line), "; fix the line");
    std::string id, text;
    MemberReader read(object);
    read("id", id);
    read("text", text);
    if (!read.bad().empty())
      return DataLoss("not a JSON object with the strings \"id\" and \"text\"; fix the line");
    return Add(id, std::move(text));
  }

  absl::Status TakeTrecLine(const std::string& line) {
    if (record_.empty()) {
      const absl::string_view bare = absl::StripAsciiWhitespace(line);
      if (bare.empty()) return absl::OkStatus();
      if (!absl::StartsWith(bare, "<DOC>")) return DataLoss("the line does not begin with <DOC>");
    }
    absl::StrAppend(&record_, line, "\n");
    if (!absl::StrContains(line, kRecordEnd)) return absl::OkStatus();
    const std::string record = std::exchange(record_, "");
    size_t at = 0;
    absl::string_view id;
    if (!NextElement(record, "DOCNO", &at, &id))
      return DataLoss("the record that ends here has no <DOCNO>");
    std::string text;
    absl::string_view part;
    for (at = 0; NextElement(record, "TEXT", &at, &part);) absl::StrAppend(&text, part, " ");
    return Add(std::string(absl::StripAsciiWhitespace(id)), WithoutTags(text));
  }

  absl::Status Add(const std::string& id, std::string text) {
    ++num_documents_;
    if (!wanted_.contains(id)) return absl::OkStatus();
    if (documents_.emplace(id, ValidText(std::move(text))).second) return absl::OkStatus();
    return DataLoss("document ", id, " was read before; remove one of the two");
  }

  const std::unordered_set<std::string>& wanted_;
  TrecDocuments& documents_;
  bool is_first_ = true;
  bool is_trec_ = false;
  std::string record_;  // of TREC text, as far as it was read
  int64_t num_documents_ = 0;
};

}  // namespace

absl::Status ReadTrecDocuments(const std::string& path,
                               const std::unordered_set<std::string>& wanted,
                               TrecDocuments* documents) {
  std::ifstream file(path, std::ios::binary);
  if (!file.is_open()) return ErrnoStatus("open", path);
  DocumentReader reader(wanted, documents);
  std::string line;
  for (uint64_t number = 1; std::getline(file, line); ++number)
    RETURN_IF_ERROR(Annotate(reader.Take(line), absl::StrCat(path, ":", number)));
  if (file.bad()) return ErrnoStatus("read", path, errno == 0 ? EIO : errno);
  return Annotate(reader.Finish(), path);
}

}  // namespace anyorder::data
