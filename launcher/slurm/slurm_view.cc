#include "launcher/slurm/slurm_view.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace anyorder::launcher {
namespace {

// A chain of jobs that wait for each other is rarely longer; one more question each is cheap but
// not free.
constexpr size_t kMaxJobsAsked = 4;

}  // namespace

std::vector<int64_t> SlurmJobsOf(const std::string& run_dir,
                                 const std::vector<LedgerRecord>& ledger) {
  std::set<int64_t, std::greater<>> ids;
  for (const LedgerRecord& record : ledger)
    if (const auto* start = record.As<ledger::Start>(); start != nullptr && start->slurm_job > 0)
      ids.insert(start->slurm_job);
  std::error_code error;
  std::filesystem::directory_iterator entry(run_dir + "/slurm", error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string stem = entry->path().stem().string();
    int64_t id = 0;
    if (absl::StartsWith(stem, "job-") && absl::SimpleAtoi(stem.substr(4), &id) && id > 0)
      ids.insert(id);
  }
  return {ids.begin(), ids.end()};
}

SlurmView AskSlurm(const std::vector<int64_t>& ids, absl::Duration patience) {
  SlurmView view;
  const absl::Time deadline = absl::Now() + patience;
  for (size_t i = 0; i < std::min(ids.size(), kMaxJobsAsked); ++i) {
    absl::StatusOr<SlurmJob> job = ShowSlurmJob(absl::StrCat(ids[i]), deadline);
    if (absl::IsNotFound(job.status())) {
      view.forgotten.push_back(ids[i]);
      continue;
    }
    if (!job.ok()) {
      view.problem = std::string(job.status().message());
      break;
    }
    view.jobs.push_back(*std::move(job));
    if (!view.jobs.back().IsQueued()) break;
  }
  return view;
}

}  // namespace anyorder::launcher
