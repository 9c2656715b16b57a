#include "data/prep/staging.h"

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/file_system.h"
#include "core/base/json_members.h"
#include "core/base/named_path.h"
#include "core/base/status.h"
#include "core/base/whole_file.h"
#include "data/dataset/shard_format.h"

namespace anyorder::data {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr char kFolder[] = ".anyorder-prep";
constexpr char kPlanFile[] = "plan.json";
// Raise it when the files of this folder change, so that an older program's work is refused.
constexpr int kStagingVersion = 4;
constexpr int kLockTries = 30;
constexpr useconds_t kLockWaitMicroseconds = 100'000;

// Whether preparation itself makes a file of this name in OUTPUT.
bool IsDatasetFile(const std::string& name) {
  int index = 0;
  const bool is_shard =
      std::sscanf(name.c_str(), "shard-%d.h5", &index) == 1 && name == ShardFileName(index);
  constexpr std::string_view kOthers[] = {kIndexFile,      kShardIndexFile,  kTokenizerFile,
                                          kOtherModelFile, kHuggingFaceFile, kDeclaredFile,
                                          kExamplesFile,   kOriginsFile};
  return is_shard || std::find(std::begin(kOthers), std::end(kOthers), name) != std::end(kOthers);
}

// The lock's descriptor. `kind` is LOCK_EX or LOCK_SH. Workers inherit it, so it is held until the
// last of them is gone; that takes a moment after a crash. `work` says what is locked.
absl::StatusOr<UniqueFd> TakeLock(const std::string& path, int kind, const std::string& work) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!fd.valid()) return ErrnoStatus("create", path);
  for (int i = 0; i < kLockTries; ++i) {
    if (::flock(fd.get(), kind | LOCK_NB) == 0) return fd;
    if (errno != EWOULDBLOCK && errno != EINTR) return ErrnoStatus("lock", path);
    ::usleep(kLockWaitMicroseconds);
  }
  return AlreadyExists("another anyorder-prep works on ", work,
                       "; wait for it or choose another directory");
}

Json PlanJson(const PlanIdentity& identity) {
  return {{"staging_version", kStagingVersion},
          {"options", identity.options},
          {"inputs", identity.inputs}};
}

// Whether the stored plan's input differs from this run's. An error if the rest does; `advice` ends
// the message.
absl::StatusOr<bool> HasOtherInput(const Json& stored, const PlanIdentity& identity,
                                   const std::string& advice) {
  const Json now = PlanJson(identity);
  if (!stored.is_object() || stored.value("staging_version", Json()) != kStagingVersion)
    return FailedPrecondition("the unfinished work is another program version's", advice);
  bool is_other = stored.value("inputs", Json()) != now["inputs"];
  const Json options = stored.value("options", Json::object());
  for (const auto& [key, value] : now["options"].items()) {
    if (options.value(key, Json()) == value) continue;
    // Messages about bad bytes advise this, and what is finished has none.
    if (key != "invalid_utf8" || value != "replace") {
      return InvalidArgument("the unfinished work was begun with ", key, " ",
                             DumpJson(options.value(key, Json())), ", now it is ", DumpJson(value),
                             advice);
    }
    is_other = true;
  }
  return is_other;
}

}  // namespace

void AddTokenizer(const DatasetVocabulary& vocabulary, PlanIdentity& identity) {
  identity.options["tokenizer"] = vocabulary.Digest();
  for (const auto& [field, member] : kVocabIdFields)
    identity.options[absl::StrCat(field, "_id")] = absl::StrCat(vocabulary.ids.*member);
}

absl::Status PublishWhole(const std::string& output, const PlanIdentity& identity,
                          const std::function<absl::Status(const std::string& folder)>& write) {
  ASSIGN_OR_RETURN(Staging staging, Staging::Open(output));
  RETURN_IF_ERROR(staging.BindPlan(identity).status());
  absl::Status status;
  if (!staging.IsPublished()) {
    status = write(staging.OutFolder());
    if (status.ok()) status = staging.Publish();
  }
  const absl::Status removed = staging.Remove();
  return status.ok() ? removed : status;
}

Staging::Staging(const std::string& output)
    : output_(output), folder_(absl::StrCat(output, "/", kFolder)) {}

std::string Staging::PlanPath() const { return absl::StrCat(folder_, "/", kPlanFile); }

absl::StatusOr<Staging> Staging::Open(const std::string& given) {
  const std::string output = NamedPath(given);  // "new/.." would make `new`
  RETURN_IF_ERROR(Check(output));
  std::error_code error;
  Staging staging(output);
  staging.made_output_ = !IsThere(output);
  fs::create_directories(staging.OutFolder(), error);
  if (error) return ErrnoStatus("create", staging.folder_, error.value());
  ASSIGN_OR_RETURN(staging.locks_.emplace_back(),
                   TakeLock(staging.folder_ + "/lock", LOCK_EX, absl::StrCat("'", output, "'")));
  // Again, now that nobody else can be at work.
  RETURN_IF_ERROR(Check(output));
  staging.has_plan_ = IsThere(staging.PlanPath());
  return staging;
}

absl::Status Staging::Check(const std::string& output) {
  std::error_code error;
  const fs::file_status status = fs::status(output, error);
  if (status.type() == fs::file_type::not_found) return absl::OkStatus();
  if (error) return ErrnoStatus("open", output, error.value());
  if (!fs::is_directory(status))
    return AlreadyExists("--output '", output, "' is not a directory; choose another");
  const bool is_ours = IsThere(absl::StrCat(output, "/", kFolder, "/", kPlanFile));
  ASSIGN_OR_RETURN(const std::vector<std::string> names,
                   FileSystem::Posix()->ListDirectory(output));
  for (const std::string& name : names) {
    if (name == kFolder || (is_ours && IsDatasetFile(name))) continue;
    return AlreadyExists("--output '", output, "' is not empty (it holds '", name,
                         "'); choose another directory or empty it");
  }
  return absl::OkStatus();
}

absl::StatusOr<Staging> Staging::Join(const std::string& output, const std::string& slice) {
  RETURN_IF_ERROR(Check(output));
  Staging staging(output);
  staging.has_plan_ = IsThere(staging.PlanPath());
  if (!staging.has_plan_) {
    return FailedPrecondition("no preparation is planned in '", output,
                              "'; run it with --plan first");
  }
  for (const auto& [name, kind] :
       {std::pair{std::string("lock"), LOCK_SH}, std::pair{"slice-" + slice, LOCK_EX}}) {
    const std::string of_slice = kind == LOCK_SH ? "" : absl::StrCat("slice ", slice, " of ");
    ASSIGN_OR_RETURN(staging.locks_.emplace_back(),
                     TakeLock(absl::StrCat(staging.folder_, "/", name), kind,
                              absl::StrCat(of_slice, "'", output, "'")));
  }
  return staging;
}

absl::StatusOr<bool> Staging::BindPlan(const PlanIdentity& identity, bool may_change) {
  const bool had_plan = std::exchange(has_plan_, true);
  if (had_plan) {
    ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(PlanPath(), kMaxTextBytes));
    ASSIGN_OR_RETURN(
        const bool is_other,
        HasOtherInput(TryParseJson(text), identity,
                      absl::StrCat("; repeat the first command to continue, or delete '", folder_,
                                   "' to start over")));
    if (!is_other) return false;
    const std::string refusal = IsPublished() ? "; its dataset is complete: choose another --output"
                                : !may_change ? "; run --plan again, finished units stay"
                                              : "";
    if (!refusal.empty())
      return FailedPrecondition("the input has changed since the work in '", output_, "' began",
                                refusal);
    // Before the plan: a crash between the two loses nothing that cannot be made again.
    RETURN_IF_ERROR(ForgetDataset());
  }
  RETURN_IF_ERROR(WriteFileAtomically(PlanPath(), DumpJson(PlanJson(identity), 1)));
  RETURN_IF_ERROR(FileSystem::Posix()->SyncDirectory(output_));
  return had_plan;
}

// All but the units: what was made of all of the input, or is a list of it.
absl::Status Staging::ForgetDataset() {
  FileSystem* const files = FileSystem::Posix();
  std::vector<std::string> paths = {ModelPath(), ScanPath()};
  for (const std::string& folder : {OutFolder(), output_}) {
    ASSIGN_OR_RETURN(const std::vector<std::string> names, files->ListDirectory(folder));
    for (const std::string& name : names)
      if (IsDatasetFile(name)) paths.push_back(JoinPath(folder, name));
  }
  for (const std::string& path : paths)
    if (IsThere(path)) RETURN_IF_ERROR(files->RemoveFile(path));
  return absl::OkStatus();
}

std::string Staging::NewUnitPath(size_t unit) const {
  std::string path = absl::StrFormat("%s/unit-%06d", folder_, unit);
  while (IsThere(path)) path += "+";
  return path;
}

absl::StatusOr<std::vector<std::string>> Staging::UnitPaths() const {
  ASSIGN_OR_RETURN(const std::vector<std::string> names,
                   FileSystem::Posix()->ListDirectory(folder_));
  std::vector<std::string> paths;
  for (const std::string& name : names) {
    if (name.starts_with("unit-") && !name.ends_with(".tmp"))
      paths.push_back(JoinPath(folder_, name));
  }
  return paths;
}

bool Staging::IsPublished() const { return IsThere(absl::StrCat(output_, "/", kIndexFile)); }

absl::Status Staging::Publish() {
  FileSystem* const files = FileSystem::Posix();
  const auto move = [&](const std::string& name) {
    return files->Rename(JoinPath(OutFolder(), name), JoinPath(output_, name));
  };
  ASSIGN_OR_RETURN(const std::vector<std::string> names, files->ListDirectory(OutFolder()));
  for (const std::string& name : names) {
    if (IsDatasetFile(name) && name != kIndexFile) RETURN_IF_ERROR(move(name));
  }
  RETURN_IF_ERROR(files->SyncDirectory(output_));
  // dataset.json makes it a dataset, so it must not become durable before what it lists.
  RETURN_IF_ERROR(move(kIndexFile));
  return files->SyncDirectory(output_);
}

absl::Status Staging::Remove() {
  std::error_code error;
  fs::remove_all(folder_, error);
  if (error) return ErrnoStatus("remove", folder_, error.value());
  if (made_output_ && fs::is_empty(output_, error)) fs::remove(output_, error);
  return absl::OkStatus();
}

}  // namespace anyorder::data
