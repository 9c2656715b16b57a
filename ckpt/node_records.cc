#include "ckpt/node_records.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_join.h"

#include "core/base/monotonic_clock.h"
#include "core/base/status.h"

namespace anyorder::ckpt {

namespace {

// Quick while a commit takes milliseconds, gentle on a shared file system later.
constexpr absl::Duration kFirstPause = absl::Milliseconds(2);
constexpr absl::Duration kLongestPause = absl::Milliseconds(500);
constexpr absl::Duration kLongestPausePerNode = absl::Milliseconds(20);

}  // namespace

NodeRecords::NodeRecords(FileSystem* fs, std::string directory, int num_nodes, NameOf good,
                         NameOf bad)
    : fs_(fs),
      directory_(std::move(directory)),
      good_(std::move(good)),
      bad_(std::move(bad)),
      missing_(static_cast<size_t>(num_nodes)),
      texts_(static_cast<size_t>(num_nodes)) {
  std::iota(missing_.begin(), missing_.end(), 0);
}

absl::Status NodeRecords::CheckNotBad(int node) const {
  const absl::StatusOr<std::string> reason = ReadSmallFile(fs_, JoinPath(directory_, bad_(node)));
  return reason.ok() ? Aborted("node ", node, ": ", *reason) : absl::OkStatus();
}

absl::Status NodeRecords::Look() {
  std::vector<int> missing;
  for (const int node : missing_) {
    absl::StatusOr<std::string> text = ReadSmallFile(fs_, PathOf(node));
    if (absl::IsNotFound(text.status())) {
      RETURN_IF_ERROR(CheckNotBad(node));
      missing.push_back(node);
      continue;
    }
    RETURN_IF_ERROR(text.status());
    texts_[static_cast<size_t>(node)] = *std::move(text);
  }
  missing_ = std::move(missing);
  if (!missing_.empty()) return Unavailable("nothing from node ", absl::StrJoin(missing_, ", "));
  // Some may have changed their mind after the record that was seen.
  for (size_t node = 0; node < texts_.size(); ++node)
    RETURN_IF_ERROR(CheckNotBad(static_cast<int>(node)));
  return absl::OkStatus();
}

bool NodeRecords::IsThere(int node) const {
  return !absl::IsNotFound(fs_->OpenForRead(PathOf(node)).status());
}

absl::Duration LongestPauseOf(int num_nodes) {
  return std::max(kLongestPause, num_nodes * kLongestPausePerNode);
}

NodeWait::NodeWait(absl::Duration limit, absl::Duration ended_grace, absl::Duration longest_pause)
    : limit_(limit),
      ended_grace_(ended_grace),
      longest_pause_(longest_pause),
      deadline_(MonotonicNow() + limit),
      pause_(kFirstPause) {}

absl::Status NodeWait::Pause(const absl::Status& undecided, const std::string& ended,
                             const std::function<bool(absl::Duration)>& sleep) {
  const absl::Time now = MonotonicNow();
  if (!ended.empty()) ended_since_ = std::min(ended_since_, now);
  if (!ended.empty() && now - ended_since_ >= ended_grace_) return DeadlineExceeded(ended);
  if (now > deadline_)
    return DeadlineExceeded(undecided.message(), " after ", absl::FormatDuration(limit_));
  if (!sleep(pause_)) return absl::CancelledError("the service lost the run directory");
  pause_ = std::min(pause_ * 2, longest_pause_);
  return absl::OkStatus();
}

}  // namespace anyorder::ckpt
