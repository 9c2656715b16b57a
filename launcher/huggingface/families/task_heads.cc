#include "launcher/huggingface/families/task_heads.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

namespace anyorder::launcher {
namespace {

constexpr char kWeight[] = "task_head.weight";
constexpr char kBias[] = "task_head.bias";
constexpr char kPooler[] = "sequence_summary.summary.weight";
constexpr int64_t kMaxClasses = 1 << 16;
// Keys of config.json that transformers does not know, and keeps.
constexpr char kNumChoices[] = "num_choices";
constexpr char kAnswerClass[] = "answer_class";

HfHead PooledHead(HfHeadKind kind, const char* architecture, const char* pooler_weight,
                  const char* pooler_bias, const char* weight) {
  HfHead head{"task's head", architecture, kOtherTask, {}, kind};
  if (pooler_weight != nullptr) {
    head.names = {{kPooler, pooler_weight}, {"sequence_summary.summary.bias", pooler_bias}};
  }
  head.names.emplace_back(kWeight, weight);
  return head;
}

// That of the network's task, or null.
const HfHead* FindTaskHead(const HfFamily& family, const ModelConfig& model) {
  for (const HfHead& head : family.heads())
    if (head.is_of_task() && head.IsIn(model)) return &head;
  return nullptr;
}

// The shape of what a run does not have.
Shape MissingShape(const ParameterLayout& layout, absl::string_view ours) {
  if (ours.empty()) return {1};  // of choices
  return layout.Find(absl::StrCat("end_logits", absl::StripPrefix(ours, kAnswerClass))).shape;
}

// [d, 2 d] where ours is [2, d, d].
FileTensor HeadTensor(const Shape& shape, int64_t offset, const char* theirs) {
  const bool is_pair = shape.rank() == 3;
  const int64_t rows = is_pair ? shape[1] : shape[0];
  const int64_t columns = is_pair ? shape[2] : shape.num_elements() / rows;
  FileTensor tensor{theirs, shape, {{offset, rows, columns}}};
  if (!is_pair) return tensor;
  tensor.shape = Shape{rows, 2 * columns};
  tensor.side_by_side = true;
  tensor.blocks.push_back({offset < 0 ? offset : offset + rows * columns, rows, columns});
  return tensor;
}

// The number that config.json says, in one of its ways.
int64_t ReadNumLabels(HfConfigReader& reader) {
  const HfConfigReader::Json* const labels = reader.Find("id2label");
  if (labels != nullptr && labels->is_object()) return static_cast<int64_t>(labels->size());
  int64_t count = 2;  // transformers' default
  if (!reader.Size("num_labels", 1, kMaxClasses, count))
    reader.Size("_num_labels", 1, kMaxClasses, count);
  return count;
}

void ReadClasses(const HfHead& head, HfConfigReader& reader, ObjectiveConfig& objective) {
  objective.num_classes = ReadNumLabels(reader);
  objective.head_bias = head.Holds(kBias);
  const HfConfigReader::Json* const problem = reader.Find("problem_type");
  reader.unsupported().Require(
      problem == nullptr || *problem != "multi_label_classification",
      "'problem_type' is \"multi_label_classification\": of our classes one is right; set it "
      "to \"single_label_classification\" if these weights are to learn that");
}

void ReadChoices(HfConfigReader& reader, ObjectiveConfig& objective) {
  objective.task = ExampleTask::kMultipleChoice;
  objective.num_classes = 4;
  reader.Size(kNumChoices, 2, kMaxClasses, objective.num_classes);
}

void ReadTags(const HfHead& head, HfConfigReader& reader, ObjectiveConfig& objective) {
  objective.task = ExampleTask::kTokens;
  objective.num_classes = ReadNumLabels(reader);
  if (!head.has_dropout) objective.classifier_dropout = 0;
}

void ReadSpans(const HfHead& head, HfConfigReader& reader, ObjectiveConfig& objective) {
  objective.task = ExampleTask::kSpans;
  const bool is_simple = head.kind == HfHeadKind::kSimpleSpans;
  objective.span_head = is_simple ? SpanHeadKind::kSimple : SpanHeadKind::kConditional;
  objective.answer_class = !is_simple;
  if (!is_simple) reader.Bool(kAnswerClass, objective.answer_class);
}

bool Fits(int64_t count, const HfFamily::Json& labels) {
  return labels.is_number() ? labels == count
                            : labels.is_object() && labels.size() == static_cast<size_t>(count);
}

void WriteLabels(int64_t count, const std::vector<std::string>& classes, HfFamily::Json& json) {
  KeepLabels(count, json);
  const bool are_known = static_cast<int64_t>(classes.size()) == count;
  if (!are_known && json.contains("id2label")) return;
  json["id2label"] = json["label2id"] = HfFamily::Json::object();
  for (int64_t i = 0; i < count; ++i) {
    const std::string name = are_known ? classes[i] : absl::StrCat("LABEL_", i);
    json["id2label"][absl::StrCat(i)] = name;
    json["label2id"][name] = i;
  }
}

}  // namespace

HfHead ClassesHead(const char* architecture, const char* pooler_weight, const char* pooler_bias,
                   const char* weight, const char* bias) {
  HfHead head = PooledHead(HfHeadKind::kClasses, architecture, pooler_weight, pooler_bias, weight);
  if (bias != nullptr) head.names.emplace_back(kBias, bias);
  return head;
}

HfHead ChoicesHead(const char* architecture, const char* pooler_weight, const char* pooler_bias,
                   const char* weight, const char* bias) {
  HfHead head = PooledHead(HfHeadKind::kChoices, architecture, pooler_weight, pooler_bias, weight);
  head.names.emplace_back("", bias);
  return head;
}

HfHead SimpleSpansHead(const char* architecture) {
  return {"simple head of questions",
          architecture,
          kOtherTask,
          {{"qa_outputs.weight", "qa_outputs.weight"}, {"qa_outputs.bias", "qa_outputs.bias"}},
          HfHeadKind::kSimpleSpans};
}

HfHead TagsHead(const char* architecture, bool has_dropout) {
  return {.name = "task's head",
          .architecture = architecture,
          .remedy = kOtherTask,
          .names = {{kWeight, "classifier.weight"}, {kBias, "classifier.bias"}},
          .kind = HfHeadKind::kTags,
          .has_dropout = has_dropout};
}

void KeepLabels(int64_t count, HfFamily::Json& json) {
  for (const char* key : {"id2label", "label2id", "num_labels", "_num_labels"})
    if (json.contains(key) && !Fits(count, json[key])) json.erase(key);
}

bool HfHead::IsIn(const ModelConfig& model) const {
  const TaskConfig& task = model.task;
  const bool has_spans = task.has_spans();
  const bool has_classes = task.num_classes > 0 && !has_spans;
  switch (kind) {
    case HfHeadKind::kLanguageModel: return true;
    case HfHeadKind::kNextSentence: return model.next_sentence_head;
    case HfHeadKind::kClasses: return has_classes && !task.has_choices() && !task.has_tags();
    case HfHeadKind::kChoices: return has_classes && task.has_choices();
    case HfHeadKind::kTags: return has_classes && task.has_tags();
    case HfHeadKind::kConditionalSpans:
      return has_spans && task.span_head == SpanHeadKind::kConditional;
    case HfHeadKind::kSimpleSpans: return has_spans && task.span_head == SpanHeadKind::kSimple;
  }
  return false;
}

bool HfHead::Holds(absl::string_view ours) const {
  return std::any_of(names.begin(), names.end(),
                     [ours](const auto& name) { return name.first == ours; });
}

const char* HfFamily::Architecture(const ModelConfig& model) const {
  if (const HfHead* const head = FindTaskHead(*this, model)) return head->architecture;
  if (!model.next_sentence_head || names().next_sentence_architecture == nullptr)
    return names().architecture;
  return names().next_sentence_architecture;
}

TensorTable HfFamily::HeadTensors(const ModelConfig& model, const ParameterLayout& layout) const {
  TensorTable tensors;
  for (const HfHead& head : heads()) {
    if (!head.IsIn(model)) continue;
    for (const auto& [ours, theirs] : head.names) {
      const bool is_ours = layout.Contains(ours);
      if (!is_ours && !head.is_of_task()) continue;
      tensors.push_back(is_ours
                            ? HeadTensor(layout.Find(ours).shape, layout.Find(ours).offset, theirs)
                            : HeadTensor(MissingShape(layout, ours), -1, theirs));
      tensors.back().head = &head;
      tensors.back().is_alias = !head.is_of_task() && model.task.has_head();
    }
  }
  return tensors;
}

void HfFamily::CheckObjective(const RunConfig& config, std::span<const char* const> pretraining,
                              HfObstacles& obstacles) const {
  const std::string& name = config.objective.name;
  const TaskConfig& task = config.model.task;
  const auto is_among = [&name](std::span<const char* const> objectives) {
    return std::find(objectives.begin(), objectives.end(), name) != objectives.end();
  };
  std::vector<std::string> all(pretraining.begin(), pretraining.end());
  all.insert(all.end(), finetuning().begin(), finetuning().end());
  if (!is_among(pretraining) && !is_among(finetuning())) {
    const std::string last = all.back();
    all.pop_back();
    obstacles.list.push_back(absl::StrCat("objective.name is ", name, ", not ",
                                          absl::StrJoin(all, ", "), all.empty() ? "" : " or ",
                                          last));
  }
  if (!task.has_head()) return;
  const HfHead* const head = FindTaskHead(*this, config.model);
  if (head == nullptr) {
    obstacles.list.push_back(task.has_spans()
                                 ? absl::StrCat("objective.span_head is ", EnumName(task.span_head))
                                 : absl::StrCat("objective.task is ", ExampleTaskName(task.task)));
    return;
  }
  if (task.has_spans()) return;
  const bool has_pooler = head->Holds(kPooler);
  obstacles.Require(task.pooler == has_pooler,
                    absl::StrCat("objective.pooler is ", task.pooler ? "true" : "false"));
  if (task.has_choices()) return;
  obstacles.Require(task.bias == head->Holds(kBias),
                    absl::StrCat("objective.head_bias is ", task.bias ? "true" : "false"));
}

void HfFamily::ReadTask(HfConfigReader& reader, HfConfig& config) const {
  const HfConfigReader::Json* const classes = reader.Find("architectures");
  if (classes == nullptr || !classes->is_array() || classes->empty()) return;
  for (const HfHead& head : heads()) {
    if (!head.is_of_task() || classes->front() != head.architecture) continue;
    ObjectiveConfig& objective = config.objective;
    objective.name = finetuning().front();
    objective.pooler = head.Holds(kPooler);
    switch (head.kind) {
      case HfHeadKind::kClasses: ReadClasses(head, reader, objective); break;
      case HfHeadKind::kChoices: ReadChoices(reader, objective); break;
      case HfHeadKind::kTags: ReadTags(head, reader, objective); break;
      default: ReadSpans(head, reader, objective);
    }
  }
}

void HfFamily::WriteTask(const TaskConfig& task, const std::vector<std::string>& classes,
                         Json& json) const {
  if (!task.has_head()) return;
  if (task.has_choices()) {
    json[kNumChoices] = task.num_classes;
  } else if (!task.has_spans()) {
    WriteLabels(task.num_classes, classes, json);
    if (task.has_tags()) return;
    if (task.has_score()) json["problem_type"] = "regression";
    if (!task.has_score() && json.contains("problem_type"))
      json["problem_type"] = "single_label_classification";
  } else if (task.span_head == SpanHeadKind::kSimple) {
    KeepLabels(2, json);  // outputs
  } else if (!task.answer_class || json.contains(kAnswerClass)) {
    json[kAnswerClass] = task.answer_class;
  }
}

}  // namespace anyorder::launcher
