// SQuAD 1.1 (Rajpurkar et al. 2016) and 2.0 (Rajpurkar et al. 2018): one JSON file a split, of
// articles with paragraphs, each a passage ("context") with questions. An answer is a text and the
// character of the passage at which it stands.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/json_members.h"
#include "core/base/status.h"
#include "data/prep/examples/official_tasks.h"

namespace anyorder::data {
namespace {

using Json = nlohmann::json;

class SquadFile {
 public:
  // `has_unanswerable`: the form of 2.0.
  SquadFile(const std::string& path, bool has_unanswerable, OfficialReading& reading)
      : path_(path), has_unanswerable_(has_unanswerable), reading_(reading) {}

  absl::Status Read(const std::string& text) {
    const Json root = TryParseJson(text);
    if (root.is_discarded())
      return Bad(path_, absl::StrCat(WhyNoJsonObject(text), "; take a fresh copy"));
    return ReadEach(root, "data", path_, [&](const Json& article, const std::string& where) {
      return ReadEach(article, "paragraphs", where,
                      [&](const Json& paragraph, const std::string& paragraph_where) {
                        return ReadEach(
                            paragraph, "qas", paragraph_where,
                            [&](const Json& question, const std::string& question_where) {
                              return ReadQuestion(paragraph, question, question_where);
                            });
                      });
    });
  }

 private:
  static absl::Status Bad(const std::string& where, absl::string_view what) {
    return DataLoss(where, ": ", what);
  }

  // Calls read(element, where) for each element of the list `name` of `object`.
  template <typename ReadElement>
  absl::Status ReadEach(const Json& object, const char* name, const std::string& where,
                        const ReadElement& read) const {
    const Json* list = FindMember(object, name, &Json::is_array);
    if (list == nullptr) {
      return Bad(where, absl::StrCat("there is no list '", name, "', as SQuAD's files have it; ",
                                     "name ", reading_.task().input));
    }
    for (size_t i = 0; i < list->size(); ++i)
      RETURN_IF_ERROR(read((*list)[i], absl::StrCat(where, ": ", name, "[", i, "]")));
    return absl::OkStatus();
  }

  // `place` is said where the question has no identifier.
  absl::Status ReadQuestion(const Json& paragraph, const Json& question, const std::string& place) {
    const Json* id = FindMember(question, "id", &Json::is_string);
    if (id == nullptr) return Bad(place, "the question has no 'id' that is a string");
    const std::string where = absl::StrCat(path_, ": question ", id->get_ref<const std::string&>());
    const Json* context = FindMember(paragraph, "context", &Json::is_string);
    const Json* text = FindMember(question, "question", &Json::is_string);
    if (context == nullptr || text == nullptr)
      return Bad(where, "there is no 'context' or no 'question' that is a string");
    WrittenExample example;
    example.id = id->get<std::string>();
    RETURN_IF_ERROR(Annotate(
        reading_.cleaning().AddText(text->get_ref<const std::string&>(), "question", example),
        where));
    RETURN_IF_ERROR(Annotate(
        reading_.cleaning().AddPassage(context->get_ref<const std::string&>(), "context", example),
        where));
    RETURN_IF_ERROR(Annotate(ReadAnswers(question, example), where));
    ReportMisplaced(example, where);
    return reading_.Take(where, std::move(example));
  }

  absl::Status ReadAnswers(const Json& question, WrittenExample& example) const {
    const bool is_2 = question.contains("is_impossible");
    const bool is_labelled = question.contains("answers");
    if (is_labelled && is_2 != has_unanswerable_) {
      return DataLoss(is_2 ? "'is_impossible' belongs to SQuAD 2.0; pass --task squad2"
                           : "there is no 'is_impossible'; pass --task squad1 for SQuAD 1.1");
    }
    if (!is_labelled) return absl::OkStatus();
    const Json* list = FindMember(question, "answers", &Json::is_array);
    if (list == nullptr) return DataLoss("'answers' is not a list");
    if (list->empty() && !is_2) return absl::OkStatus();  // as without the member: nobody knows
    const Json* impossible = FindMember(question, "is_impossible", &Json::is_boolean);
    if (is_2 && impossible == nullptr) return DataLoss("'is_impossible' is not true or false");
    const bool is_impossible = impossible != nullptr && impossible->get<bool>();
    if (list->empty() != is_impossible) {
      return DataLoss("the question has ", list->size(), " answers",
                      is_impossible ? ", but 'is_impossible' is true" : "",
                      "; repair the question or remove it");
    }
    example.answers.emplace();
    for (const Json& one : *list) {
      const Json* text = FindMember(one, "text", &Json::is_string);
      const Json* start = FindMember(one, "answer_start", &Json::is_number_unsigned);
      if (text == nullptr || start == nullptr)
        return DataLoss("an answer has no 'text', or no 'answer_start' that is a number from 0 on");
      // A number beyond int64 is behind every passage, too.
      const auto begin = std::min<uint64_t>(start->get<uint64_t>(), int64_t{1} << 62);
      example.answers->push_back({text->get<std::string>(), static_cast<int64_t>(begin)});
    }
    return absl::OkStatus();
  }

  // Reports answers that do not stand where they say. A question with no other can be predicted
  // and scored, but not learnt.
  void ReportMisplaced(const WrittenExample& example, const std::string& where) {
    if (!example.answers) return;
    const auto is_usable = [&](const auto& one) { return IsInPassage(one, example.passage); };
    const bool has_usable =
        std::any_of(example.answers->begin(), example.answers->end(), is_usable);
    for (const OriginalAnswer& answer : *example.answers) {
      if (is_usable(answer)) continue;
      reading_.LeaveOut(where, absl::StrCat("the answer '", answer.text, "' is not at character ",
                                            answer.begin, " of the passage, or holds no text; ",
                                            has_usable ? "others of the question are"
                                                       : "training leaves the question out"));
    }
  }

  const std::string& path_;
  const bool has_unanswerable_;
  OfficialReading& reading_;
};

OfficialTask SquadTask(const char* name, const char* description, const char* input,
                       bool has_unanswerable) {
  return {.name = name,
          .description = description,
          .input = input,
          .kind = ExampleTask::kSpans,
          .submission = SubmissionForm::kSquad,
          .read = [=](OfficialReading& reading) -> absl::Status {
            ASSIGN_OR_RETURN(const InputFile input_file, reading.OneFile(TextKind::kJson));
            ASSIGN_OR_RETURN(const std::string text, reading.ReadText(input_file));
            return SquadFile(input_file.path, has_unanswerable, reading).Read(text);
          }};
}

}  // namespace

std::vector<OfficialTask> SquadTasks() {
  return {SquadTask("squad1", "SQuAD 1.1, answers in Wikipedia", "train-v1.1.json or dev-v1.1.json",
                    /*has_unanswerable=*/false),
          SquadTask("squad2", "SQuAD 2.0, answers in Wikipedia, or that there is none",
                    "train-v2.0.json or dev-v2.0.json", /*has_unanswerable=*/true)};
}

}  // namespace anyorder::data
