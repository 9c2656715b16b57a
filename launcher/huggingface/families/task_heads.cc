#include "launcher/huggingface/families/task_heads.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace anyorder::launcher {
namespace {

constexpr char kTaskHead[] = "task_head";
constexpr char kBias[] = "task_head.bias";
constexpr char kSummary[] = "sequence_summary.summary";
constexpr int64_t kMaxClasses = 1 << 16;
// Keys of config.json that transformers does not know, and keeps.
constexpr char kNumChoices[] = "num_choices";
constexpr char kAnswerClass[] = "answer_class";

// "" as a pooler's name: none.
HfHead PooledHead(HfHeadKind kind, const std::string& architecture, const std::string& pooler,
                  const std::string& output) {
  DenseNames layers = {{kTaskHead, output}};
  if (!pooler.empty()) layers.insert(layers.begin(), {kSummary, pooler});
  return DenseHead("task's head", architecture, kOtherTask, layers, kind);
}

// The shape of what a run does not have.
Shape MissingShape(const ParameterLayout& layout, absl::string_view ours) {
  if (ours.empty()) return {1};  // of choices
  return layout.Find(absl::StrCat("end_logits", absl::StripPrefix(ours, kAnswerClass))).shape;
}

// [d, 2 d] where ours is [2, d, d].
FileTensor HeadTensor(const Shape& shape, int64_t offset, const std::string& theirs) {
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
  const Json* const labels = reader.Find("id2label");
  if (labels != nullptr && labels->is_object()) return static_cast<int64_t>(labels->size());
  int64_t count = 2;  // transformers' default
  if (!reader.Size("num_labels", 1, kMaxClasses, count))
    reader.Size("_num_labels", 1, kMaxClasses, count);
  return count;
}

void ReadClasses(const HfHead& head, HfConfigReader& reader, ObjectiveConfig& objective) {
  objective.num_classes = ReadNumLabels(reader);
  objective.bias = head.Holds(kBias);
  const Json* const problem = reader.Find("problem_type");
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
  if (!head.has_dropout) objective.dropout = 0;
}

void ReadSpans(const HfHead& head, HfConfigReader& reader, ObjectiveConfig& objective) {
  objective.task = ExampleTask::kSpans;
  const bool is_simple = head.kind == HfHeadKind::kSimpleSpans;
  objective.span_head = is_simple ? SpanHeadKind::kSimple : SpanHeadKind::kConditional;
  objective.answer_class = !is_simple;
  if (!is_simple) reader.Bool(kAnswerClass, objective.answer_class);
}

bool Fits(int64_t count, const Json& labels) {
  return labels.is_number() ? labels == count
                            : labels.is_object() && labels.size() == static_cast<size_t>(count);
}

void WriteLabels(int64_t count, const std::vector<std::string>& classes, Json& json) {
  KeepLabels(count, json);
  const bool are_known = std::ssize(classes) == count;
  if (!are_known && json.contains("id2label")) return;
  json["id2label"] = json["label2id"] = Json::object();
  for (int64_t i = 0; i < count; ++i) {
    const std::string name = are_known ? classes[i] : absl::StrCat("LABEL_", i);
    json["id2label"][absl::StrCat(i)] = name;
    json["label2id"][name] = i;
  }
}

}  // namespace

HfHead DenseHead(const char* name, const std::string& architecture, const char* remedy,
                 const DenseNames& layers, HfHeadKind kind) {
  HfHead head{name, architecture, remedy, {}, kind};
  for (const auto& [ours, theirs] : layers)
    for (const char* part : {".weight", ".bias"})
      head.names.emplace_back(ours + part, theirs + part);
  return head;
}

HfHead ClassesHead(const std::string& architecture, const std::string& pooler,
                   const std::string& output, bool has_bias) {
  HfHead head = PooledHead(HfHeadKind::kClasses, architecture, pooler, output);
  if (!has_bias) head.names.pop_back();
  return head;
}

HfHead ChoicesHead(const std::string& architecture, const std::string& pooler,
                   const std::string& output) {
  HfHead head = PooledHead(HfHeadKind::kChoices, architecture, pooler, output);
  head.names.back().first = "";
  return head;
}

HfHead SimpleSpansHead(const std::string& architecture) {
  return DenseHead("simple head of questions", architecture, kOtherTask,
                   {{"qa_outputs", "qa_outputs"}}, HfHeadKind::kSimpleSpans);
}

HfHead TagsHead(const std::string& architecture, bool has_dropout) {
  HfHead head = PooledHead(HfHeadKind::kTags, architecture, /*pooler=*/"", "classifier");
  head.has_dropout = has_dropout;
  return head;
}

void KeepLabels(int64_t count, Json& json) {
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

const HfHead* HfFamily::FindTaskHead(const ModelConfig& model) const {
  for (const HfHead& head : heads())
    if (head.is_of_task() && head.IsIn(model)) return &head;
  return nullptr;
}

std::string HfFamily::Architecture(const ModelConfig& model) const {
  if (const HfHead* const head = FindTaskHead(model)) return head->architecture;
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
      if (!is_ours && (!head.is_of_task() || absl::StartsWith(ours, kSummary))) continue;
      tensors.push_back(is_ours
                            ? HeadTensor(layout.Find(ours).shape, layout.Find(ours).offset, theirs)
                            : HeadTensor(MissingShape(layout, ours), -1, theirs));
      tensors.back().head = &head;
      tensors.back().is_alias = !head.is_of_task() && model.task.has_head();
    }
  }
  return tensors;
}

void HfFamily::ReadTask(HfConfigReader& reader, HfConfig& config) const {
  const Json* const classes = reader.Find("architectures");
  if (classes == nullptr || !classes->is_array() || classes->empty()) return;
  for (const HfHead& head : heads()) {
    if (!head.is_of_task() || classes->front() != head.architecture) continue;
    ObjectiveConfig& objective = config.objective;
    objective.name = names().finetuning.front();
    objective.pooler = head.Holds("sequence_summary.summary.weight");
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
