#include "launcher/slurm/followed_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"

#include "core/base/unique_fd.h"

namespace anyorder::launcher {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kShortestPause = absl::Milliseconds(200);
// Of files that do not grow: so long, and so much longer for each file.
constexpr absl::Duration kLongestPause = absl::Seconds(1);
constexpr absl::Duration kLongestPausePerFile = absl::Milliseconds(20);

}  // namespace

FollowedFiles::FollowedFiles(std::string directory, std::string prefix)
    : directory_(std::move(directory)), prefix_(std::move(prefix)) {}

void FollowedFiles::Turn::Take(bool had_news, absl::Time now, absl::Duration longest) {
  pause_ = had_news ? kShortestPause : std::clamp(2 * pause_, kShortestPause, longest);
  next_ = now + pause_;
}

void FollowedFiles::Follow(absl::Time now, Taker take) {
  if (listing_.IsDue(now)) listing_.Take(List(), now, kLongestPause);
  const absl::Duration longest = std::max(kLongestPause, std::ssize(files_) * kLongestPausePerFile);
  for (auto& [path, file] : files_) {
    if (file.turn.IsDue(now)) file.turn.Take(TakeNews(path, file, take), now, longest);
  }
}

// Whether there is a new one.
bool FollowedFiles::List() {
  ++num_looks_;
  const size_t before = files_.size();
  std::error_code error;
  for (fs::directory_iterator it(directory_, error), end; !error && it != end;
       it.increment(error)) {
    if (absl::StartsWith(it->path().filename().string(), prefix_))
      files_.try_emplace(it->path().string());
  }
  return files_.size() > before;
}

bool FollowedFiles::TakeNews(const std::string& path, File& file, Taker take) {
  // Opened again each time, which asks a network file system for what is there now.
  ++num_looks_;
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return false;
  const int64_t before = file.taken;
  char bytes[16384];
  ssize_t got = 0;
  while ((got = ::pread(fd.get(), bytes, sizeof bytes, file.taken)) > 0) {
    take(path, absl::string_view(bytes, static_cast<size_t>(got)));
    file.taken += got;
  }
  return file.taken > before;
}

void FollowedFiles::Remove() {
  for (const auto& [path, file] : files_) ::unlink(path.c_str());  // what stays is found twice
}

}  // namespace anyorder::launcher
