#include "data/trec/trec_files.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "core/base/json_members.h"
#include "core/base/status.h"
#include "core/base/unicode.h"
#include "core/base/whole_file.h"

namespace anyorder::data {
namespace {

using Cells = std::vector<std::string>;
using Json = nlohmann::json;

// Where each key was first.
class FirstLines {
 public:
  absl::Status Add(const std::string& key, const std::string& what, uint64_t line) {
    const auto [known, is_new] = lines_.emplace(key, line);
    if (is_new) return absl::OkStatus();
    return DataLoss(what, " was in line ", known->second, " before; remove one of the lines");
  }

 private:
  std::unordered_map<std::string, uint64_t> lines_;
};

// Calls `take` with each line of `path` that is not blank; what it says of one gets its place.
absl::Status ReadTrecLines(
    const std::string& path, const std::string& text,
    const std::function<absl::Status(absl::string_view line, uint64_t number)>& take) {
  uint64_t number = 0;
  bool is_empty = true;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty()) continue;
    is_empty = false;
    RETURN_IF_ERROR(Annotate(take(line, number), absl::StrCat(path, ":", number)));
  }
  return is_empty ? DataLoss("'", path, "' is empty; name a file with entries") : absl::OkStatus();
}

absl::StatusOr<std::string> ReadText(const std::string& path) {
  ASSIGN_OR_RETURN(std::string text, ReadWholeFile(path, kMaxTextBytes));
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  return text;
}

// Rows of `columns`, which a message lists.
absl::Status ReadTrecRows(
    const std::string& path, const Cells& columns,
    const std::function<absl::Status(const Cells& cells, uint64_t line)>& take) {
  ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  return ReadTrecLines(path, text, [&](absl::string_view line, uint64_t number) -> absl::Status {
    const Cells cells = absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    if (cells.size() == columns.size()) return take(cells, number);
    return DataLoss("the line has ", cells.size(), " columns, but ", columns.size(),
                    " are needed: ", absl::StrJoin(columns, ", "), "; repair the line");
  });
}

// "wt09-1" of the web track of 2009 is "1".
std::string TopicId(std::string id) {
  const size_t dash = id.find('-');
  const bool is_track = dash == 4 && absl::StartsWith(id, "wt") && std::isdigit(id[2]) != 0 &&
                        std::isdigit(id[3]) != 0 && dash + 1 < id.size();
  return is_track ? id.substr(dash + 1) : id;
}

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

std::string WithoutEntities(absl::string_view text) {
  return absl::StrReplaceAll(
      text, {{"&lt;", "<"}, {"&gt;", ">"}, {"&quot;", "\""}, {"&apos;", "'"}, {"&amp;", "&"}});
}

class TopicFile {
 public:
  TopicFile(const std::string& path, const std::string& text) : path_(path), text_(text) {}

  absl::StatusOr<std::vector<TrecTopic>> Read() {
    const size_t first = text_.find_first_not_of(" \t\r\n");
    const bool is_xml = first != std::string::npos && text_[first] == '<';
    RETURN_IF_ERROR(is_xml
                        ? ReadXml()
                        : ReadTrecLines(path_, text_, [&](absl::string_view line, uint64_t number) {
                            return AddLine(line, number);
                          }));
    return std::move(topics_);
  }

 private:
  absl::Status AddLine(absl::string_view line, uint64_t number) {
    const size_t colon = line.find(':');
    if (colon == absl::string_view::npos)
      return DataLoss("the line is not NUMBER:QUERY, such as 51:horse hooves");
    return Add(std::string(line.substr(0, colon)), std::string(line.substr(colon + 1)), number);
  }

  absl::Status Add(std::string id, std::string query, uint64_t line) {
    id = TopicId(std::string(absl::StripAsciiWhitespace(id)));
    absl::RemoveExtraAsciiWhitespace(&query);
    if (id.empty()) return DataLoss("the topic has no number");
    if (query.empty()) return DataLoss("topic ", id, " has no query");
    RETURN_IF_ERROR(seen_.Add(id, absl::StrCat("topic ", id), line));
    topics_.push_back({std::move(id), std::move(query)});
    return absl::OkStatus();
  }

  absl::Status ReadXml() {
    uint64_t line = 1;
    for (size_t at = 0, counted = 0; (at = text_.find("<topic ", at)) != std::string::npos;) {
      line += static_cast<uint64_t>(std::count(&text_[counted], &text_[at], '\n'));
      counted = at;
      RETURN_IF_ERROR(Annotate(ReadTopic(at, line), absl::StrCat(path_, ":", line)));
    }
    if (!topics_.empty()) return absl::OkStatus();
    return DataLoss(
        "'", path_,
        "' has no <topic number=\"...\">; name the web track's XML, or lines NUMBER:QUERY");
  }

  // The element at `at`; moves `at` to its end.
  absl::Status ReadTopic(size_t& at, uint64_t line) {
    const size_t end = text_.find("</topic>", at);
    // One that is not closed reaches into the next.
    if (end == std::string::npos || text_.find("<topic ", at + 1) < end)
      return DataLoss("the element <topic> is not closed");
    const absl::string_view topic = absl::string_view(text_).substr(at, end - at);
    at = end;
    const absl::string_view tag = topic.substr(0, topic.find('>'));
    std::string id;
    for (const char quote : {'"', '\''}) {
      const std::string name = absl::StrCat(" number=", std::string(1, quote));
      const size_t begin = tag.find(name);
      if (begin == absl::string_view::npos) continue;
      const absl::string_view value = tag.substr(begin + name.size());
      id = std::string(value.substr(0, value.find(quote)));
    }
    size_t from = 0;
    absl::string_view query;
    NextElement(topic, "query", &from, &query);
    return Add(std::move(id), WithoutEntities(query), line);
  }

  const std::string& path_;
  const std::string& text_;
  FirstLines seen_;
  std::vector<TrecTopic> topics_;
};

constexpr absl::string_view kRecordEnd = "</DOC>";

bool BeginsTag(absl::string_view text) {
  return text.size() > 1 && (absl::ascii_isalpha(text[1]) || text[1] == '/' || text[1] == '!');
}

std::string WithoutTags(absl::string_view text) {
  std::string plain;
  for (size_t at = 0, close = text.find('>'); at < text.size(); ++at) {
    if (close < at) close = text.find('>', at);
    const bool is_tag = text[at] == '<' && close != text.npos && BeginsTag(text.substr(at));
    plain.push_back(is_tag ? ' ' : text[at]);
    if (is_tag) at = close;
  }
  return WithoutEntities(plain);
}

std::string ValidText(std::string text) {
  std::replace(text.begin(), text.end(), '\0', ' ');
  return TryParseJson(DumpJson(Json(text))).get<std::string>();
}

class DocumentReader {
 public:
  DocumentReader(const std::unordered_set<std::string>& wanted, TrecDocuments* documents)
      : wanted_(wanted), documents_(*documents) {}

  absl::Status Take(absl::string_view line) {
    if (is_first_) absl::ConsumePrefix(&line, {kByteOrderMark.data(), kByteOrderMark.size()});
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
  absl::Status TakeJson(absl::string_view line) {
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

  absl::Status TakeTrecLine(absl::string_view line) {
    if (record_.empty()) {
      const absl::string_view bare = absl::StripAsciiWhitespace(line);
      if (bare.empty()) return absl::OkStatus();
      if (!absl::StartsWith(bare, "<DOC>")) return DataLoss("the line does not begin with <DOC>");
    }
    absl::StrAppend(&record_, line, "\n");
    if (record_.size() > kMaxTableBytes)
      return DataLoss("a record of more than ", kMaxTableBytes, " bytes");
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

absl::StatusOr<std::vector<TrecTopic>> ReadTrecTopics(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  return TopicFile(path, text).Read();
}

absl::StatusOr<std::vector<TrecJudgment>> ReadTrecJudgments(const std::string& path) {
  std::vector<TrecJudgment> judgments;
  FirstLines seen;
  RETURN_IF_ERROR(ReadTrecRows(
      path, {"topic", "subtopic", "document", "relevance"},
      [&](const Cells& cells, uint64_t line) -> absl::Status {
        TrecJudgment judgment{.topic = cells[0], .subtopic = cells[1], .document = cells[2]};
        if (!absl::SimpleAtoi(cells[3], &judgment.relevance))
          return DataLoss("the relevance '", cells[3], "' is not a whole number");
        RETURN_IF_ERROR(seen.Add(absl::StrCat(cells[0], " ", cells[1], " ", cells[2]),
                                 absl::StrCat("document ", cells[2], " of topic ", cells[0]),
                                 line));
        judgments.push_back(std::move(judgment));
        return absl::OkStatus();
      }));
  return judgments;
}

absl::StatusOr<std::vector<TrecRunEntry>> ReadTrecRun(const std::string& path) {
  std::vector<TrecRunEntry> run;
  FirstLines seen;
  RETURN_IF_ERROR(ReadTrecRows(
      path, {"topic", "Q0", "document", "rank", "score", "tag"},
      [&](const Cells& cells, uint64_t line) -> absl::Status {
        TrecRunEntry entry{.topic = cells[0], .document = cells[2], .tag = cells[5]};
        if (!absl::SimpleAtoi(cells[3], &entry.rank) || entry.rank < 0)
          return DataLoss("the rank '", cells[3], "' is not a whole number from 0");
        if (!absl::SimpleAtod(cells[4], &entry.score) || !std::isfinite(entry.score))
          return DataLoss("the score '", cells[4], "' is not a finite number");
        RETURN_IF_ERROR(seen.Add(absl::StrCat(cells[0], " ", cells[2]),
                                 absl::StrCat("document ", cells[2], " of topic ", cells[0]),
                                 line));
        run.push_back(std::move(entry));
        return absl::OkStatus();
      }));
  return run;
}

absl::Status ReadTrecDocuments(const std::string& path,
                               const std::unordered_set<std::string>& wanted,
                               TrecDocuments* documents) {
  std::ifstream file(path, std::ios::binary);
  if (!file.is_open()) return ErrnoStatus("open", path);
  DocumentReader reader(wanted, documents);
  const auto line = std::make_unique_for_overwrite<char[]>(kMaxTableBytes);
  uint64_t number = 1;
  for (; file.getline(line.get(), kMaxTableBytes); ++number) {
    const auto bytes = static_cast<size_t>(file.gcount()) - (file.eof() ? 0 : 1);
    RETURN_IF_ERROR(Annotate(reader.Take({line.get(), bytes}), absl::StrCat(path, ":", number)));
  }
  if (file.bad()) return ErrnoStatus("read", path, errno == 0 ? EIO : errno);
  if (!file.eof())
    return DataLoss(path, ":", number, ": a line of ", kMaxTableBytes, " bytes; shorten it");
  return Annotate(reader.Finish(), path);
}

}  // namespace anyorder::data
