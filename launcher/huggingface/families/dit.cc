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
#include "launcher/huggingface/families/tensor_list.h"

namespace anyorder::launcher {
namespace {

using Json = HfFamily::Json;

constexpr HfKeyName kDitKeys[] = {
    {"num_layers", "n_blocks"}, {"model_dim", "hidden_dim"}, {"num_heads", "n_heads"}};

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
  ANYORDER_ASSIGN_OR_RETURN(const std::vector<float> weight, read(name + "weight"));
  ANYORDER_ASSIGN_OR_RETURN(const std::vector<float> bias, read(name + "bias"));
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
    ANYORDER_ASSIGN_OR_RETURN(level, ApplyDense(read, layer, level));
    for (double& value : level) value /= 1 + std::exp(-value);  // SiLU
  }
  return level;
}

// Multiplies row r of a matrix [factors' size, ...] by factors[r] + addend.
void ScaleRows(const ParameterInfo& parameter, std::span<const double> factors, double addend,
               float* flat) {
  const int64_t columns = parameter.shape.num_elements() / parameter.shape[0];
  float* element = flat + parameter.offset;
  for (const double factor : factors) {
    for (int64_t i = 0; i < columns; ++i, ++element)
      *element = static_cast<float>(*element * (factor + addend));
  }
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
            .is_in_transformers = false};
  }
  std::span<const HfKeyName> keys() const override { return kDitKeys; }

  void ReadConfig(HfConfigReader& reader, HfConfig& config) const override;
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
  void Check(const RunConfig& config, HfObstacles& obstacles) const override;
  Json NewConfig(const RunConfig& config, int64_t vocab_size, const VocabIds& ids) const override;
  void UpdateConfig(const RunConfig& config, int64_t vocab_size, bool trained,
                    Json& json) const override;
  // With modulation, which FitTensors gives its width or takes away.
  TensorTable Tensors(const ModelConfig& model, const ParameterLayout& layout) const override;
  void FitTensors(const HfConfig& config, TensorTable& tensors) const override;
  absl::Status Fold(const HfConfig& config, const ParameterLayout& layout, const TensorReader& read,
                    float* flat) const override;

 private:
  const bool is_bd3lm_;
};

void Dit::ReadConfig(HfConfigReader& reader, HfConfig& config) const {
  ModelConfig& model = config.model;
  model.positions = Positions::kRope;
  model.segments = Segments::kNone;
  model.layer_norm = LayerNormPlace::kPre;
  model.layer_norm_epsilon = 1e-5;
  model.tie_embeddings = false;
  model.readout_dropout = false;
  model.mem_len = 0;
  model.attention_dropout = 0;
  reader.RequiredSize("n_blocks", HfConfigReader::kMaxLayers, model.num_layers);
  reader.RequiredSize("hidden_dim", HfConfigReader::kMaxSize, model.model_dim);
  reader.RequiredSize("n_heads", HfConfigReader::kMaxSize, model.num_heads);
  reader.RequiredSize("vocab_size", HfConfigReader::kMaxSize, config.vocab_size);
  reader.RequiredSize("model_length", HfConfigReader::kMaxSize, config.max_length);
  reader.Number("dropout", 0.0, 0.999, model.dropout);
  reader.Expect("time_conditioning", false,
                ": it computes another function at each noise level, and ours knows none");
  bool is_modulated = true;
  if (is_bd3lm_) {
    config.block_len = 1;
    reader.Size("block_size", 1, HfConfigReader::kMaxSize, config.block_len);
    reader.Bool("adaln", is_modulated);
    reader.Expect("causal", false);
  }
  if (is_modulated) reader.RequiredSize("cond_dim", HfConfigReader::kMaxSize, config.condition_dim);
  if (!reader.faults().empty()) return;
  model.ffn_dim = 4 * model.model_dim;
  model.head_dim = model.model_dim / model.num_heads;
  reader.faults().Require(model.num_heads * model.head_dim == model.model_dim,
                          absl::StrCat("'n_heads' is ", model.num_heads,
                                       " but must divide 'hidden_dim' = ", model.model_dim));
}

void Dit::Check(const RunConfig& config, HfObstacles& obstacles) const {
  const ModelConfig& model = config.model;
  if (is_bd3lm_) CheckObjective(config, kBd3LmObjectives, obstacles);
  if (!is_bd3lm_) CheckObjective(config, kMdlmObjectives, obstacles);
  CheckPlainLayers(model, /*is_tied=*/false, obstacles);
  obstacles.Require(
      model.num_heads * model.head_dim == model.model_dim,
      absl::StrCat("model.num_heads * model.head_dim is ", model.num_heads * model.head_dim,
                   ", not model.model_dim = ", model.model_dim));
  obstacles.Require(model.ffn_dim == 4 * model.model_dim,
                    absl::StrCat("model.ffn_dim is ", model.ffn_dim,
                                 ", not 4 * model.model_dim = ", 4 * model.model_dim));
  obstacles.Require(model.positions == Positions::kRope, "model.positions is not rope");
  obstacles.Require(model.rope_base == 10000.0, "model.rope_base is not 10000");
  obstacles.Require(model.rope_scaling == RopeScaling::kNone, "model.rope_scaling is on");
  obstacles.Require(model.segments == Segments::kNone, "model.segments is not none");
  obstacles.Require(model.pre_norm(), "model.layer_norm is post");
  obstacles.Require(model.layer_norm_epsilon == 1e-5, "model.layer_norm_epsilon is not 1e-5");
  obstacles.Require(model.activation == kernels::Activation::kGeluTanh,
                    "model.activation is not gelu");
  obstacles.Require(!model.attention_biases, "model.attention_biases is true");
  obstacles.Require(model.softmax_bias, "model.softmax_bias is false");
  obstacles.Require(!model.scale_embedding, "model.scale_embedding is true");
  obstacles.Require(!model.embedding_layer_norm, "model.embedding_layer_norm is true");
  obstacles.Require(!model.mlm_head, "model.mlm_head is true");
  obstacles.Require(!model.adaptive(), "model.softmax is adaptive");
  obstacles.Require(model.attention_windows.empty(), "model.attention_windows is set");
  obstacles.Require(model.mem_len == 0, "model.mem_len is not 0");
}

Json Dit::NewConfig(const RunConfig& config, int64_t vocab_size,
                    const data::VocabIds& /*ids*/) const {
  const ModelConfig& model = config.model;
  Json json = {{"model_type", names().model_type},
               {"vocab_size", vocab_size},
               {"model_length", config.sampling.seq_len},
               {"hidden_dim", model.model_dim},
               {"cond_dim", kPublishedConditionDim},
               {"n_blocks", model.num_layers},
               {"n_heads", model.num_heads},
               {"time_conditioning", false}};
  if (is_bd3lm_) {
    json["block_size"] = config.sampling.any_order.block_len;
    json["cross_attn"] = true;
    json["adaln"] = true;
    json["attn_backend"] = "sdpa";
    json["var_min"] = false;
  }
  return json;
}

void Dit::UpdateConfig(const RunConfig& config, int64_t /*vocab_size*/, bool trained,
                       Json& json) const {
  if (!trained) return;
  json["dropout"] = config.model.dropout;
  // Training gives our LayerNorms biases, which stand in the modulation.
  if (!json.contains("adaln") || json["adaln"] != false) return;
  json["adaln"] = true;
  if (!json.contains("cond_dim")) json["cond_dim"] = kPublishedConditionDim;
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
                       const TensorReader& read, float* flat) const {
  if (config.condition_dim == 0) return absl::OkStatus();
  ANYORDER_ASSIGN_OR_RETURN(const std::vector<double> level, NoiseLevel(read));
  const int64_t dim = config.model.model_dim;
  // x * (1 + scale) + shift behind a LayerNorm, from the modulation's values on.
  const auto fold_norm = [&](const std::string& norm, std::span<const double> modulation) {
    ScaleRows(layout.Find(norm + ".weight"), modulation.subspan(dim, dim), 1.0, flat);
    float* const bias = flat + layout.Find(norm + ".bias").offset;
    for (int64_t i = 0; i < dim; ++i) bias[i] = static_cast<float>(modulation[i]);
  };
  for (int64_t layer = 0; layer < config.model.num_layers; ++layer) {
    const std::string ours = absl::StrCat("transformer.layer.", layer, ".");
    ANYORDER_ASSIGN_OR_RETURN(
        const std::vector<double> values,
        ApplyDense(read, absl::StrCat("backbone.blocks.", layer, ".", kModulation), level));
    const std::span<const double> modulation(values);
    fold_norm(ours + "rel_attn.layer_norm", modulation);
    ScaleRows(layout.Find(ours + "rel_attn.o"), modulation.subspan(2 * dim, dim), 0.0, flat);
    fold_norm(ours + "ff.layer_norm", modulation.subspan(3 * dim));
    for (const char* part : {"ff.layer_2.weight", "ff.layer_2.bias"})
      ScaleRows(layout.Find(ours + part), modulation.subspan(5 * dim, dim), 0.0, flat);
  }
  ANYORDER_ASSIGN_OR_RETURN(
      const std::vector<double> last,
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
