// The hidden folder OUTPUT/.anyorder-prep of an unfinished preparation: what belongs to it, which
// program works on it, and whether a later run may resume it.
//
//   lock           held by the running program; shared by the slices of a split preparation
//   slice-K-of-N   held by the program that works on this slice
//   plan.json      options, with which a run must agree, and input digests, which may change
//   scan           how the input is cut (prep_plan.h), for slices
//   spiece.model   the vocabulary, once there is one
//   unit-NNNNNN    finished work units from this one on (work_unit.h)
//   out/           the dataset's files before they are moved into OUTPUT

#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"

#include "core/base/unique_fd.h"
#include "data/prep/vocabulary.h"

namespace anyorder::data {

// What makes two runs the same work.
struct PlanIdentity {
  std::map<std::string, std::string> options;
  std::vector<std::string> inputs;  // their digests
};
// That texts are encoded by this tokenizer and no other.
void AddTokenizer(const DatasetVocabulary& vocabulary, PlanIdentity& identity);

// The whole of a preparation that takes little time, so that no part of it is worth keeping: a
// staging folder of this plan, in which write(folder) leaves the dataset's files, then OUTPUT.
// Errors: those of Staging and `write`.
absl::Status PublishWhole(const std::string& output, const PlanIdentity& identity,
                          const std::function<absl::Status(const std::string& folder)>& write);

class Staging {
 public:
  // Takes OUTPUT, which must be absent, empty, or hold an unfinished preparation, and locks it.
  // Errors: AlreadyExists if it holds anything else or another process works on it; those of the
  // file system. Nothing in OUTPUT is changed on error.
  static absl::StatusOr<Staging> Open(const std::string& output);
  // Whether Open would take OUTPUT, but for the lock. Changes nothing.
  static absl::Status Check(const std::string& output);
  // Takes one slice ("2-of-5") of a preparation that is planned already; others may be at work on
  // other slices. Errors: as above, and FailedPrecondition if there is no plan.
  static absl::StatusOr<Staging> Join(const std::string& output, const std::string& slice);
  Staging(Staging&& other) noexcept = default;
  Staging& operator=(Staging&&) = delete;

  // Whether an earlier run left a plan here.
  bool has_plan() const { return has_plan_; }
  // Stores `identity`, or compares it with the one stored. Other input, or invalid UTF-8 that is
  // now replaced, is taken up if it `may_change`: finished units stay, all else that was made of
  // the old input goes. Returns whether that happened. Errors: InvalidArgument for other options;
  // FailedPrecondition for other input that may not be, or if the dataset is complete.
  absl::StatusOr<bool> BindPlan(const PlanIdentity& identity, bool may_change = true);

  const std::string& folder() const { return folder_; }
  std::string ModelPath() const { return folder_ + "/spiece.model"; }
  std::string ScanPath() const { return folder_ + "/scan"; }
  std::string SamplePath(size_t unit) const {
    return absl::StrFormat("%s/sample-%06d", folder_, unit);
  }
  // For units from the `unit`th on; of another plan there may be a file of that name.
  std::string NewUnitPath(size_t unit) const;
  // Of all finished units.
  absl::StatusOr<std::vector<std::string>> UnitPaths() const;
  std::string OutFolder() const { return folder_ + "/out"; }
  // Whether OUTPUT/dataset.json is there: the work is done, only the folder was not removed.
  bool IsPublished() const;
  // Moves everything from OutFolder into OUTPUT, dataset.json last, and makes it durable.
  absl::Status Publish();
  // Removes the folder: after Publish, or to give up work of which nothing is worth keeping. Then
  // OUTPUT is removed too if Open made it.
  absl::Status Remove();

 private:
  explicit Staging(const std::string& output);
  std::string PlanPath() const;
  absl::Status ForgetDataset();

  std::string output_;
  std::string folder_;
  std::vector<UniqueFd> locks_;
  bool has_plan_ = false;
  bool made_output_ = false;
};

}  // namespace anyorder::data
