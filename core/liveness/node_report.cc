#include "core/liveness/node_report.h"

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace anyorder::liveness {
namespace {

// Fields of a line are divided by tabs, which escaping leaves in no text. Each type lists its
// fields once, for both directions.
template <typename Rank, typename Visitor>
void VisitRank(Rank& rank, Visitor& visit) {
  auto& state = rank.state;
  visit(state.rank), visit(state.process_id);
  visit(state.host), visit(state.ticks), visit(state.has_ended), visit(state.phase);
  visit(state.num_phases), visit(state.progress), visit(state.collective), visit(state.number);
  visit(state.in_collective), visit(state.times.steps), visit(state.times.compute_ns);
  visit(state.times.data_wait_ns), visit(state.times.communication_ns), visit(rank.is_connected);
}

template <typename Node, typename Visitor>
void VisitNode(Node& node, Visitor& visit) {
  visit(node.node), visit(node.host), visit(node.now), visit(node.file_wait);
  visit(node.is_serving);
}

struct Writer {
  std::string text;
  void operator()(const std::string& value) { Append(absl::CEscape(value)); }
  void operator()(int64_t value) { Append(absl::StrCat(value)); }
  void operator()(absl::Time value) { (*this)(absl::ToUnixNanos(value)); }
  void operator()(absl::Duration value) { (*this)(absl::ToInt64Nanoseconds(value)); }
  void Append(absl::string_view field) { absl::StrAppend(&text, field, "\t"); }
};

struct Reader {
  std::vector<absl::string_view> fields;
  size_t taken = 0;
  bool ok = true;

  // Whether all fields were there, each with the tab after it, and no more.
  bool IsDone() const { return ok && taken + 1 == fields.size(); }
  absl::string_view Next() {
    ok = ok && taken < fields.size();
    return ok ? fields[taken++] : absl::string_view();
  }
  void operator()(std::string& value) { ok = absl::CUnescape(Next(), &value) && ok; }
  void operator()(int& value) { ok = absl::SimpleAtoi(Next(), &value) && ok; }
  void operator()(int64_t& value) { ok = absl::SimpleAtoi(Next(), &value) && ok; }
  void operator()(bool& value) { value = Number() != 0; }
  void operator()(absl::Time& value) { value = absl::FromUnixNanos(Number()); }
  void operator()(absl::Duration& value) { value = absl::Nanoseconds(Number()); }
  int64_t Number() {
    int64_t value = 0;
    (*this)(value);
    return value;
  }
};

}  // namespace

std::string SerializeNodeReport(const NodeReport& report) {
  Writer writer;
  VisitNode(report, writer);
  for (const RankReport& rank : report.ranks) {
    writer.text += '\n';
    VisitRank(rank, writer);
  }
  return writer.text;
}

absl::StatusOr<NodeReport> ParseNodeReport(absl::string_view text) {
  NodeReport report;
  bool is_first = true;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    Reader reader;
    reader.fields = absl::StrSplit(line, '\t');
    if (is_first) {
      VisitNode(report, reader);
    } else {
      VisitRank(report.ranks.emplace_back(), reader);
    }
    is_first = false;
    if (!reader.IsDone()) return absl::DataLossError("the report of a node is malformed");
  }
  return report;
}

}  // namespace anyorder::liveness
