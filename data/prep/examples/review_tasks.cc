// IMDB's film reviews (Maas et al. 2011): a directory train or test of aclImdb with folders neg and
// pos. A file ID_RATING.txt is one review, with ratings 1 to 4 in neg and 7 to 10 in pos; train has
// unsup, too, where the rating is 0.

#include <filesystem>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

#include "core/base/named_path.h"
#include "core/base/status.h"
#include "data/prep/examples/official_tasks.h"

namespace anyorder::data {
namespace {

namespace fs = std::filesystem;

struct Folder {
  const char* name;
  int least;  // rating
  int most;
};
constexpr Folder kLabelled[] = {{"neg", 1, 4}, {"pos", 7, 10}};
constexpr Folder kUnlabelled = {"unsup", 0, 0};

// ID_RATING from the name of a file of `folder`.
absl::StatusOr<std::string> ReadName(const std::string& path, const Folder& folder) {
  std::string name = fs::path(path).filename().string();
  name = name.substr(0, name.find('.'));
  const std::vector<std::string> parts = absl::StrSplit(name, '_');
  int64_t number = 0;
  int64_t rating = 0;
  if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &number) ||
      !absl::SimpleAtoi(parts[1], &rating)) {
    return DataLoss(path,
                    ": the name of a review is ID_RATING.txt, such as 17_8.txt; "
                    "remove the file or take it from aclImdb_v1.tar.gz");
  }
  if (rating < folder.least || rating > folder.most) {
    return DataLoss(path, ": the rating ", rating, " in the name is not from ", folder.least,
                    " to ", folder.most, ", as those in ", folder.name,
                    " are; take the files from aclImdb_v1.tar.gz");
  }
  return name;
}

absl::Status ReadFolder(const std::string& path, const Folder& folder, OfficialReading& reading) {
  ASSIGN_OR_RETURN(const std::vector<InputFile> files, reading.TextFiles({path}));
  for (const InputFile& file : files) {
    WrittenExample example;
    ASSIGN_OR_RETURN(const std::string name, ReadName(file.path, folder));
    ASSIGN_OR_RETURN(const std::string text, reading.ReadText(file));
    // As XLNet's run_classifier.py has it.
    const std::string plain = absl::StrReplaceAll(text, {{"<br />", " "}});
    RETURN_IF_ERROR(Annotate(reading.cleaning().AddText(plain, "review", example), file.path));
    example.id = absl::StrCat(folder.name, "/", name);
    if (folder.most > 0) example.class_name = folder.name;
    RETURN_IF_ERROR(reading.Take(file.path, std::move(example)));
  }
  return absl::OkStatus();
}

absl::Status ReadImdb(OfficialReading& reading) {
  const fs::path path = NamedPath(reading.path());
  if (path.filename() == kUnlabelled.name) return ReadFolder(path, kUnlabelled, reading);
  for (const Folder& folder : kLabelled) {
    if (IsDirectory(path / folder.name)) continue;
    return InvalidArgument("'", reading.path(), "' holds no folder '", folder.name, "'; name ",
                           reading.task().input);
  }
  for (const Folder& folder : kLabelled)
    RETURN_IF_ERROR(ReadFolder(path / folder.name, folder, reading));
  if (IsThere(path / kUnlabelled.name)) {
    reading.LeaveOut(path / kUnlabelled.name, "has no labels; it is read where it is named itself");
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<OfficialTask> ReviewTasks() {
  return {{.name = "imdb",
           .description = "IMDB, sentiment of film reviews",
           .input = "aclImdb/train, aclImdb/test or aclImdb/train/unsup",
           .kind = ExampleTask::kClassification,
           .classes = {"neg", "pos"},
           .measures = LabelMeasures::kErrorRate,
           .read = ReadImdb}};
}

}  // namespace anyorder::data
