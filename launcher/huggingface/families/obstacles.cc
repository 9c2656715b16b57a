// Which runs a family can hold: those of which its config.json says the same. A key of [model] that
// a family does not know is read as its default, so that a run with another value is refused.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include "core/base/status.h"
#include "core/train/run/field_text.h"
#include "launcher/huggingface/families/hf_family.h"

namespace anyorder::launcher {
namespace {

// Above any cutoff of an adaptive softmax: the family is the same with any vocabulary.
constexpr int64_t kAnyVocabulary = HfKeys::kMaxSize;

// The run's network with what the family writes in its place (HfKeys::Replace).
ModelConfig AsWritten(const HfFamily& family, const RunConfig& config) {
  HfConfig described = family.Describe(config, kAnyVocabulary, {});
  Json scratch;
  HfKeys keys(described, scratch, HfKeys::In::kNew);
  family.VisitKeys(keys);
  return described.model;
}

// Makes keys equal that another one switches off in either: they decide nothing, or the other one
// differs, too.
void LeaveOutUnused(ModelConfig& ours, ModelConfig& theirs) {
  using M = ModelConfig;
  const auto unless = [&](bool (*uses)(const M&), auto... keys) {
    if (!uses(ours) || !uses(theirs)) ((theirs.*keys = ours.*keys), ...);
  };
  for (M* const model : {&ours, &theirs})
    if (model->num_kv_heads == model->num_heads) model->num_kv_heads = 0;
  unless([](const M& m) { return m.relative_positions() || m.relative_segments(); }, &M::untie_r);
  unless([](const M& m) { return m.learned_positions(); }, &M::max_positions);
  unless([](const M& m) { return m.positions == Positions::kRope; }, &M::rope_base,
         &M::rope_scaling);
  unless([](const M& m) { return m.rope_scaling != RopeScaling::kNone; }, &M::rope_factor,
         &M::rope_low_freq_factor, &M::rope_high_freq_factor, &M::rope_original_positions);
  unless([](const M& m) { return m.has_distance_bias(); }, &M::position_buckets,
         &M::position_bias_max_distance);
  unless([](const M& m) { return m.segments == Segments::kLearned; }, &M::num_segments);
  unless([](const M& m) { return m.attention_biases; }, &M::attention_output_bias);
  unless([](const M& m) { return m.adaptive(); }, &M::cutoffs, &M::div_val);
  unless([](const M& m) { return m.projects_clusters(); }, &M::tie_projections,
         &M::projection_init_range);
}

// The same of the heads, with what no config.json says of one.
void LeaveOutUnused(const HfFamily& family, const ModelConfig& model, const ObjectiveConfig& ours,
                    ObjectiveConfig& theirs) {
  const TaskConfig& task = model.task;
  const ObjectiveConfig read = theirs;
  theirs = ours;
  const auto heads = family.heads();
  if (std::none_of(heads.begin(), heads.end(),
                   [](const HfHead& head) { return head.kind == HfHeadKind::kNextSentence; })) {
    theirs.next_sentence = false;
  }
  if (family.FindTaskHead(model) == nullptr) return;
  if (!task.has_spans()) {
    theirs.num_classes = read.num_classes;
    theirs.pooler = read.pooler;
    if (!task.has_choices()) theirs.bias = read.bias;
  } else if (task.span_head == SpanHeadKind::kConditional) {
    theirs.answer_class = read.answer_class;
  }
}

// "model.key = value" of what decides the function, and with `all` of what decides what an export
// computes though a run may change it.
std::vector<std::string> Lines(const RunConfig& config, bool all) {
  std::vector<std::string> lines = FunctionLines(config);
  if (!all) return lines;
  const ModelConfig& model = config.model;
  lines.push_back(absl::StrCat("model.mem_len = ", model.mem_len));
  lines.push_back(
      absl::StrCat("model.attention_windows = ", field_text::Format(model.attention_windows)));
  lines.push_back(absl::StrCat("model.same_length = ", field_text::Format(model.same_length)));
  return lines;
}

// "model.key is ours, not theirs" of each.
std::vector<std::string> Differences(const HfConfig& read, const RunConfig& config, bool all) {
  const HfFamily& family = *read.family;
  RunConfig ours = config, theirs;
  ours.model = AsWritten(family, config);
  theirs.model = read.model;
  theirs.objective = read.objective;
  if (read.gelu_is_open && ours.model.activation == kernels::Activation::kGeluErf)
    theirs.model.activation = ours.model.activation;
  LeaveOutUnused(ours.model, theirs.model);
  LeaveOutUnused(family, config.model, ours.objective, theirs.objective);
  const std::vector<std::string> our_lines = Lines(ours, all), their_lines = Lines(theirs, all);
  std::vector<std::string> differences;
  for (size_t i = 0; i < our_lines.size(); ++i) {
    if (our_lines[i] == their_lines[i]) continue;
    const std::vector<std::string> mine = absl::StrSplit(our_lines[i], absl::MaxSplits(" = ", 1));
    const std::vector<std::string> other =
        absl::StrSplit(their_lines[i], absl::MaxSplits(" = ", 1));
    differences.push_back(absl::StrCat(mine[0], " is ", mine[1], ", not ", other[1]));
  }
  return differences;
}

// What is wrong with the objective: it must be one of the family's, with a head that a class has.
std::vector<std::string> ObjectiveObstacles(const HfFamily& family, const RunConfig& config) {
  const HfFamily::Names names = family.names();
  const TaskConfig& task = config.model.task;
  std::vector<std::string> all(names.pretraining.begin(), names.pretraining.end()), obstacles;
  all.insert(all.end(), names.finetuning.begin(), names.finetuning.end());
  if (std::find(all.begin(), all.end(), config.objective.name) == all.end()) {
    const std::string last = all.back();
    all.pop_back();
    obstacles.push_back(absl::StrCat("objective.name is ", config.objective.name, ", not ",
                                     absl::StrJoin(all, ", "), all.empty() ? "" : " or ", last));
  }
  if (task.has_head() && family.FindTaskHead(config.model) == nullptr) {
    obstacles.push_back(task.has_spans()
                            ? absl::StrCat("objective.span_head is ", EnumName(task.span_head))
                            : absl::StrCat("objective.task is ", EnumName(task.task)));
  }
  return obstacles;
}

}  // namespace

std::vector<std::string> Obstacles(const HfFamily& family, const RunConfig& config) {
  const Json written =
      family.NewConfig(config, kAnyVocabulary, DType::kFloat32, {}, /*classes=*/{});
  HfConfigReader reader(written);
  const HfConfig read = family.ReadConfig(reader);
  std::vector<std::string> obstacles = ObjectiveObstacles(family, config);
  const std::vector<std::string> differences = Differences(read, config, /*all=*/true);
  obstacles.insert(obstacles.end(), differences.begin(), differences.end());
  for (const FaultList* faults : {&reader.faults(), &reader.unsupported()}) {
    if (faults->empty()) continue;
    // Mostly it says of their key what was said of ours.
    if (differences.empty()) {
      obstacles.push_back(faults->Joined());
    } else {
      absl::StrAppend(&obstacles.back(), " (", faults->Joined(), ")");
    }
  }
  return obstacles;
}

absl::Status CheckFamily(const HfFamily& family, const RunConfig& config) {
  const std::vector<std::string> obstacles = Obstacles(family, config);
  if (obstacles.empty()) return absl::OkStatus();
  return FailedPrecondition("Hugging Face's ", family.Architecture(config.model),
                            " cannot represent this model: ", absl::StrJoin(obstacles, "; "),
                            "; --format safetensors exports any");
}

absl::Status CheckSays(const HfConfig& read, const RunConfig& config, bool trained) {
  const std::vector<std::string> differences = Differences(read, config, /*all=*/trained);
  if (differences.empty()) return absl::OkStatus();
  return FailedPrecondition("config.json would say another function of these weights: ",
                            absl::StrJoin(differences, "; "), "; --format safetensors exports any");
}

}  // namespace anyorder::launcher
