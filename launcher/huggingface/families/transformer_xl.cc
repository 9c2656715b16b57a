// Transformer-XL (modeling_transfo_xl.py, of transformers 3 to 4; the newest that has it is 4.57).

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "core/config/adaptive_clusters.h"
#include "launcher/huggingface/families/hf_family.h"
#include "launcher/huggingface/families/tensor_list.h"

namespace anyorder::launcher {
namespace {

constexpr HfKeyName kXlKeys[] = {
    {"num_layers", "n_layer"},     {"model_dim", "d_model"},
    {"num_heads", "n_head"},       {"head_dim", "d_head"},
    {"ffn_dim", "d_inner"},        {"layer_norm_epsilon", "layer_norm_epsilon"},
    {"untie_r", "untie_r"},        {"clamp_len", "clamp_len"},
    {"cutoffs", "cutoffs"},        {"div_val", "div_val"},
    {"same_length", "same_length"}};

// Of TransfoXLForSequenceClassification.
constexpr const char* kXlOtherHeads[] = {"score."};

// Of one cluster, before its number.
constexpr char kXlTable[] = "transformer.word_emb.emb_layers.";
constexpr char kXlOutput[] = "crit.out_layers.";

constexpr char kXlTiedEmbedding[] =
    "it must be the embedding of the same words, an output of its own is not supported; save the "
    "model with tied embeddings";
constexpr char kXlTiedProjection[] =
    "config.json says that input and output share it; set 'proj_share_all_but_first' and "
    "'tie_projs' as the weights have it";
constexpr char kXlSharedBias[] =
    "untie_r is false in config.json, so that all layers share it; set untie_r to true";

// "20000, 40000" of [20000, 40000]; "" of none.
std::string XlCutoffs(const HfConfigReader::Json& cutoffs) {
  std::vector<std::string> texts;
  for (const HfConfigReader::Json& cutoff : cutoffs) texts.push_back(HfConfigReader::Text(cutoff));
  return absl::StrJoin(texts, ", ");
}

// Whether clusters but the first have one projection for input and output.
void ReadXlTies(HfConfigReader& reader, int64_t num_clusters, ModelConfig& model) {
  reader.Bool("proj_share_all_but_first", model.tie_projections);
  const HfConfigReader::Json* const ties = reader.Find("tie_projs");
  if (ties == nullptr || !model.projects_clusters()) return;
  HfConfigReader::Json shared = HfConfigReader::Json::array({false}), own = shared;
  while (static_cast<int64_t>(shared.size()) < num_clusters) {
    shared.push_back(true);
    own.push_back(false);
  }
  model.tie_projections = *ties == shared;
  reader.unsupported().Require(
      *ties == shared || *ties == own,
      absl::StrCat("'tie_projs' is ", HfConfigReader::Text(*ties), " but must be ",
                   HfConfigReader::Text(shared), " or ", HfConfigReader::Text(own)));
}

void ReadXlSoftmax(HfConfigReader& reader, HfConfig& config) {
  ModelConfig& model = config.model;
  HfConfigReader::Json cutoffs = HfConfigReader::Json::array({20000, 40000, 200000});
  if (const HfConfigReader::Json* const found = reader.Find("cutoffs")) cutoffs = *found;
  model.div_val = 4;
  reader.Size("div_val", 1, HfConfigReader::kMaxSize, model.div_val);
  reader.faults().Require(
      cutoffs.is_array(),
      absl::StrCat("'cutoffs' is ", HfConfigReader::Text(cutoffs), " but must be a list"));
  if (!reader.faults().empty()) return;
  if (!cutoffs.empty()) model.softmax = Softmax::kAdaptive;
  model.cutoffs = XlCutoffs(cutoffs);
  reader.faults().AddError(CheckAdaptiveClusters(model, config.vocab_size));
  ReadXlTies(reader, static_cast<int64_t>(cutoffs.size()) + 1, model);
}

void ReadXlSizes(HfConfigReader& reader, HfConfig& config) {
  ModelConfig& model = config.model;
  reader.RequiredSize("n_layer", HfConfigReader::kMaxLayers, model.num_layers);
  reader.RequiredSize("d_model", HfConfigReader::kMaxSize, model.model_dim);
  reader.RequiredSize("n_head", HfConfigReader::kMaxSize, model.num_heads);
  reader.RequiredSize("d_head", HfConfigReader::kMaxSize, model.head_dim);
  reader.RequiredSize("d_inner", HfConfigReader::kMaxSize, model.ffn_dim);
  reader.RequiredSize("vocab_size", HfConfigReader::kMaxSize, config.vocab_size);
  reader.Expect("d_embed", model.model_dim, ", as 'd_model': other embeddings are not supported");
  model.mem_len = 1600;
  reader.Size("mem_len", 0, HfConfigReader::kMaxSize, model.mem_len);
  model.clamp_len = 1000;
  reader.Size("clamp_len", -1, HfConfigReader::kMaxSize, model.clamp_len);
  if (model.clamp_len == 0) model.clamp_len = -1;  // either means no limit there
}

void ReadXlSettings(HfConfigReader& reader, ModelConfig& model) {
  model.segments = Segments::kNone;
  model.scale_embedding = true;
  model.activation = kernels::Activation::kRelu;
  model.initial_memory = InitialMemory::kZeros;
  model.layer_norm_epsilon = 1e-5;
  reader.Number("layer_norm_epsilon", 1e-30, 1.0, model.layer_norm_epsilon);
  reader.Number("init_std", 0.0, 1e3, model.init_range);
  reader.Number("proj_init_std", 0.0, 1e3, model.projection_init_range);
  reader.Number("dropout", 0.0, 0.999, model.dropout);
  model.attention_dropout = 0;
  reader.Number("dropatt", 0.0, 0.999, model.attention_dropout);
  reader.Bool("untie_r", model.untie_r);
  bool same_length = true;
  reader.Bool("same_length", same_length);
  model.same_length = same_length ? SameLength::kTorch : SameLength::kOff;
  reader.unsupported().Require(
      !same_length || model.mem_len > 0,
      "'same_length' is true but 'mem_len' is 0, so that no token sees any");
  reader.Expect("attn_type", 0);
  reader.Expect("pre_lnorm", false, ": it has no LayerNorm at the end, as ours have");
  reader.Expect("tie_word_embeddings", true, ": an output of its own is not supported");
}

class TransformerXl : public HfFamily {
 public:
  Names names() const override {
    return {.model_type = "transfo-xl",
            .architecture = "TransfoXLLMHeadModel",
            .bare_architecture = "TransfoXLModel",
            .prefix = "transformer."};
  }
  std::span<const HfKeyName> keys() const override { return kXlKeys; }
  std::span<const char* const> other_heads() const override { return kXlOtherHeads; }

  void ReadConfig(HfConfigReader& reader, HfConfig& config) const override {
    ReadXlSizes(reader, config);
    ReadXlSettings(reader, config.model);
    ReadXlSoftmax(reader, config);
  }
  void SetDefaults(const HfConfig& /*model*/, RunConfig& config) const override {
    config.objective.name = "causal_lm";
    config.sampling.bidirectional = false;
  }
  void Check(const RunConfig& config, HfObstacles& obstacles) const override;
  Json NewConfig(const RunConfig& config, int64_t vocab_size, const VocabIds& ids) const override;
  void UpdateConfig(const RunConfig& config, int64_t vocab_size, bool trained,
                    Json& json) const override;
  TensorTable Tensors(const ModelConfig& model, const ParameterLayout& layout) const override;
};

void TransformerXl::Check(const RunConfig& config, HfObstacles& obstacles) const {
  const ModelConfig& model = config.model;
  obstacles.Require(config.objective.name == "causal_lm",
                    absl::StrCat("objective.name is ", config.objective.name, ", not causal_lm"));
  CheckPlainLayers(model, /*is_tied=*/true, obstacles);
  obstacles.Require(model.relative_positions(), "model.positions is not relative");
  obstacles.Require(model.segments == Segments::kNone, "model.segments is not none");
  obstacles.Require(model.scale_embedding, "model.scale_embedding is false");
  obstacles.Require(model.activation == kernels::Activation::kRelu, "model.activation is not relu");
  obstacles.Require(model.softmax_bias, "model.softmax_bias is false");
  obstacles.Require(!model.pre_norm(), "model.layer_norm is pre");
  obstacles.Require(!model.embedding_layer_norm, "model.embedding_layer_norm is true");
  obstacles.Require(!model.attention_biases, "model.attention_biases is true");
  obstacles.Require(!model.mlm_head, "model.mlm_head is true");
  obstacles.Require(model.attention_windows.empty(), "model.attention_windows is set");
  obstacles.Require(model.same_length != SameLength::kTensorFlow,
                    "model.same_length is tensorflow");
  obstacles.Require(model.same_length == SameLength::kOff || model.mem_len > 0,
                    "model.same_length is on but model.mem_len is 0");
}

HfFamily::Json TransformerXl::NewConfig(const RunConfig& config, int64_t vocab_size,
                                        const VocabIds& ids) const {
  const ModelConfig& model = config.model;
  Json cutoffs = Json::array(), ties = Json::array({false});
  for (const AdaptiveCluster& cluster : AdaptiveClusters(model, vocab_size)) {
    if (cluster.end == vocab_size) break;
    cutoffs.push_back(cluster.end);
    ties.push_back(model.tie_projections);
  }
  return {{"model_type", names().model_type},
          {"vocab_size", vocab_size},
          {"cutoffs", cutoffs},
          {"div_val", model.div_val},
          {"tie_projs", ties},
          {"proj_share_all_but_first", model.tie_projections},
          {"adaptive", true},
          {"d_model", model.model_dim},
          {"d_embed", model.model_dim},
          {"n_layer", model.num_layers},
          {"n_head", model.num_heads},
          {"d_head", model.head_dim},
          {"d_inner", model.ffn_dim},
          {"layer_norm_epsilon", model.layer_norm_epsilon},
          {"pre_lnorm", false},
          {"attn_type", 0},
          {"untie_r", model.untie_r},
          {"clamp_len", model.clamp_len},
          {"sample_softmax", -1},
          {"init", "normal"},
          {"tie_word_embeddings", true},
          {"eos_token_id", ids.eos}};
}

void TransformerXl::UpdateConfig(const RunConfig& config, int64_t vocab_size, bool trained,
                                 Json& json) const {
  const ModelConfig& model = config.model;
  json["vocab_size"] = vocab_size;
  if (!trained) return;
  json["mem_len"] = model.mem_len;
  json["same_length"] = model.same_length != SameLength::kOff;
  json["dropout"] = model.dropout;
  json["dropatt"] = model.attention_dropout;
  json["init_std"] = model.init_range;
  json["proj_init_std"] = model.projection_init_range;
}

// The sinusoids' frequencies, which are a buffer of the model there, with a place in its files.
FileTensor XlFrequencies(int64_t model_dim) {
  FileTensor tensor{"transformer.pos_emb.inv_freq", Shape{model_dim / 2}};
  tensor.blocks = {TensorBlock::Zeros(model_dim / 2, 1)};
  for (int64_t pair = 0; pair < model_dim / 2; ++pair) {
    const double exponent = 2.0 * static_cast<double>(pair) / static_cast<double>(model_dim);
    tensor.constants.push_back(static_cast<float>(std::pow(10000.0, -exponent)));
  }
  return tensor;
}

// Clusters of one size have one table there, others one each and projections.
void AddXlClusters(const ModelConfig& model, TensorList& list) {
  std::vector<std::string> tables, biases;
  for (int64_t i = 0; list.Contains(absl::StrCat(kXlTable, i, ".weight")); ++i) {
    tables.push_back(absl::StrCat(kXlTable, i, ".weight"));
    biases.push_back(absl::StrCat(kXlOutput, i, ".bias"));
  }
  if (!model.adaptive()) {
    tables = {"transformer.word_embedding.weight"};
    biases = {"lm_loss.bias"};
  }
  if (!model.projects_clusters()) {
    list.Below(tables, absl::StrCat(kXlTable, "0.weight"));
    list.Below(tables, absl::StrCat(kXlOutput, "0.weight"), kXlTiedEmbedding);
    list.Below(biases, absl::StrCat(kXlOutput, "0.bias"));
  }
  for (size_t i = 0; i < tables.size() && model.projects_clusters(); ++i) {
    const std::string projection = absl::StrCat("transformer.word_emb.emb_projs.", i);
    const std::string output = absl::StrCat("crit.out_projs.", i);
    list.Plain(tables[i], tables[i]);
    list.Alias(tables[i], absl::StrCat(kXlOutput, i, ".weight"), kXlTiedEmbedding);
    list.Plain(projection, projection);
    if (list.Contains(output)) {
      list.Plain(output, output);
    } else {
      list.Alias(projection, output, kXlTiedProjection);
    }
    list.Plain(biases[i], biases[i]);
  }
  if (!model.adaptive()) return;
  for (const char* name : {"crit.cluster_weight", "crit.cluster_bias"}) list.Plain(name, name);
}

void AddXlLayer(const ModelConfig& model, int64_t layer, TensorList& list) {
  const std::string ours = absl::StrCat("transformer.layer.", layer, ".");
  const std::string attention = ours + "rel_attn.";
  const std::string theirs = absl::StrCat("transformer.layers.", layer, ".");
  list.Turned({attention + "q", attention + "k", attention + "v"},
              theirs + "dec_attn.qkv_net.weight");
  list.Below({attention + "o"}, theirs + "dec_attn.o_net.weight");
  list.Turned({attention + "r"}, theirs + "dec_attn.r_net.weight");
  list.Pair(attention + "layer_norm", theirs + "dec_attn.layer_norm");
  for (const char* bias : {"r_w_bias", "r_r_bias"}) {
    const std::string name = absl::StrCat(theirs, "dec_attn.", bias);
    if (model.untie_r) {
      list.Plain(attention + bias, name);
    } else {
      list.Alias(absl::StrCat("transformer.", bias), name, kXlSharedBias);
      list.ExportAlias();
    }
  }
  list.Pair(ours + "ff.layer_1", theirs + "pos_ff.CoreNet.0");
  list.Pair(ours + "ff.layer_2", theirs + "pos_ff.CoreNet.3");
  list.Pair(ours + "ff.layer_norm", theirs + "pos_ff.layer_norm");
}

TensorTable TransformerXl::Tensors(const ModelConfig& model, const ParameterLayout& layout) const {
  TensorList list(layout);
  AddXlClusters(model, list);
  if (!model.untie_r)
    for (const char* bias : {"transformer.r_w_bias", "transformer.r_r_bias"})
      list.Plain(bias, bias);
  for (int64_t layer = 0; layer < model.num_layers; ++layer) AddXlLayer(model, layer, list);
  list.Add(XlFrequencies(model.model_dim));
  return list.Take();
}

}  // namespace

const HfFamily& TransformerXlFamily() {
  static const TransformerXl family;
  return family;
}

}  // namespace anyorder::launcher
