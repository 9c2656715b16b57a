#include "core/train/run/ledger.h"

#include <nlohmann/json.hpp>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "ckpt/crc32c.h"
#include "core/base/status.h"
#include "core/base/utc_time.h"
#include "core/base/whole_file.h"

namespace anyorder {
namespace {

using Json = nlohmann::ordered_json;

constexpr absl::string_view kSealKey = ",\"crc32c\":\"";

// One list of members for writing and reading.
template <typename Record, typename Visitor>
void VisitMembers(Record& record, Visitor visit) {
  visit("event", record.event);
  visit("time", record.time);
  visit("run_id", record.run_id);
  visit("attempt", record.attempt);
  visit("ranks", record.ranks);
  visit("step", record.step);
  visit("first_step", record.first_step);
  visit("last_step", record.last_step);
  visit("generation", record.generation);
  visit("exit_status", record.exit_status);
  visit("may_restart", record.may_restart);
  visit("rank", record.rank);
  visit("lanes", record.lanes);
  visit("reason", record.reason);
  visit("config_digest", record.config_digest);
  visit("dataset_digest", record.dataset_digest);
  visit("detail", record.detail);
  visit("slurm_job", record.slurm_job);
  visit("slurm_restart", record.slurm_restart);
  visit("nodes", record.nodes);
}

bool IsGiven(int64_t value) {
  return value >= 0;
}
bool IsGiven(const std::string& value) {
  return !value.empty();
}
bool IsGiven(const std::vector<std::string>& value) {
  return !value.empty();
}

std::string Seal(absl::string_view body) {
  return absl::StrFormat("%08x", ckpt::Crc32c(body.data(), static_cast<int64_t>(body.size())));
}

absl::StatusOr<LedgerRecord> ParseLine(absl::string_view line) {
  const size_t seal = line.rfind(kSealKey);
  if (seal == absl::string_view::npos ||
      line.substr(seal + kSealKey.size()) != Seal(line.substr(0, seal)) + "\"}")
    return absl::DataLossError("checksum does not match; restore the file from a copy");
  const Json json = Json::parse(line.begin(), line.end(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::DataLossError("not a JSON object");
  LedgerRecord record;
  VisitMembers(record, [&json](const char* key, auto& value) {
    const auto it = json.find(key);
    if (it == json.end()) return;
    if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::string>) {
      if (it->is_string()) value = it->template get<std::string>();
    } else if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::vector<std::string>>) {
      if (!it->is_array()) return;
      for (const Json& item : *it)
        if (item.is_string()) value.push_back(item.template get<std::string>());
    } else if (it->is_number_integer()) {
      value = it->template get<int64_t>();
    }
  });
  return record;
}

}  // namespace

absl::StatusOr<Ledger> Ledger::Open(const std::string& path) {
  ANYORDER_ASSIGN_OR_RETURN(AppendFile file, AppendFile::Open(path));
  return Ledger(std::move(file));
}

absl::Status Ledger::Append(LedgerRecord record) {
  record.time = UtcTimeStamp();
  Json json;
  VisitMembers(record, [&json](const char* key, const auto& value) {
    if (IsGiven(value)) json[key] = value;
  });
  std::string line = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  line.pop_back();  // the closing brace comes back after the checksum
  const std::string seal = Seal(line);
  ANYORDER_RETURN_IF_ERROR(file_.Append(absl::StrCat(line, kSealKey, seal, "\"}\n")));
  return file_.Sync();
}

absl::StatusOr<std::vector<LedgerRecord>> ReadLedger(const std::string& path) {
  std::vector<LedgerRecord> records;
  const absl::StatusOr<std::string> whole = ReadWholeFile(path);
  if (absl::IsNotFound(whole.status())) return records;
  ANYORDER_RETURN_IF_ERROR(whole.status());
  const std::string& text = *whole;
  int64_t number = 1;
  size_t begin = 0;
  for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', begin)) {
    const absl::StatusOr<LedgerRecord> record =
        ParseLine(absl::string_view(text).substr(begin, end - begin));
    if (!record.ok()) return Annotate(record.status(), absl::StrCat(path, ":", number));
    records.push_back(*record);
    begin = end + 1;
    ++number;
  }
  return records;
}

LedgerSummary Summarize(const std::vector<LedgerRecord>& records) {
  LedgerSummary summary;
  for (const LedgerRecord& record : records) {
    if (record.event == "created") summary.run_id = record.run_id;
    if (record.event == "start") summary.attempts = std::max(summary.attempts, record.attempt);
    if (record.event == "commit")
      summary.committed_step = std::max(summary.committed_step, record.step);
  }
  return summary;
}

}  // namespace anyorder
