#include "core/train/evaluation/task_data.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/base/log.h"
#include "core/base/status.h"
#include "core/objective/finetuning.h"

namespace anyorder {
namespace {

absl::Status Refuse(const std::string& what, const std::string& instead) {
  return FailedPrecondition("the dataset ", what, "; ", instead);
}

// Tokens of the sequences that an example is read in, with special ones, or the <eod> that ends a
// target. Each choice is read with the context.
std::vector<int64_t> SequenceLengths(const InputLayout& layout, ExampleTask task,
                                     const std::vector<int64_t>& parts) {
  if (task == ExampleTask::kMultipleChoice) {
    std::vector<int64_t> lengths(parts.begin() + 1, parts.end());
    const int64_t specials = NumSpecials(layout.Of(2));
    for (int64_t& length : lengths) length += parts[0] + specials;
    return lengths;
  }
  const bool is_written = task == ExampleTask::kGeneration;
  const int64_t specials = NumSpecials(layout.Of(is_written ? 2 : std::ssize(parts)));
  return {std::accumulate(parts.begin(), parts.end(), std::max<int64_t>(is_written, specials))};
}

}  // namespace

std::string LackingToken(const RunConfig& config, const data::VocabIds& ids) {
  const ObjectiveTraits& traits = TraitsOf(config);
  const bool has_cls = traits.layout.Has("<cls>") && (!traits.has(ObjectiveTraits::kGlobals) ||
                                                      config.sampling.global_classifiers > 0);
  const std::tuple<const char*, bool, int32_t> tokens[] = {
      {"mask", traits.has(ObjectiveTraits::kPutsMask), ids.mask},
      {"sep", traits.layout.Has("<sep>"), ids.sep},
      {"cls", has_cls, ids.cls},
      {"bos", traits.layout.Has("<s>"), ids.bos}};
  for (const auto& [name, is_needed, id] : tokens)
    if (is_needed && id < 0) return name;
  return "";
}

absl::Status CheckTaskData(const RunConfig& config, const data::Dataset& dataset,
                           TaskLabels labels) {
  const ObjectiveTraits& traits = TraitsOf(config);
  const data::StoredExamples* examples = dataset.examples();
  const bool wants_examples = traits.sample_kind == SampleKind::kExamples;
  if (wants_examples && examples == nullptr) {
    return Refuse(
        absl::StrCat("is plain text, but ", traits.name, " learns from labelled examples"),
        "make a dataset of them with `anyorder prep --examples FILE`");
  }
  // The network would read row -1 of its embedding.
  if (const std::string name = LackingToken(config, dataset.index().vocab_ids); !name.empty()) {
    return Refuse(
        absl::StrCat("has no <", name, "> token, which ", traits.name, " puts into its sequences"),
        absl::StrCat("prepare it again with --", name, "-id N, an id that no text has, ",
                     "or set another objective.name"));
  }
  if (examples == nullptr) return absl::OkStatus();
  const std::string what = absl::StrCat("has labelled examples of ", EnumName(examples->task()));
  if (!wants_examples) {
    return Refuse(absl::StrCat(what, ", but ", traits.name, " learns from plain text"),
                  absl::StrCat("set objective.name to ",
                               ObjectivesThat([examples](const ObjectiveTraits& other) {
                                 return other.Learns(examples->task());
                               }),
                               ", or make a dataset of text with `anyorder prep --input FILE`"));
  }
  if (!traits.has(ObjectiveTraits::kTaskHead)) {
    if (examples->most_parts() > 2 && !traits.has(ObjectiveTraits::kTurns)) {
      return Refuse(absl::StrCat("has conversations of several answers, but ", traits.name,
                                 " reads one answer an example"),
                    "prepare it without --whole-conversations, or set objective.name to gpt_sft");
    }
    return traits.Learns(examples->task())
               ? absl::OkStatus()
               : Refuse(absl::StrCat(what, ", but ", traits.name, " generates text"),
                        "prepare examples with source and target with `anyorder prep --examples`");
  }
  const TaskConfig& task = config.model.task;
  if (examples->task() != task.task) {
    return Refuse(absl::StrCat("has examples of ", EnumName(examples->task()),
                               " but objective.task is ", EnumName(task.task)),
                  "set objective.task, or name another dataset");
  }
  // Two special tokens a text, and one more, are the most that a layout has (finetuning.h).
  const int64_t least = 3 * examples->most_parts() + 1;
  if (task.task == ExampleTask::kClassification && examples->most_parts() > 1 &&
      config.sampling.seq_len < least) {
    return Refuse(absl::StrCat("has an example of ", examples->most_parts(), " texts"),
                  absl::StrCat("set sampling.seq_len to ", least, " or more"));
  }
  // Fewer choices leave sequences empty; fewer classes would be another mapping of labels.
  const bool fits = task.has_choices() ? examples->num_classes() <= task.num_classes
                                       : examples->num_classes() == task.num_classes;
  if (!fits) {
    const bool has_scores = data::HasScores(*dataset.index().examples);
    return Refuse(absl::StrCat("has ", examples->num_classes(),
                               task.has_choices() ? " choices"
                               : has_scores       ? " score a text"
                                                  : " classes",
                               " but objective.num_classes is ", task.num_classes),
                  task.has_choices() ? "set it to the most choices of an example"
                                     : "set it to their number; held-out data take the classes of "
                                       "the training data with --labels-from");
  }
  if (labels == TaskLabels::kMayLack) return absl::OkStatus();
  const auto misplaced = dataset.index().counts.find(data::kMisplacedCount);
  uint64_t left_out = misplaced == dataset.index().counts.end() ? 0 : misplaced->second;
  for (int64_t i = 0; i < examples->num_examples(); ++i) {
    if (examples->HasLabel(i) || (left_out > 0 && left_out-- > 0)) continue;
    return Refuse(absl::StrCat("has no label for example ", i),
                  "training needs one for each; leave such examples out");
  }
  return absl::OkStatus();
}

void WarnOfCutExamples(const RunConfig& config, const data::Dataset& dataset,
                       const std::string& path) {
  const data::StoredExamples* examples = dataset.examples();
  if (examples == nullptr || examples->task() == ExampleTask::kSpans) return;
  const InputLayout layout = TraitsOf(config).layout;
  const int64_t seq_len = config.sampling.seq_len;
  int64_t cut = 0, lost = 0, tokens = 0;
  for (int64_t i = 0; i < examples->num_examples(); ++i) {
    int64_t over = 0;
    for (const int64_t length :
         SequenceLengths(layout, examples->task(), examples->Outline(i)->lengths)) {
      tokens += length;
      over += std::max<int64_t>(0, length - seq_len);
    }
    lost += over;
    cut += over > 0 ? 1 : 0;
  }
  if (cut == 0) return;
  LogWarning(absl::StrCat(cut, " of ", examples->num_examples(), " examples of '", path,
                          "' are longer than sampling.seq_len=", seq_len, " and are cut: ", lost,
                          " of ", tokens, " tokens are not read"));
}

absl::Status CheckSameClasses(const RunConfig& config, const data::DatasetIndex& held_out,
                              const std::string& held_out_name, const data::DatasetIndex& training,
                              const std::string& training_name) {
  if (!config.model.task.has_head() || !held_out.examples || !training.examples)
    return absl::OkStatus();
  if (held_out.examples->classes == training.examples->classes) return absl::OkStatus();
  return FailedPrecondition(
      held_out_name, " numbers its classes differently from ", training_name,
      "; prepare it with `anyorder prep --labels-from DIR`, the training data");
}

}  // namespace anyorder
