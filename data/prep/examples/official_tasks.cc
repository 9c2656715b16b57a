#include "data/prep/examples/official_tasks.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "core/base/named_path.h"
#include "core/base/status.h"

namespace anyorder::data {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostFilesNamed = 8;  // in a message

// What of a directory might have been meant, as the end of a message.
std::string FilesIn(const std::string& directory, const char* ending) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (fs::directory_iterator entry(directory, ignored), end; !ignored && entry != end;
       entry.increment(ignored)) {
    const std::string name = entry->path().filename().string();
    if (name.find(ending) != std::string::npos) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  if (names.size() > kMostFilesNamed) names.resize(kMostFilesNamed);
  return names.empty() ? "" : absl::StrCat("; it holds ", absl::StrJoin(names, ", "));
}

const char* EndingOf(TextKind kind) {
  switch (kind) {
    case TextKind::kCsv: return ".csv";
    case TextKind::kTsv: return ".tsv";
    case TextKind::kTxt: return "";  // any
    default: return ".json";
  }
}

}  // namespace

const std::vector<OfficialTask>& OfficialTasks() {
  static const std::vector<OfficialTask>& tasks = *[] {
    auto* all = new std::vector<OfficialTask>;
    for (const auto& family :
         {GlueTasks(), RaceTasks(), SquadTasks(), ReviewTasks(), TopicTasks(), TaggingTasks()})
      all->insert(all->end(), family.begin(), family.end());
    return all;
  }();
  return tasks;
}

absl::StatusOr<const OfficialTask*> FindOfficialTask(const std::string& name) {
  for (const OfficialTask& task : OfficialTasks()) {
    if (task.name == name) return &task;
  }
  const auto name_of = [](std::string* out, const OfficialTask& task) { out->append(task.name); };
  return InvalidArgument("--task '", name, "' is not a task whose files are known; those are ",
                         absl::StrJoin(OfficialTasks(), ", ", name_of),
                         ". For other files leave --task out; prep reads them with --examples");
}

const OfficialTask& OfficialTaskOrNone(const std::string& name) {
  static const OfficialTask& none = *new OfficialTask;
  return *FindOfficialTask(name).value_or(&none);
}

std::string DescribeOfficialTasks() {
  std::string text;
  for (const OfficialTask& task : OfficialTasks()) {
    absl::StrAppendFormat(
        &text, "%-10s  %s: %s\n%12s--input %s%s\n", task.name, EnumName(task.kind),
        task.description, "", task.input,
        task.classes.empty() ? "" : "\n            classes " + absl::StrJoin(task.classes, ", "));
  }
  return text;
}

absl::StatusOr<InputFile> OfficialReading::OneFile(TextKind kind) const {
  const char* const ending = EndingOf(kind);
  if (IsDirectory(path_)) {
    return InvalidArgument("'", path_, "' is a directory, but --task ", task_.name,
                           " reads one file, so that training and test data stay apart",
                           FilesIn(path_, ending), ". Name one of ", task_.input);
  }
  const InputUse use = kind == TextKind::kJson  ? InputUse::kOfficialJson
                       : kind == TextKind::kTxt ? InputUse::kOfficialText
                                                : InputUse::kText;
  ASSIGN_OR_RETURN(const InputFiles input, FindInputFiles({path_}, {use}));
  if (input.files.front().kind == kind) return input.files.front();
  return InvalidArgument("'", path_, "' is no ", ending, " file; --task ", task_.name, " reads ",
                         task_.input);
}

absl::StatusOr<std::vector<InputFile>> OfficialReading::TextFiles(
    const std::vector<std::string>& folders) {
  ASSIGN_OR_RETURN(const InputFiles input, FindInputFiles(folders, {InputUse::kText}));
  left_out_.insert(left_out_.end(), input.left_out.begin(), input.left_out.end());
  std::vector<InputFile> files;
  for (const InputFile& file : input.files) {
    if (file.kind == TextKind::kTxt) {
      files.push_back(file);
    } else {
      LeaveOut(file.path, "not a .txt file");
    }
  }
  return files;
}

absl::StatusOr<std::string> OfficialReading::ReadText(const InputFile& file) const {
  std::string text;
  RETURN_IF_ERROR(
      ReadExampleLines(file, cleaning_.invalid_utf8, [&](std::string_view line, uint64_t) {
        text.append(line);
        text.push_back('\n');
        return absl::OkStatus();
      }));
  return text;
}

absl::Status OfficialReading::Take(const std::string& where, WrittenExample example) {
  example.task = task_.kind;
  if (!example.id.empty()) {
    const auto [known, is_new] = ids_.emplace(example.id, where);
    if (!is_new) {
      return DataLoss(where, ": the identifier '", example.id, "' was used before, in ",
                      known->second, "; take a fresh copy of the official file");
    }
  }
  return Annotate(take_(where, example), where);
}

}  // namespace anyorder::data
