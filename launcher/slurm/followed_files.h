// What the nodes of a step write into files that they all share, passed on as it grows.

#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace anyorder::launcher {

// Files of one step that its nodes write themselves, because srun passes on nothing more once the
// job was told to end. Read as they grow, and removed when all of them is in train.log.
//
// A file that grows is looked at five times a second. Most have nothing to say for hours: the more
// files there are, the more rarely those are looked at, so that all together are opened some fifty
// times a second, however many nodes a job has.
class FollowedFiles {
 public:
  // Follows the files in `directory` whose names begin with `prefix`.
  FollowedFiles(std::string directory, std::string prefix);

  using Taker = absl::FunctionRef<void(const std::string& path, absl::string_view bytes)>;

  // Passes on what is new in the files whose turn it is at `now`, of the monotonic clock, in all at
  // the end of time. Waits for as long as the file system does.
  void Follow(absl::Time now, Taker take);
  void Remove();

  // Files opened and listings made so far.
  int64_t num_looks() const { return num_looks_; }

 private:
  // When to look at something next: soon after news, ever more rarely without.
  class Turn {
   public:
    bool IsDue(absl::Time now) const { return now >= next_; }
    void Take(bool had_news, absl::Time now, absl::Duration longest);

   private:
    absl::Duration pause_;
    absl::Time next_ = absl::InfinitePast();
  };
  struct File {
    int64_t taken = 0;  // bytes
    Turn turn;
  };

  bool List();
  bool TakeNews(const std::string& path, File& file, Taker take);

  const std::string directory_;
  const std::string prefix_;
  Turn listing_;
  std::map<std::string, File> files_;  // by path
  int64_t num_looks_ = 0;
};

}  // namespace anyorder::launcher
