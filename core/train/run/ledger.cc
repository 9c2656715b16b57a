#include "core/train/run/ledger.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

#include "core/base/crc32c.h"
#include "core/base/json_members.h"
#include "core/base/log.h"
#include "core/base/mutex.h"
#include "core/base/status.h"
#include "core/base/utc_time.h"
#include "core/base/whole_file.h"

namespace anyorder {
namespace {

using Json = nlohmann::ordered_json;

// A line: kRecordBegin ... kSealKey, eight digits, kSealEnd.
constexpr absl::string_view kRecordBegin = "{\"event\":\"";
constexpr absl::string_view kSealKey = ",\"crc32c\":\"";
constexpr absl::string_view kSealEnd = "\"}";
constexpr size_t kSealDigits = 8;
constexpr int kMaxDamagedSealBytes = 2;  // or of what begins it

// The members of all events, in the order in which they are written: those that `event` has.
void VisitMembers(auto& event, auto&& visit) {
#define ANYORDER_VISIT(member) \
  if constexpr (requires { event.member; }) visit(#member, event.member)
  ANYORDER_VISIT(run_id);
  ANYORDER_VISIT(attempt);
  ANYORDER_VISIT(ranks);
  ANYORDER_VISIT(step);
  ANYORDER_VISIT(first_step);
  ANYORDER_VISIT(last_step);
  ANYORDER_VISIT(generation);
  ANYORDER_VISIT(stop_seconds);
  ANYORDER_VISIT(trained_step);
  ANYORDER_VISIT(exit_status);
  ANYORDER_VISIT(may_restart);
  ANYORDER_VISIT(rank);
  ANYORDER_VISIT(lanes);
  ANYORDER_VISIT(reason);
  ANYORDER_VISIT(config_digest);
  ANYORDER_VISIT(dataset_digest);
  ANYORDER_VISIT(detail);
  ANYORDER_VISIT(slurm_job);
  ANYORDER_VISIT(slurm_restart);
  ANYORDER_VISIT(nodes);
#undef ANYORDER_VISIT
}

// The empty event of this name, or nothing if there is none.
template <size_t... kIndices>
std::optional<ledger::Event> EventNamed(absl::string_view name,
                                        std::index_sequence<kIndices...> /*all*/) {
  std::optional<ledger::Event> found;
  const auto try_kind = [&](auto kind) {
    if (name == kind.kName) found = kind;
  };
  (try_kind(std::variant_alternative_t<kIndices, ledger::Event>()), ...);
  return found;
}

bool IsGiven(int64_t value) { return value >= 0; }
bool IsGiven(const std::string& value) { return !value.empty(); }
bool IsGiven(const std::vector<std::string>& value) { return !value.empty(); }

std::string Seal(absl::string_view body) {
  return absl::StrFormat("%08x", Crc32c(body.data(), std::ssize(body)));
}

bool IsSealed(absl::string_view line) {
  const size_t seal = line.rfind(kSealKey);
  return seal != absl::string_view::npos &&
         line.substr(seal + kSealKey.size()) == absl::StrCat(Seal(line.substr(0, seal)), kSealEnd);
}

int Differences(absl::string_view text, absl::string_view expected) {
  int differences = 0;
  for (size_t i = 0; i < expected.size(); ++i) differences += text[i] != expected[i] ? 1 : 0;
  return differences;
}

// Whether it is what appends that failed have left: beginnings of records, without their seals. A
// record whose seal is damaged still has nearly all of it in its place.
bool IsFragment(absl::string_view line) {
  for (size_t seal = line.find(kSealKey); seal != absl::string_view::npos;
       seal = line.find(kSealKey, seal + 1)) {
    const size_t end = seal + kSealKey.size() + kSealDigits;
    if (end < line.size() && absl::StartsWith(line.substr(end), kSealEnd)) return false;
  }
  const size_t size = kSealKey.size() + kSealDigits + kSealEnd.size();
  if (line.size() < size) return true;
  const absl::string_view end = line.substr(line.size() - size);
  return Differences(end, kSealKey) + Differences(end.substr(size - kSealEnd.size()), kSealEnd) >
         kMaxDamagedSealBytes;
}

// Of a line that is damaged: whether it is the end of a record and nothing else, as NFS leaves it
// where the append of another machine has overwritten the beginning.
bool LacksBegin(absl::string_view line) {
  return absl::EndsWith(line, kSealEnd) && Differences(line, kRecordBegin) > kMaxDamagedSealBytes &&
         !absl::StrContains(line, kRecordBegin);
}

// The sealed record at the end of `line`, behind what `fragment` gets: nothing, or the fragment of
// another process's append. Empty if the whole line is a fragment. DataLoss if it is damaged.
absl::StatusOr<absl::string_view> FindRecord(absl::string_view line, absl::string_view* fragment) {
  for (size_t begin = 0; begin != absl::string_view::npos;
       begin = line.find(kRecordBegin, begin + 1)) {
    *fragment = line.substr(0, begin);
    if (IsSealed(line.substr(begin)) && IsFragment(*fragment)) return line.substr(begin);
  }
  *fragment = line;
  if (IsFragment(line)) return absl::string_view();
  return DataLoss(
      "checksum does not match; restore the file from a copy, or move it away and launch again");
}

// Nothing for an event that is not known.
absl::StatusOr<std::optional<LedgerRecord>> ParseRecord(absl::string_view line) {
  ASSIGN_OR_RETURN(const Json json, ParseJsonObject<Json>(line));
  MemberReader take(json);
  std::string name;
  take("event", name);
  std::optional<ledger::Event> event =
      EventNamed(name, std::make_index_sequence<std::variant_size_v<ledger::Event>>());
  if (!event) return std::nullopt;
  std::visit([&take](auto& kind) { VisitMembers(kind, take); }, *event);
  LedgerRecord record{"", *std::move(event)};
  take("time", record.time);
  return record;
}

// Once for each place: some programs read the ledger again and again.
void WarnOnce(const std::string& place, absl::string_view what) {
  static Mutex mutex;
  static auto* const told ABSL_PT_GUARDED_BY(mutex) = new std::set<std::string>;
  const MutexLock lock(&mutex);
  if (!told->insert(place).second) return;
  LogWarning(absl::StrCat(place, ": left out ", what));
}

}  // namespace

absl::StatusOr<Ledger> Ledger::Open(const std::string& path) {
  ASSIGN_OR_RETURN(AppendFile file, AppendFile::Open(path));
  return Ledger(std::move(file));
}

absl::Status Ledger::Append(const ledger::Event& event) {
  Json json;
  std::visit(
      [&json](const auto& kind) {
        json["event"] = kind.kName;
        json["time"] = UtcTimeStamp();
        VisitMembers(kind, [&json](const char* key, const auto& value) {
          if (IsGiven(value)) json[key] = value;
        });
      },
      event);
  std::string line = DumpJson(json);
  line.pop_back();  // the closing brace comes back after the checksum
  const std::string seal = Seal(line);
  RETURN_IF_ERROR(file_.AppendLine(absl::StrCat(line, kSealKey, seal, kSealEnd)));
  return file_.Sync();
}

absl::StatusOr<std::vector<LedgerRecord>> ReadLedgerFile(const std::string& path) {
  static constexpr char kOverwritten[] =
      "a record whose beginning another machine has overwritten; what it said is not known";
  std::vector<LedgerRecord> records;
  const absl::StatusOr<std::string> whole = ReadRegularFile(path, kMaxTextBytes);
  if (absl::IsNotFound(whole.status())) return records;
  RETURN_IF_ERROR(whole.status());
  std::vector<absl::string_view> lines = absl::StrSplit(*whole, '\n');
  lines.pop_back();  // what follows the last newline: nothing, or a torn line
  bool follows_record = false;
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string place = absl::StrCat(path, ":", i + 1);
    absl::string_view fragment;
    const absl::StatusOr<absl::string_view> line = FindRecord(lines[i], &fragment);
    if (!line.ok() && std::exchange(follows_record, false) && LacksBegin(lines[i])) {
      WarnOnce(place, kOverwritten);
      const LedgerRecord before = records.empty() ? LedgerRecord() : records.back();
      records.push_back({before.time, ledger::Lost{before.attempt(), -1, kOverwritten}});
      continue;
    }
    if (!line.ok()) return Annotate(line.status(), place);
    follows_record = !line->empty();
    if (!fragment.empty()) WarnOnce(place, "the fragment of a record that could not be written");
    if (line->empty()) continue;
    absl::StatusOr<std::optional<LedgerRecord>> record = ParseRecord(*line);
    if (!record.ok()) return Annotate(record.status(), place);
    if (record->has_value()) records.push_back(**std::move(record));
  }
  return records;
}

absl::StatusOr<std::vector<LedgerRecord>> ReadLedger(const RunDirectory& paths) {
  ASSIGN_OR_RETURN(std::vector<LedgerRecord> of_rank, ReadLedgerFile(paths.ledger));
  ASSIGN_OR_RETURN(std::vector<LedgerRecord> of_launcher, ReadLedgerFile(paths.launcher_ledger));
  std::vector<LedgerRecord> records;
  auto next = of_rank.begin();
  for (LedgerRecord& record : of_launcher) {
    const bool is_end = record.As<ledger::Straggler>() || record.As<ledger::Exit>();
    while (next != of_rank.end() && next->attempt() < record.attempt() + (is_end ? 1 : 0))
      records.push_back(std::move(*next++));
    records.push_back(std::move(record));
  }
  std::move(next, of_rank.end(), std::back_inserter(records));
  return records;
}

int64_t LedgerRecord::attempt() const {
  return std::visit(
      [](const auto& kind) -> int64_t {
        if constexpr (requires { kind.attempt; }) return kind.attempt;
        return -1;
      },
      event);
}

LedgerSummary Summarize(const std::vector<LedgerRecord>& records) {
  LedgerSummary summary;
  bool has_diverged = false;
  for (const LedgerRecord& record : records) {
    if (const auto* created = record.As<ledger::Created>()) summary.run_id = created->run_id;
    if (const auto* start = record.As<ledger::Start>())
      summary.attempts = std::max(summary.attempts, start->attempt);
    // One without a step ended in set-up, and says nothing of the weights.
    if (const auto* stop = record.As<ledger::Stop>(); stop != nullptr && stop->step >= 0)
      has_diverged = stop->has_diverged();
    if (const auto* train = record.As<ledger::Train>()) {
      if (!train->dataset_digest.empty()) summary.dataset_digest = train->dataset_digest;
      // Later checkpoints were set aside.
      if (std::exchange(has_diverged, false)) {
        summary.has_begun_again = train->step == 0;
        summary.committed_step = train->step > 0 ? train->step : -1;
      }
    }
    if (const auto* commit = record.As<ledger::Commit>()) {
      summary.has_begun_again = false;
      summary.committed_step = std::max(summary.committed_step, commit->step);
      if (commit->stop_seconds >= 0) summary.stop_seconds = commit->stop_seconds;
    }
  }
  return summary;
}

const ledger::Stop* FindDivergedStop(const std::vector<LedgerRecord>& records) {
  for (auto record = records.rbegin(); record != records.rend(); ++record) {
    if (record->As<ledger::Train>() != nullptr) return nullptr;
    const auto* stop = record->As<ledger::Stop>();
    if (stop != nullptr && stop->step >= 0) return stop->has_diverged() ? stop : nullptr;
  }
  return nullptr;
}

}  // namespace anyorder
