// RACE (Lai et al. 2017): a directory train, dev or test with folders middle and high, in which
// each .txt file is a JSON object: an article and its questions, each with four options.

#include <nlohmann/json.hpp>

#include <filesystem>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

#include "core/base/file_system.h"
#include "core/base/json_members.h"
#include "core/base/named_path.h"
#include "core/base/status.h"
#include "data/prep/examples/official_tasks.h"

namespace anyorder::data {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr size_t kOptions = 4;

// One file.
class RacePassage {
 public:
  RacePassage(const std::string& path, std::string level, OfficialReading& reading)
      : path_(path), level_(std::move(level)), reading_(reading) {}

  absl::Status Read(const std::string& text) {
    passage_ = TryParseJson<Json>(text);
    if (!passage_.is_object()) return Bad(WhyNoJsonObject(text));
    RETURN_IF_ERROR(CheckFields());
    // train/high/15946.txt is such a file.
    if (passage_["questions"].empty()) reading_.LeaveOut(path_, "has no question");
    WrittenExample start;
    RETURN_IF_ERROR(
        Annotate(reading_.cleaning().AddText(passage_["article"].get_ref<const std::string&>(),
                                             "article", start),
                 path_));
    for (size_t i = 0; i < passage_["questions"].size(); ++i) {
      WrittenExample example = start;
      const std::string where = absl::StrCat(path_, "#", i);
      RETURN_IF_ERROR(Annotate(ReadQuestion(i, example), where));
      RETURN_IF_ERROR(reading_.Take(where, std::move(example)));
    }
    return absl::OkStatus();
  }

 private:
  template <typename... Parts>
  absl::Status Bad(const Parts&... what) const {
    return DataLoss(path_, ": ", what..., "; take a fresh copy of the file from RACE.tar.gz");
  }

  // Of all that ReadQuestion takes for granted.
  absl::Status CheckFields() const {
    for (const char* name : {"article", "id"}) {
      if (!passage_.contains(name) || !passage_[name].is_string())
        return Bad("there is no field '", name, "' that is a string");
    }
    for (const char* name : {"questions", "options", "answers"}) {
      if (!passage_.contains(name) || !passage_[name].is_array())
        return Bad("there is no field '", name, "' that is a list");
      if (passage_[name].size() != passage_["questions"].size()) {
        return Bad(passage_["questions"].size(), " questions have ", passage_[name].size(), " ",
                   name);
      }
    }
    return absl::OkStatus();
  }

  absl::Status ReadQuestion(size_t i, WrittenExample& example) const {
    const Json& question = passage_["questions"][i];
    const Json& options = passage_["options"][i];
    const Json& answer = passage_["answers"][i];
    if (!question.is_string()) return DataLoss("the question is not a string");
    if (!options.is_array() || options.size() != kOptions)
      return DataLoss("the question has not four options");
    for (size_t option = 0; option < kOptions; ++option) {
      if (!options[option].is_string())
        return DataLoss("option ", option, " of the question is not a string");
      RETURN_IF_ERROR(
          reading_.cleaning().AddText(Join(question.get_ref<const std::string&>(),
                                           options[option].get_ref<const std::string&>()),
                                      absl::StrCat("options[", i, "][", option, "]"), example));
    }
    const std::string letter = answer.is_string() ? answer.get<std::string>() : "";
    if (letter.size() != 1 || letter[0] < 'A' || letter[0] > 'D')
      return DataLoss("the answer '", letter, "' is none of A, B, C, D");
    example.choice = letter[0] - 'A';
    example.id = absl::StrCat(level_, "/", passage_["id"].get_ref<const std::string&>(), "#", i);
    return absl::OkStatus();
  }

  // As XLNet's run_race.py has it, and RoBERTa: an option fills each blank of its question, or
  // follows the question where there is none. BERT's adaptations do not fill blanks.
  static std::string Join(const std::string& question, const std::string& option) {
    if (question.find('_') == std::string::npos) return absl::StrCat(question, " ", option);
    return absl::StrReplaceAll(question, {{"_", option}});
  }

  const std::string& path_;
  const std::string level_;
  OfficialReading& reading_;
  Json passage_;
};

absl::Status ReadRace(OfficialReading& reading) {
  ASSIGN_OR_RETURN(const std::vector<InputFile> files, reading.TextFiles({reading.path()}));
  std::set<std::string> splits;
  for (const InputFile& file : files) {
    const fs::path folder = NamedPath(ParentPath(file.path));
    const std::string level = folder.filename().string();
    if (level != "middle" && level != "high") {
      return DataLoss(file.path, ": the file is in the folder '", level,
                      "', but RACE has its files in folders middle and high; name one of ",
                      reading.task().input);
    }
    splits.insert(folder.parent_path().string());
    if (splits.size() > 1) {
      return InvalidArgument("'", reading.path(),
                             "' holds several splits: ", absl::StrJoin(splits, ", "),
                             "; name one of them");
    }
    ASSIGN_OR_RETURN(const std::string text, reading.ReadText(file));
    RETURN_IF_ERROR(RacePassage(file.path, level, reading).Read(text));
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<OfficialTask> RaceTasks() {
  return {{.name = "race",
           .description = "RACE, questions of English exams",
           .input = "RACE/train, RACE/dev or RACE/test; or a folder middle or high of one",
           .kind = ExampleTask::kMultipleChoice,
           .id_parts = {"middle", "high"},
           .submission = SubmissionForm::kChoices,
           .submission_name = "race",
           .read = ReadRace}};
}

}  // namespace anyorder::data
