#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/status.h"
#include "launcher/inference/prompts.h"
#include "launcher/likelihood/likelihood.h"

namespace anyorder::launcher {
namespace {

using Json = nlohmann::json;

absl::Status ReadChoices(const Json& choices, LikelihoodItem& item) {
  if (!choices.is_array() || choices.size() < 2)
    return FailedPrecondition("'choices' is not a list of at least two strings");
  for (const Json& choice : choices) {
    ASSIGN_OR_RETURN(item.texts.emplace_back(), TextOf(choice, "choices"));
    if (item.texts.back().empty())
      return FailedPrecondition("choice ", item.texts.size() - 1, " of 'choices' is empty");
  }
  return absl::OkStatus();
}

absl::Status ReadAnswer(const Json& answer, const char* name, LikelihoodItem& item) {
  const size_t most = item.texts.size() - 1;
  if (!answer.is_number_unsigned() || answer.get<uint64_t>() > most)
    return FailedPrecondition("'", name, "' is not the number of a choice, from 0 to ", most);
  item.answer = answer.get<int64_t>();
  return absl::OkStatus();
}

// A line of a .jsonl. What is wrong with it is said without file and line.
absl::StatusOr<LikelihoodItem> ParseItem(const Json& json) {
  LikelihoodItem item;
  for (const char* name : {"input", "context"}) {
    if (json.contains(name) && !json[name].is_null()) {
      ASSIGN_OR_RETURN(item.context, TextField(json, name));
    }
  }
  if (!json.contains("choices")) {
    if (!json.contains("text")) return FailedPrecondition("there is no 'text' and no 'choices'");
    ASSIGN_OR_RETURN(item.texts.emplace_back(), TextField(json, "text"));
    return item;
  }
  RETURN_IF_ERROR(ReadChoices(json["choices"], item));
  for (const char* name : {"answer", "label"})
    if (json.contains(name) && !json[name].is_null())
      RETURN_IF_ERROR(ReadAnswer(json[name], name, item));
  return item;
}

absl::Status AddItem(LikelihoodItem item, int64_t line, LikelihoodInput& input) {
  item.line = line;
  const bool has_choices = item.texts.size() > 1;
  if (item.texts.front().empty()) {
    ++input.empty_texts;
    return absl::OkStatus();
  }
  if (!input.items.empty() && has_choices != input.has_choices)
    return FailedPrecondition("choices and texts do not go together; put them in two files");
  input.has_choices = has_choices;
  input.items.push_back(std::move(item));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<LikelihoodInput> ReadLikelihoodInput(const std::string& path) {
  LikelihoodInput input;
  input.name = InputName(path);
  ASSIGN_OR_RETURN(std::vector<InputLine> lines, ReadInputLines(path, ObjectLines::kByFirstLine));
  for (InputLine& line : lines) {
    absl::StatusOr<LikelihoodItem> item = line.object.is_object()
                                              ? ParseItem(line.object)
                                              : LikelihoodItem{.texts = {std::move(line.text)}};
    const absl::Status added =
        item.ok() ? AddItem(*std::move(item), line.number, input) : item.status();
    RETURN_IF_ERROR(Annotate(added, line.place));
  }
  if (!input.items.empty()) return input;
  return FailedPrecondition(input.name,
                            " holds no text; write one per line, or objects with text "
                            "or choices into a .jsonl");
}

absl::StatusOr<std::vector<std::vector<TextScore>>> ScoreItems(const LikelihoodInput& input,
                                                               const LikelihoodOptions& options,
                                                               const GoesOn& goes_on,
                                                               TextService& service) {
  int64_t total = 0, done = 0;
  for (const LikelihoodItem& item : input.items) total += std::ssize(item.texts);
  std::vector<std::vector<TextScore>> scores;
  for (const LikelihoodItem& item : input.items) {
    scores.emplace_back();
    for (const std::string& text : item.texts) {
      if (!goes_on(done, total)) {
        return absl::CancelledError(
            absl::StrCat("stopped by a signal after ", done, " of ", total, " texts"));
      }
      const absl::StatusOr<TextScore> score =
          service.Score({.context = item.context,
                         .continuation = text,
                         .bound_samples = options.bound_samples,
                         .seed = options.seed + static_cast<uint64_t>(item.line)});
      RETURN_IF_ERROR(Annotate(score.status(), absl::StrCat(input.name, ":", item.line)));
      scores.back().push_back(*score);
      ++done;
    }
  }
  goes_on(total, total);
  return scores;
}

}  // namespace anyorder::launcher
