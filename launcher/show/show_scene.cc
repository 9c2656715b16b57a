#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "core/base/counted.h"
#include "core/base/status.h"
#include "core/base/whole_file.h"
#include "core/config/attention_windows.h"
#include "core/objective/objective.h"
#include "core/train/run/config_file.h"
#include "core/train/run/run_directory.h"
#include "data/sampling/sampler.h"
#include "kernels/visibility.h"
#include "launcher/show/show.h"
#include "launcher/show/show_text.h"

namespace anyorder::launcher {
namespace {

constexpr int64_t kDefaultLength = 16;

// Whether its lanes have one order over all positions, which a user may give.
bool TakesOrder(const ObjectiveTraits& traits) { return traits.sample_kind == SampleKind::kPairs; }

absl::StatusOr<RunConfig> ReadConfig(const ShowOptions& options) {
  std::string path = options.config;
  if (!options.run_dir.empty()) {
    RETURN_IF_ERROR(CheckIsRun(options.run_dir));
    path = RunDirectory(options.run_dir).config;
  }
  if (!path.empty()) {
    ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, kMaxSettingsBytes));
    return ParseRunConfig(text, path);
  }
  RunConfig published;
  // Not the published 3/4: more memory than this only makes the picture wider, since all of it
  // looks the same.
  published.model.mem_len = published.sampling.seq_len / 4;
  return published;
}

// One sentence short enough to be A in a small picture, then longer ones.
constexpr char kOwnText[] =
    "New York is a city. It never sleeps. Ferries cross the wide harbour all night long. "
    "Some people read. Others write letters home to their friends. Rain fell on the roofs.";

// `first_half`: slots of the reuse part, 0 if it is a part of A.
std::vector<ShownSection> PartsOf(const Scene& scene, int64_t first_half, ShownText& text) {
  std::vector<ShownSection> parts;
  TextSample sample = scene.sample;
  if (sample.is_functional.empty()) return parts;
  // Samples end with CLS; objectives may put it first.
  const int64_t slots = std::ssize(sample.tokens) - sample.padding;
  if (first_half == 0 && scene.batch.tokens[0] == text.vocabulary().classifier) {
    const auto to_front = [slots](auto& values) {
      std::rotate(values.begin(), values.begin() + slots - 1, values.begin() + slots);
    };
    to_front(sample.tokens);
    to_front(sample.is_functional);
  }
  if (first_half > 0) parts.push_back({0, first_half, "reuse"});
  const char* next_segment = "A";
  for (int64_t begin = first_half; begin < slots;) {
    int64_t end = begin + 1;
    if (sample.is_functional[begin] != 0) {
      parts.push_back(
          {begin, end, sample.tokens[begin] == text.vocabulary().classifier ? "CLS" : "SEP"});
    } else {
      while (end < slots && sample.is_functional[end] == 0) ++end;
      parts.push_back({begin, end, next_segment});
      next_segment = "B";
    }
    begin = end;
  }
  if (sample.padding > 0) parts.push_back({slots, slots + sample.padding, "padding"});
  // Copies of tokens, after the text: those that only their group sees apart.
  const auto text_end = std::ssize(scene.sample.tokens);
  const auto shown = std::ssize(scene.content);
  const auto grouped =
      std::count_if(scene.content.begin() + text_end, scene.content.end(),
                    [&](const ShownSlot& row) { return scene.batch.row_grp[row.index] >= 0; });
  if (shown > text_end + grouped) parts.push_back({text_end, shown - grouped, "[M]"});
  if (grouped > 0) parts.push_back({shown - grouped, shown, "[P]"});
  return parts;
}

// Room for copies that this sample does not need is left out.
void AddKeys(const ShownText& text, Scene& scene) {
  const auto text_end = std::ssize(scene.sample.tokens);
  const Batch& batch = scene.batch;
  const BatchShape& shape = batch.shape;
  for (int64_t k = 0; k < shape.num_keys(); ++k) {
    ShownSlot key;
    key.index = k;
    key.pos = batch.key_pos[k] + scene.first_slot;
    key.rank = batch.key_key[k];
    const int64_t slot = k - shape.memory_rows;
    if (slot >= text_end && batch.key_doc[k] == kernels::kDocPad) continue;
    if (slot < 0) {
      key.kind = SlotKind::kMemory;
    } else if (slot < shape.content_rows) {
      key.token = text.Name(batch.tokens[slot]);
    } else {
      key.kind = SlotKind::kQuery;
    }
    scene.keys.push_back(std::move(key));
  }
}

void AddRows(const ShownText& text, Scene& scene) {
  const auto text_end = std::ssize(scene.sample.tokens);
  const Batch& batch = scene.batch;
  const BatchShape& shape = batch.shape;
  std::vector<std::optional<std::string>> labels(shape.num_rows());
  std::vector<bool> is_unused(shape.num_rows(), false);
  for (int64_t t = 0; t < shape.targets; ++t) {
    const int32_t row = batch.readout_rows[t];
    if (batch.weights[t] > 0) {
      labels[row] = text.Name(batch.labels[t]);
    } else if (row >= shape.content_rows) {
      is_unused[row] = !labels[row];
    }
  }
  for (int64_t r = 0; r < shape.num_rows(); ++r) {
    if (r >= text_end && r < shape.content_rows && batch.row_doc[r] == kernels::kDocPad) continue;
    ShownSlot row;
    row.kind = r < shape.content_rows ? SlotKind::kContent : SlotKind::kQuery;
    row.index = r;
    row.pos = batch.row_pos[r] + scene.first_slot;
    row.rank = batch.row_lim[r];
    row.label = labels[r];
    if (labels[r]) ++scene.num_targets;
    if (row.kind == SlotKind::kContent) {
      row.token = text.Name(batch.tokens[r]);
      scene.content.push_back(std::move(row));
    } else if (is_unused[r] && (!shape.query_is_key || batch.row_doc[r] == kernels::kDocPad)) {
      ++scene.num_unused_queries;
    } else {
      if (row.label) row.token = *row.label;
      scene.queries.push_back(std::move(row));
    }
  }
}

absl::StatusOr<ShownText> MakeText(const ShowOptions& options, const SamplingConfig& sampling,
                                   int64_t memory) {
  // Enough for the pairs of one step to come from all over it, and for the token after the last
  // one.
  const int64_t length = 8 * sampling.seq_len + 2 * memory + 64;
  if (options.tokens || (!options.orders.empty() && options.text.empty()))
    return ShownText::Numbered(length, std::max<int64_t>(2, sampling.seq_len / 6));
  return ShownText::FromWords(options.text.empty() ? kOwnText : options.text, length);
}

// Text of a side of a window.
std::string SideText(int32_t side) { return side < 0 ? "*" : absl::StrCat(side); }

absl::Status ChooseWindow(const ModelConfig& model, const ShowOptions& options, Scene& scene) {
  if (options.layer < 0 || options.layer >= model.num_layers || options.head < 0 ||
      options.head >= model.num_heads) {
    return InvalidArgument("--layer ", options.layer, " --head ", options.head, ": must be below ",
                           model.num_layers, " and ", model.num_heads);
  }
  ASSIGN_OR_RETURN(const std::vector<kernels::Band> bands, AttentionWindows(model));
  if (bands.empty()) return absl::OkStatus();
  scene.band = bands[options.layer * model.num_heads + options.head];
  if (scene.band.unlimited()) return absl::OkStatus();
  scene.window = absl::StrCat("window ", SideText(scene.band.left), ":", SideText(scene.band.right),
                              scene.band.stride > 1 ? absl::StrCat(":", scene.band.stride) : "",
                              " of layer ", options.layer, ", head ", options.head);
  return absl::OkStatus();
}

// Positions of a text, counted from 1, in the order of prediction, as Yang et al. 2019 write them:
// "3,2,4,1" is 3 -> 2 -> 4 -> 1. InvalidArgument unless each of 1 to n comes once.
absl::StatusOr<std::vector<int32_t>> ParseOrder(const std::string& order) {
  std::vector<int32_t> positions;
  for (const absl::string_view part : absl::StrSplit(order, ',')) {
    int32_t position = 0;
    if (!absl::SimpleAtoi(part, &position)) {
      return InvalidArgument("--order ", order, ": '", std::string(part),
                             "' is not a position; write them as 3,2,4,1");
    }
    positions.push_back(position);
  }
  const auto size = static_cast<int32_t>(positions.size());
  std::vector<bool> is_named(positions.size(), false);
  for (const int32_t position : positions) {
    if (position < 1 || position > size) {
      return InvalidArgument("--order ", order, ": ", position, " is not in 1 to ", size,
                             "; name each of the ", size, " positions once");
    }
    if (is_named[position - 1])
      return InvalidArgument("--order ", order, ": ", position,
                             " comes twice; name each position once");
    is_named[position - 1] = true;
  }
  return positions;
}

// What the sampler would hand over if it had drawn that order.
TextSample SampleOfOrder(const std::vector<int32_t>& order, std::vector<int32_t> tokens) {
  TextSample sample;
  sample.tokens = std::move(tokens);
  sample.segment.assign(order.size(), 0);
  sample.is_masked.assign(order.size(), 1);
  sample.is_functional.assign(order.size(), 0);
  sample.order.resize(order.size());
  for (size_t place = 0; place < order.size(); ++place)
    sample.order[order[place] - 1] = static_cast<int32_t>(place);
  return sample;
}

// Made without MakeObjective, which asks that text be in two parts, as the trainer's is.
absl::StatusOr<Scene> MakeOrderScene(const RunConfig& config, const ShowOptions& options) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Objective> objective,
                   TraitsOf(config).make({TraitsOf(config), config.model, config.sampling}));
  ASSIGN_OR_RETURN(const std::vector<int32_t> order, ParseOrder(options.orders.front()));
  ASSIGN_OR_RETURN(const ShownText text, MakeText(options, config.sampling, 0));
  std::vector<int32_t> tokens(order.size());
  RETURN_IF_ERROR(text.ReadTokens(0, std::ssize(order), tokens.data()));
  const BatchShape shape = objective->Shape(1);
  Scene scene(shape);
  scene.sample = SampleOfOrder(order, std::move(tokens));
  scene.sample.step = shape.memory_rows;  // late enough for a full memory
  objective->BuildLane(scene.sample, 0, scene.batch);
  scene.objective = config.objective.name;
  scene.is_order = true;
  scene.first_slot = 1;
  AddKeys(text, scene);
  AddRows(text, scene);
  return scene;
}

}  // namespace

void ScaleToLength(int64_t length, RunConfig& config) {
  SamplingConfig& sampling = config.sampling;
  const int64_t before = std::max<int64_t>(1, sampling.seq_len);
  const int64_t one_in = std::max<int64_t>(
      1, (before + sampling.num_predict / 2) / std::max<int64_t>(1, sampling.num_predict));
  const int64_t half = std::max<int64_t>(1, length / 2);
  sampling.seq_len = length;
  sampling.reuse_len = half;
  sampling.num_predict = std::max<int64_t>(1, length / one_in);
  int64_t perm_size = std::clamp<int64_t>(sampling.perm_size * length / before, 1, half);
  while (half % perm_size != 0) --perm_size;
  sampling.perm_size = perm_size;
  sampling.max_span = std::clamp<int64_t>(sampling.max_span, 1, half);
  config.model.mem_len = config.model.mem_len * length / before;
}

absl::StatusOr<RunConfig> ShowConfig(const ShowOptions& options) {
  ASSIGN_OR_RETURN(RunConfig config, ReadConfig(options));
  const bool is_published = options.config.empty() && options.run_dir.empty();
  if (!options.objective.empty()) config.objective.name = options.objective;
  ASSIGN_OR_RETURN(const ObjectiveTraits* const traits, ObjectiveNamed(config.objective.name));
  config.objective.name = traits->name;
  // The published default has memory and two reading directions.
  if (is_published && !traits->has(ObjectiveTraits::kRemembers)) {
    config.model.mem_len = 0;
    config.sampling.bidirectional = false;
  }
  if (is_published && traits->has(ObjectiveTraits::kPairedPositions))
    config.model.positions = Positions::kLearnedPairs;
  if (!options.orders.empty()) {
    if (!TakesOrder(*traits)) {
      return InvalidArgument("--order: ", traits->name,
                             " predicts in no order that could be given; use ",
                             ObjectivesThat(TakesOrder));
    }
    ASSIGN_OR_RETURN(const std::vector<int32_t> order, ParseOrder(options.orders.front()));
    // One part, all slots of it targets.
    SamplingConfig& sampling = config.sampling;
    sampling.seq_len = sampling.reuse_len = sampling.num_predict = std::ssize(order);
    config.model.mem_len = std::max<int64_t>(options.memory, 0);
    return config;
  }
  const int64_t length = options.length < 0 && is_published ? kDefaultLength : options.length;
  if (length >= 0) ScaleToLength(length, config);
  // A share of a small number of slots leaves the last block no room.
  if (length >= 0 && Overlap(traits->keys, SamplingKeys::kBlockSpans))
    config.sampling.num_predict = std::max(config.sampling.num_predict, (length + 3) / 4);
  if (options.memory >= 0) config.model.mem_len = options.memory;
  if (options.seed >= 0) config.train.seed = options.seed;
  for (const std::string& assignment : options.overrides)
    RETURN_IF_ERROR(ApplyOverride(assignment, config));
  ASSIGN_OR_RETURN(const ObjectiveTraits* const shown, ObjectiveNamed(config.objective.name));
  // Two classes or choices where nobody says how many.
  if (shown->has(ObjectiveTraits::kTaskHead) && config.objective.num_classes == 0 &&
      config.objective.task != ExampleTask::kSpans)
    config.objective.num_classes = 2;
  config.Resolve();
  RETURN_IF_ERROR(config.model.Validate().ToStatus());
  return config;
}

absl::StatusOr<Scene> MakeScene(const RunConfig& config, const ShowOptions& options) {
  if (!options.orders.empty()) return MakeOrderScene(config, options);
  ASSIGN_OR_RETURN(const std::unique_ptr<Objective> objective, MakeObjective(config));
  const BatchShape shape = objective->Shape(1);
  ASSIGN_OR_RETURN(ShownText text, MakeText(options, config.sampling, shape.memory_rows));
  if (objective->sample_kind() == SampleKind::kExamples) {
    const TaskConfig& task = config.model.task;
    text.MakeExample(task.has_head() ? task.task : ExampleTask::kGeneration, task.num_classes,
                     config.sampling.seq_len);
  }
  const bool own_lanes = options.config.empty() && options.run_dir.empty();
  const int64_t lanes = own_lanes ? 2 : config.train.global_batch_size;
  const int64_t streams = std::max<int64_t>(1, config.sampling.bidirectional ? lanes / 2 : lanes);
  const int64_t length = text.num_tokens();
  text.Lengthen(streams);
  SamplingConfig sampling = config.sampling;
  sampling.lane_cells = false;
  ASSIGN_OR_RETURN(const std::unique_ptr<data::Sampler> sampler,
                   data::Sampler::Create(text, sampling, objective->sample_kind(),
                                         static_cast<uint64_t>(config.train.seed), lanes));
  if (options.lane < 0 || options.lane >= lanes)
    return InvalidArgument("--lane ", options.lane, ": must be in [0, ", lanes, ")");
  const int64_t step = options.step >= 0 ? options.step
                                         : (shape.memory_rows + shape.advance - 1) /
                                               std::max<int64_t>(1, shape.advance);
  // The lane reads its `begin`th token where the text's first word is to be (for a backward lane:
  // the last one).
  const int64_t begin = step % sampler->steps_per_epoch() * shape.advance;
  const int64_t stream_begin = options.lane % streams * length;
  text.SetOrigin(stream_begin + (sampler->IsBackward(options.lane) ? length - begin : begin));

  Scene scene(shape);
  ASSIGN_OR_RETURN(scene.sample, sampler->Sample(options.lane, step));
  objective->BuildLane(scene.sample, 0, scene.batch);
  scene.objective = config.objective.name;
  if (objective->sample_kind() == SampleKind::kModePairs)
    absl::StrAppend(&scene.objective, ", ", EnumName(scene.sample.mode));
  scene.seed = static_cast<uint64_t>(config.train.seed);
  RETURN_IF_ERROR(ChooseWindow(config.model, options, scene));
  AddKeys(text, scene);
  AddRows(text, scene);
  scene.parts = PartsOf(scene, objective->has_reuse_part() ? config.sampling.reuse_len : 0, text);
  return scene;
}

bool Scene::Sees(const ShownSlot& row, const ShownSlot& key) const {
  return kernels::IsVisible(batch.rows(), row.index, batch.keys(), key.index, band);
}

std::string Scene::RankText(const ShownSlot& key) {
  const bool has_rank = key.kind != SlotKind::kMemory && key.rank != kernels::kKeyNever;
  return has_rank ? absl::StrCat(key.rank) : "";
}

std::string Scene::Why(const ShownSlot& row, const ShownSlot& key) const {
  if (key.rank <= row.rank) return absl::StrCat("rank ", key.rank, " <= ", row.rank);
  return absl::StrCat("both are in group ", batch.row_grp[row.index]);
}

bool Scene::StartsBlock(size_t k) const {
  if (k == 0) return false;
  if (keys[k].kind != keys[k - 1].kind) return true;
  const int64_t slot = keys[k].index - batch.shape.memory_rows;
  if (keys[k].kind != SlotKind::kContent) return false;
  const bool begins_copies = slot == std::ssize(sample.tokens);
  const bool begins_groups =
      batch.key_grp[keys[k].index] >= 0 && batch.key_grp[keys[k - 1].index] < 0;
  return begins_copies || begins_groups || (HasReusePart() && slot == parts[1].begin);
}

std::string Scene::Order(const std::string& arrow) const {
  std::vector<std::pair<int32_t, int64_t>> slots;
  for (const ShownSlot& key : keys) {
    const int64_t slot = key.index - batch.shape.memory_rows;
    if (key.kind == SlotKind::kContent && slot < std::ssize(sample.tokens))
      slots.emplace_back(key.rank, slot + first_slot);
  }
  std::vector<std::pair<int32_t, int64_t>> sorted = slots;
  std::stable_sort(sorted.begin(), sorted.end());
  std::set<int32_t> ranks;
  for (const auto& [rank, slot] : sorted) ranks.insert(rank);
  const bool left_to_right = sorted == slots && ranks.size() == slots.size();
  if (!is_order && (ranks.size() == 1 || left_to_right)) return "";
  std::string order;
  for (size_t i = 0; i < sorted.size(); ++i) {
    if (i > 0) absl::StrAppend(&order, sorted[i].first == sorted[i - 1].first ? " " : arrow);
    absl::StrAppend(&order, sorted[i].second);
  }
  return order;
}

std::string Scene::Title() const {
  const std::string sizes = absl::StrCat(
      batch.shape.content_rows, " slots",
      batch.shape.memory_rows > 0 ? absl::StrCat(" after ", batch.shape.memory_rows, " of memory")
                                  : "");
  if (is_order) return sizes;
  return absl::StrCat(objective, ": ", sizes, ", ", Counted(num_targets, "target"));
}

std::string Scene::Subtitle() const {
  if (is_order) return absl::StrCat(objective, ", all targets, in the order given");
  return absl::StrCat("seed ", seed, ", lane ", sample.lane, " (reads ",
                      sample.backward ? "backward" : "forward", "), step ", sample.step,
                      window.empty() ? "" : "; ", window);
}

}  // namespace anyorder::launcher
