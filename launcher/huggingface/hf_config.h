// Hugging Face's config.json of an XLNet, both ways: what it says about a model, and what it says
// about a run.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "core/config/model_config.h"
#include "core/train/run/run_config.h"
#include "data/dataset/dataset_index.h"

namespace anyorder::launcher {

struct HfConfig {
  // Architecture, dropout, memory and initial range; what the file leaves open has our default.
  ModelConfig model;
  int64_t vocab_size = 0;
  // ff_activation is "gelu": by name the exact GELU, yet the released models, whose files say so,
  // were trained with the tanh approximation. `model` has the latter; either may be chosen.
  bool gelu_is_open = false;
  // What makes the sequence summary another function than the next-sentence head, "" if nothing
  // does.
  std::string other_summary;
};

// `path` names the text in messages. Errors, each listing all faults with key, value found and
// values expected:
//   DataLoss: no JSON, keys missing or of the wrong type, sizes that do not fit together;
//   FailedPrecondition: another kind of model (model_type, attn_type "uni", same_length, an untied
//   output, another activation).
absl::StatusOr<HfConfig> ParseHfConfig(absl::string_view text, absl::string_view path);

// The name that config.json has for a key of section [model], or "".
absl::string_view HfNameOf(absl::string_view model_key);

// The config.json of an XLNetLMHeadModel with this run's weights.
std::string HfConfigText(const RunConfig& config, int64_t vocab_size, const data::VocabIds& ids);

// The same for a run that was imported: `original` with every key it has, known to us or not.
// Changed are the architecture's name and the element type, which are those of the file written
// beside it; and, once `trained`, the settings that the run chose: activation, memory, dropout and
// initial range.
std::string UpdatedHfConfigText(const std::string& original, const RunConfig& config,
                                int64_t vocab_size, bool trained);

}  // namespace anyorder::launcher
