#include "absl/strings/str_cat.h"

#include "core/config/adaptive_clusters.h"
#include "core/config/attention_windows.h"
#include "core/config/model_config.h"

namespace anyorder {
namespace {

std::string Fault(const char* key, double value, const char* bound) {
  return absl::StrCat("model.", key, " is ", value, " but must be ", bound);
}

void CheckPositionBias(const ModelConfig& model, FaultList& faults) {
  if (!model.has_distance_bias()) return;
  const bool both_ways = model.position_bias == PositionBias::kT5;
  faults.Require(model.positions == Positions::kLearned || model.positions == Positions::kNone,
                 "model.position_bias is on but model.positions is relative or rope, whose scores "
                 "know distances already; use learned ones, or none");
  faults.Require(!model.global_projections,
                 "model.position_bias is on but model.global_projections is true; the bias belongs "
                 "to one set of projections, so turn one of them off");
  // Half of the buckets of a side are for one distance each, at least one.
  faults.Require(
      model.position_buckets >= (both_ways ? 4 : 2) &&
          (!both_ways || model.position_buckets % 2 == 0),
      Fault("position_buckets", static_cast<double>(model.position_buckets),
            both_ways ? "an even number from 4 on: half of them for each side" : "at least 2"));
  const int64_t exact = model.position_buckets / (both_ways ? 4 : 2);
  faults.Require(model.position_bias_max_distance > exact &&
                     model.position_bias_max_distance <= (int64_t{1} << 20),
                 absl::StrCat("model.position_bias_max_distance is ",
                              model.position_bias_max_distance, " but must be above ", exact,
                              ", the distances with a bucket of their own, and at most 2^20"));
}

// Keys of Llama and its relatives.
void CheckLlamaKeys(const ModelConfig& model, FaultList& faults) {
  if (model.num_kv_heads >= 1) {
    faults.Require(model.num_heads % model.num_kv_heads == 0,
                   absl::StrCat("model.num_kv_heads is ", model.num_kv_heads,
                                " but must divide model.num_heads = ", model.num_heads));
  }
  faults.Require(model.kv_heads() == model.num_heads || !model.global_projections,
                 "model.num_kv_heads is below model.num_heads but model.global_projections is "
                 "true, whose keys have all heads; turn one of them off");
  faults.Require(
      !model.qk_norm ||
          (!model.relative_positions() && !model.relative_segments() && !model.global_projections),
      "model.qk_norm is true but positions or segments are relative or model.global_projections is "
      "true, whose scores it does not normalise; use rotary or learned positions");
  faults.Require(model.rope_scaling == RopeScaling::kNone ||
                     (model.positions == Positions::kRope &&
                      model.rope_high_freq_factor > model.rope_low_freq_factor),
                 absl::StrCat("model.rope_scaling needs model.positions = \"rope\" and "
                              "model.rope_high_freq_factor = ",
                              model.rope_high_freq_factor,
                              " above model.rope_low_freq_factor = ", model.rope_low_freq_factor));
  faults.Require(model.attention_biases || model.attention_output_bias,
                 "model.attention_output_bias is false but model.attention_biases is false, too, "
                 "so that there are none; leave it out");
  faults.Require(model.ffn_residual == FfnResidual::kInput || model.pre_norm(),
                 "model.ffn_residual is normed but model.layer_norm is post, whose feed-forward "
                 "layers read what is normalised already; leave it out");
  faults.Require(model.tie_embeddings || !model.adaptive(),
                 "model.tie_embeddings is false but model.softmax is adaptive, whose clusters "
                 "share their tables with the input; set model.tie_projections instead");
}

// Keys of other backbones, and which of them go together.
void CheckBackbone(const ModelConfig& model, FaultList& faults) {
  faults.Require(model.positions != Positions::kRope || model.head_dim % 2 == 0,
                 Fault("head_dim", static_cast<double>(model.head_dim), "even with rope"));
  faults.Require(
      model.positions != Positions::kRope || !model.relative_segments(),
      "model.segments is relative but model.positions is rope, which would turn what queries "
      "say of segments by their position; use learned ones, or none");
  faults.Require(model.relative_positions() || model.clamp_len == -1,
                 Fault("clamp_len", static_cast<double>(model.clamp_len),
                       "-1 unless model.positions is relative"));
  faults.Require(
      !model.global_projections || (!model.relative_positions() && !model.relative_segments()),
      "model.global_projections is true but positions or segments are relative, whose scores "
      "belong to "
      "one set of projections; use learned ones, or none");
  CheckPositionBias(model, faults);
  CheckLlamaKeys(model, faults);
  faults.AddError(AttentionWindows(model).status());
  if (model.div_val < 1) return;  // reported with the other bounds
  faults.AddError(CheckAdaptiveClusters(model));
}

}  // namespace

FaultList ModelConfig::Validate() const {
  FaultList faults;
  CheckBounds("model", *this, faults);
  // The sinusoids come in pairs of a sine and a cosine.
  faults.Require(model_dim % 2 == 0,
                 Fault("model_dim", static_cast<double>(model_dim), "an even number"));
  if (num_heads >= 1) {
    faults.Require(model_dim % num_heads == 0,
                   absl::StrCat("model.num_heads is ", num_heads,
                                " but must divide model.model_dim = ", model_dim));
  }
  // What all sizes together come to is computed in whole numbers of 64 bits.
  constexpr double kMostHeadsDim = 1 << 28;
  const double heads_dim = static_cast<double>(num_heads) * static_cast<double>(head_dim);
  faults.Require(heads_dim <= kMostHeadsDim, absl::StrCat("model.num_heads * model.head_dim is ",
                                                          heads_dim, " but must be at most 2^28"));
  faults.Require(clamp_len != 0, "model.clamp_len is 0 but must be at least 1, or -1 for no limit");
  CheckBackbone(*this, faults);
  return faults;
}

}  // namespace anyorder
