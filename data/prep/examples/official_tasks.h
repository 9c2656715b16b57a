// Downstream tasks whose files `anyorder prep --task NAME` reads as they were published: which
// tasks there are, and what reading any of them needs (EXAMPLES.md, "Official tasks"). A family of
// tasks is a file of its own, which fills the table and reads.

#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/base/status.h"
#include "core/config/task_config.h"
#include "data/prep/cleaning.h"
#include "data/prep/examples/example_reader.h"
#include "data/prep/prep_plan.h"
#include "data/prep/text_reader.h"

namespace anyorder::data {

class OfficialReading;

// What the predicted labels of a task are measured by, besides what its kind alone says.
enum class LabelMeasures { kAccuracy, kAccuracyAndF1, kMatthewsAndAccuracy, kErrorRate };

// The form in which the task's benchmark is sent predictions (launcher/inference).
enum class SubmissionForm { kNone, kGlue, kChoices, kSquad, kConll };

struct OfficialTask {
  std::string name;         // of --task
  std::string description;  // what it is and where it comes from
  std::string input;        // what --input names
  ExampleTask kind = ExampleTask::kClassification;
  // Names of class 0, 1, ..., whatever subset a file holds; none where the label is a choice or a
  // score.
  std::vector<std::string> classes;
  LabelMeasures measures = LabelMeasures::kAccuracy;
  // Accuracy is told apart, too, for the examples whose identifier begins with each and a slash.
  std::vector<std::string> id_parts;
  // Whether evaluation files are called matched or mismatched, and are scored and sent apart.
  bool has_matched_files = false;
  SubmissionForm submission = SubmissionForm::kNone;
  std::string submission_name;  // of the file that is sent, without its ending
  // A task that compares the rows of another one: that one's name; else "".
  std::string row_task;
  // Reads what `reading` names. Errors: DataLoss that names file, line and what to do.
  std::function<absl::Status(OfficialReading& reading)> read;
};

// By family, in the order of README.md.
const std::vector<OfficialTask>& OfficialTasks();
// Errors: InvalidArgument that lists the names.
absl::StatusOr<const OfficialTask*> FindOfficialTask(const std::string& name);
// The task, or of other names one of which nothing is known.
const OfficialTask& OfficialTaskOrNone(const std::string& name);
// A line for each task, for `--task list`.
std::string DescribeOfficialTasks();

// One split, such as training or test data: a file or a directory, and where its examples go.
class OfficialReading {
 public:
  // The reference must outlive it.
  OfficialReading(const OfficialTask& task, std::string path, const ExampleCleaning& cleaning,
                  TakeExample take)
      : task_(task), path_(std::move(path)), cleaning_(cleaning), take_(std::move(take)) {}

  const OfficialTask& task() const { return task_; }
  const std::string& path() const { return path_; }
  const ExampleCleaning& cleaning() const { return cleaning_; }

  // path(), which must be a file of `kind`; kTxt: any file of text, whatever its name ends in.
  // Errors: InvalidArgument, of a directory naming its files of that kind; those of FindInputFiles.
  absl::StatusOr<InputFile> OneFile(TextKind kind) const;
  // The .txt files under the directories `folders`; others are left out. Errors: those of
  // FindInputFiles.
  absl::StatusOr<std::vector<InputFile>> TextFiles(const std::vector<std::string>& folders);

  // OneFile by a File, made of its path, `arguments` and this: each line by OnLine(text, number),
  // then Finish(). Their errors, too.
  template <typename File, typename... Arguments>
  absl::Status ReadLines(TextKind kind, const Arguments&... arguments) {
    ASSIGN_OR_RETURN(const InputFile input, OneFile(kind));
    File file(input.path, arguments..., *this);
    RETURN_IF_ERROR(ReadExampleLines(
        input, cleaning_.invalid_utf8,
        [&file](std::string_view text, uint64_t line) { return file.OnLine(text, line); }));
    return file.Finish();
  }
  // The lines of a small file as one text.
  absl::StatusOr<std::string> ReadText(const InputFile& file) const;

  // Passes `example` on, of which the kind may be missing. Errors: DataLoss if its identifier was
  // there before; those of the taker, with `where` before them.
  absl::Status Take(const std::string& where, WrittenExample example);

  // What the official code leaves out, too, or what cannot be an example of this task.
  void LeaveOut(std::string where, std::string reason) {
    left_out_.push_back({std::move(where), std::move(reason)});
  }
  const std::vector<LeftOutFile>& left_out() const { return left_out_; }

 private:
  const OfficialTask& task_;
  const std::string path_;
  const ExampleCleaning cleaning_;
  const TakeExample take_;
  std::unordered_map<std::string, std::string> ids_;  // and where each was
  std::vector<LeftOutFile> left_out_;
};

// The families.
std::vector<OfficialTask> GlueTasks();
std::vector<OfficialTask> RaceTasks();
std::vector<OfficialTask> SquadTasks();
std::vector<OfficialTask> ReviewTasks();
std::vector<OfficialTask> TopicTasks();
std::vector<OfficialTask> TaggingTasks();

}  // namespace anyorder::data
