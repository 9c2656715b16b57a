// The diffusion transformer of MDLM (Sahoo et al. 2024) and BD3-LM (Arriola et al. 2025; both
// with code beside their weights): LayerNorm before each sublayer, modulated by an embedding of the
// noise level ("adaLN", Peebles & Xie 2023). Released models are always given level 0, so that the
// modulation is constant and becomes part of our weights.

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "core/base/status.h"
#include "launcher/huggingface/families/hf_family.h"

namespace anyorder::launcher {
namespace {

constexpr const char* kMdlmObjectives[] = {"masked_diffusion", "eso_lm"};
constexpr const char* kBd3LmObjectives[] = {"block_diffusion", "masked_diffusion"};

// Of the noise level: half cosines, half sines (TimestepEmbedder).
constexpr int64_t kFrequencies = 256;
constexpr int64_t kPublishedConditionDim = 128;

constexpr char kModulation[] = "adaLN_modulation.";

// The weight and bias of `name`, applied.
absl::StatusOr<std::vector<double>> ApplyDense(const HfFamily::TensorReader& read,
                                               const std::string& name,
                                               const std::vector<double>& input) {
  ASSIGN_OR_RETURN(const std::vector<float> weight, read(name + "weight"));
  ASSIGN_OR_RETURN(const std::vector<float> bias, read(name + "bias"));
  std::vector<double> output(bias.begin(), bias.end());
  for (size_t row = 0; row < output.size(); ++row) {
    for (size_t i = 0; i < input.size(); ++i)
      output[row] += static_cast<double>(weight[row * input.size() + i]) * input[i];
  }
  return output;
}

// What every modulation of level 0 is computed from.
absl::StatusOr<std::vector<double>> NoiseLevel(const HfFamily::TensorReader& read) {
  // Every cosine is 1, every sine 0.
  std::vector<double> level(kFrequencies, 0.0);
  std::fill_n(level.begin(), kFrequencies / 2, 1.0);
  for (const char* layer : {"backbone.sigma_map.mlp.0.", "backbone.sigma_map.mlp.2."}) {
    ASSIGN_OR_RETURN(level, ApplyDense(read, layer, level));
    for (double& value : level) value /= 1 + std::exp(-value);  // SiLU
  }
  return level;
}

// Multiplies row r of a matrix [factors' size, ...] by factors[r] + addend.
void ScaleRows(const ParameterInfo& parameter, std::span<const double> factors, double addend,
               const FlatPiece& piece) {
  const int64_t columns = parameter.shape.num_elements() / parameter.shape[0];
  piece.ForEachOf(parameter, [&](int64_t i, float& value) {
    value = static_cast<float>(value * (factors[i / columns] + addend));
  });
}

class Dit : public HfFamily {
 public:
  explicit Dit(bool is_bd3lm) : is_bd3lm_(is_bd3lm) {}

  Names names() const override {
    return {.model_type = is_bd3lm_ ? "bd3lm" : "mdlm",
            .architecture = is_bd3lm_ ? "BD3LM" : "MDLM",
            .bare_architecture = "DITBackbone",
            .prefix = "backbone.",
            .keeps_storage = true,
            .is_in_transformers = false,
            .pretraining = is_bd3lm_ ? kBd3LmObjectives : kMdlmObjectives};
  }
  void VisitKeys(HfKeys& keys) const override;
  void SetDefaults(const HfConfig& model, RunConfig& config) const override {
    config.objective.name = is_bd3lm_ ? "block_diffusion" : "masked_diffusion";
    config.sampling.bidirectional = false;
    config.sampling.seq_len = model.max_length;
    AnyOrderConfig& any_order = config.sampling.any_order;
    any_order.rate_strata = RateStrata::kOwn;
    if (is_bd3lm_) {
      any_order.block_len = model.block_len;
      any_order.keep_first_token = true;
    } else {
      any_order.loss_weight = LossWeight::kTime;
    }
  }
  // With modulation, which FitTensors gives its width or takes away.
  TensorTable Tensors(const ModelConfig& model, const ParameterLayout& layout) const override;
  void FitTensors(const HfConfig& config, TensorTable& tensors) const override;
  absl::Status Fold(const HfConfig& config, const ParameterLayout& layout, const TensorReader& read,
                    const FlatPiece& piece) const override;

 private:
  const bool is_bd3lm_;
};

// What no config.json of them says.
void SetDitLayers(HfKeys& keys) {
  ModelConfig& model = keys.model;
  keys.Set(model.positions, Positions::kRope);
  keys.Set(model.segments, Segments::kNone);
  keys.Set(model.layer_norm, LayerNormPlace::kPre);
  keys.Set(model.layer_norm_epsilon, 1e-5);
  keys.Set(model.tie_embeddings, false);
  keys.Set(model.readout_dropout, false);
  keys.Set(model.mem_len, int64_t{0});
  keys.Set(model.attention_dropout, 0.0);
}

void Dit::VisitKeys(HfKeys& keys) const {
  HfConfig& config = keys.config;
  ModelConfig& model = keys.model;
  bool is_modulated = true;
  if (keys.reader() != nullptr && is_bd3lm_) keys.reader()->Bool("adaln", is_modulated);
  SetDitLayers(keys);
  keys.Required("vocab_size", config.vocab_size);
  keys.Required("model_length", config.max_length);
  keys.Required("hidden_dim", model.model_dim);
  if (keys.reader() == nullptr) config.condition_dim = kPublishedConditionDim;
  if (is_modulated) keys.Required("cond_dim", config.condition_dim);
  keys.Required("n_blocks", model.num_layers, HfKeys::kMaxLayers);
  keys.Required("n_heads", model.num_heads);
  keys.SplitWidth("n_heads", "hidden_dim");
  keys.Set(model.ffn_dim, 4 * model.model_dim);
  keys.Fixed("time_conditioning", false,
             ": it computes another function at each noise level, and ours knows none");
  if (is_bd3lm_) {
    keys.Size("block_size", config.block_len, 1);
    keys.Write("cross_attn", true);
    keys.Write("adaln", true);
    keys.Write("attn_backend", "sdpa");
    keys.Write("var_min", false);
    if (keys.reader() != nullptr) keys.reader()->Expect("causal", false);
  }
  keys.Rate("dropout", model.dropout);
  // Training gives our LayerNorms biases, which stand in the modulation.
  const Json* const updated = keys.updated();
  if (updated == nullptr || !updated->contains("adaln") || (*updated)["adaln"] != false) return;
  keys.Write("adaln", true, HfKeys::In::kTrained);
  if (!updated->contains("cond_dim"))
    keys.Write("cond_dim", kPublishedConditionDim, HfKeys::In::kTrained);
}

// What modulates a sublayer's input, or two of them: shift, scale and, before the output, gate.
// From the parameters: the LayerNorm's bias, 0, 1.
FileTensor ModulationBias(const std::string& name, const ParameterLayout& layout,
                          const std::vector<std::string>& norms, bool has_gate) {
  FileTensor tensor{name};
  int64_t rows = 0;
  for (const std::string& norm : norms) {
    const TensorBlock shift = TensorBlock::Of(layout.Find(norm + ".bias"));
    TensorBlock gate = TensorBlock::Zeros(shift.rows, 1);
    gate.fill = 1;
    tensor.blocks.insert(tensor.blocks.end(), {shift, TensorBlock::Zeros(shift.rows, 1)});
    if (has_gate) tensor.blocks.push_back(gate);
    rows += (has_gate ? 3 : 2) * shift.rows;
  }
  tensor.shape = Shape{rows};
  tensor.is_folded = true;
  return tensor;
}

// A tensor that only the modulation has: zeros, since it is all in the biases.
void AddZeros(const std::string& name, const Shape& shape, TensorList& list) {
  list.Add({name, shape, {TensorBlock::Zeros(shape.num_elements(), 1)}});
  list.MarkFolded();
}

void AddFolded(const std::string& ours, const std::string& theirs, TensorList& list) {
  list.Plain(ours, theirs);
  list.MarkFolded();
}

void AddDitBlock(int64_t layer, const ParameterLayout& layout, TensorList& list) {
  const std::string ours = absl::StrCat("transformer.layer.", layer, ".");
  const std::string attention = ours + "rel_attn.";
  const std::string theirs = absl::StrCat("backbone.blocks.", layer, ".");
  AddFolded(attention + "layer_norm.weight", theirs + "norm1.weight", list);
  list.Turned({attention + "q", attention + "k", attention + "v"}, theirs + "attn_qkv.weight");
  list.Below({attention + "o"}, theirs + "attn_out.weight");
  list.MarkFolded();
  AddFolded(ours + "ff.layer_norm.weight", theirs + "norm2.weight", list);
  list.Pair(ours + "ff.layer_1", theirs + "mlp.0");
  for (const char* part : {".weight", ".bias"})
    AddFolded(absl::StrCat(ours, "ff.layer_2", part), absl::StrCat(theirs, "mlp.2", part), list);
  FileTensor bias = ModulationBias(absl::StrCat(theirs, kModulation, "bias"), layout,
                                   {attention + "layer_norm", ours + "ff.layer_norm"},
                                   /*has_gate=*/true);
  AddZeros(absl::StrCat(theirs, kModulation, "weight"), {bias.shape[0], 1}, list);
  list.Add(std::move(bias));
}

TensorTable Dit::Tensors(const ModelConfig& model, const ParameterLayout& layout) const {
  TensorList list(layout);
  const std::string prefix = "backbone.", output = prefix + "output_layer.";
  list.Plain("transformer.word_embedding.weight", prefix + "vocab_embed.embedding");
  AddZeros(prefix + "sigma_map.mlp.0.weight", {1, kFrequencies}, list);
  AddZeros(prefix + "sigma_map.mlp.0.bias", {1}, list);
  AddZeros(prefix + "sigma_map.mlp.2.weight", {1, 1}, list);
  AddZeros(prefix + "sigma_map.mlp.2.bias", {1}, list);
  list.Buffer(prefix + "rotary_emb.inv_freq", {model.head_dim / 2});
  for (int64_t layer = 0; layer < model.num_layers; ++layer) AddDitBlock(layer, layout, list);
  AddFolded("transformer.layer_norm.weight", output + "norm_final.weight", list);
  FileTensor bias = ModulationBias(absl::StrCat(output, kModulation, "bias"), layout,
                                   {"transformer.layer_norm"}, /*has_gate=*/false);
  AddZeros(absl::StrCat(output, kModulation, "weight"), {bias.shape[0], 1}, list);
  list.Add(std::move(bias));
  list.Plain("lm_loss.weight", output + "linear.weight");
  list.Plain("lm_loss.bias", output + "linear.bias");
  // The interval of mask rates that training chose.
  for (const char* name : {"sampling_eps_min", "sampling_eps_max"})
    if (is_bd3lm_) list.Buffer(name, {});
  return list.Take();
}

void Dit::FitTensors(const HfConfig& config, TensorTable& tensors) const {
  const auto is_modulation = [](const FileTensor& tensor) {
    return absl::StrContains(tensor.name, kModulation) ||
           absl::StrContains(tensor.name, "sigma_map.");
  };
  const int64_t width = config.condition_dim;
  if (width == 0) {
    std::erase_if(tensors, is_modulation);
    for (FileTensor& tensor : tensors) tensor.is_folded = false;
    return;
  }
  for (FileTensor& tensor : tensors) {
    if (!is_modulation(tensor) || tensor.holds_ours()) continue;
    Shape& shape = tensor.shape;
    const bool is_map = absl::StrContains(tensor.name, "sigma_map.");
    if (shape.rank() == 1) {
      shape = {width};
    } else if (is_map) {
      shape = {width, shape[1] == 1 ? width : kFrequencies};
    } else {
      shape = {shape[0], width};
    }
    tensor.blocks = {TensorBlock::Zeros(shape.num_elements(), 1)};
  }
}

absl::Status Dit::Fold(const HfConfig& config, const ParameterLayout& layout,
                       const TensorReader& read, const FlatPiece& piece) const {
  if (config.condition_dim == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<double> level, NoiseLevel(read));
  const int64_t dim = config.model.model_dim;
  // x * (1 + scale) + shift behind a LayerNorm, from the modulation's values on.
  const auto fold_norm = [&](const std::string& norm, std::span<const double> modulation) {
    ScaleRows(layout.Find(norm + ".weight"), modulation.subspan(dim, dim), 1.0, piece);
    piece.ForEachOf(layout.Find(norm + ".bias"),
                    [&](int64_t i, float& value) { value = static_cast<float>(modulation[i]); });
  };
  for (int64_t layer = 0; layer < config.model.num_layers; ++layer) {
    const int64_t* const window = &layout.windows()[static_cast<size_t>(layer + 1)];
    if (window[0] >= piece.end || window[1] <= piece.begin) continue;
    const std::string ours = absl::StrCat("transformer.layer.", layer, ".");
    ASSIGN_OR_RETURN(
        const std::vector<double> values,
        ApplyDense(read, absl::StrCat("backbone.blocks.", layer, ".", kModulation), level));
    const std::span<const double> modulation(values);
    fold_norm(ours + "rel_attn.layer_norm", modulation);
    ScaleRows(layout.Find(ours + "rel_attn.o"), modulation.subspan(2 * dim, dim), 0.0, piece);
    fold_norm(ours + "ff.layer_norm", modulation.subspan(3 * dim));
    for (const char* part : {"ff.layer_2.weight", "ff.layer_2.bias"})
      ScaleRows(layout.Find(ours + part), modulation.subspan(5 * dim, dim), 0.0, piece);
  }
  ASSIGN_OR_RETURN(const std::vector<double> last,
                   ApplyDense(read, absl::StrCat("backbone.output_layer.", kModulation), level));
  fold_norm("transformer.layer_norm", last);
  return absl::OkStatus();
}

}  // namespace

const HfFamily& MdlmFamily() {
  static const Dit family(/*is_bd3lm=*/false);
  return family;
}

const HfFamily& Bd3LmFamily() {
  static const Dit family(/*is_bd3lm=*/true);
  return family;
}

}  // namespace anyorder::launcher
