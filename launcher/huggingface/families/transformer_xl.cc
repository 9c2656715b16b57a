// Transformer-XL (modeling_transfo_xl.py, of transformers 3 to 4; the newest that has it is 4.57).

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "core/config/adaptive_clusters.h"
#include "launcher/huggingface/families/hf_family.h"

namespace anyorder::launcher {
namespace {

// Of TransfoXLForSequenceClassification.
constexpr const char* kXlOtherHeads[] = {"score."};

constexpr const char* kXlObjectives[] = {"causal_lm"};

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
std::string XlCutoffs(const Json& cutoffs) {
  std::vector<std::string> texts;
  for (const Json& cutoff : cutoffs) texts.push_back(HfConfigReader::Text(cutoff));
  return absl::StrJoin(texts, ", ");
}

// Whether clusters but the first have one projection for input and output.
void ReadXlTies(HfConfigReader& reader, int64_t num_clusters, ModelConfig& model) {
  reader.Bool("proj_share_all_but_first", model.tie_projections);
  const Json* const ties = reader.Find("tie_projs");
  if (ties == nullptr || !model.projects_clusters()) return;
  Json shared = Json::array({false}), own = shared;
  while (std::ssize(shared) < num_clusters) {
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
  Json cutoffs = Json::array({20000, 40000, 200000});
  if (const Json* const found = reader.Find("cutoffs")) cutoffs = *found;
  reader.faults().Require(
      cutoffs.is_array(),
      absl::StrCat("'cutoffs' is ", HfConfigReader::Text(cutoffs), " but must be a list"));
  if (!reader.faults().empty()) return;
  if (!cutoffs.empty()) model.softmax = Softmax::kAdaptive;
  model.cutoffs = XlCutoffs(cutoffs);
  reader.faults().AddError(CheckAdaptiveClusters(model, config.vocab_size));
  ReadXlTies(reader, std::ssize(cutoffs) + 1, model);
}

void VisitXlSoftmax(HfKeys& keys) {
  ModelConfig& model = keys.model;
  const int64_t vocab_size = keys.config.vocab_size;
  Json cutoffs = Json::array(), ties = Json::array({false});
  if (keys.reader() == nullptr && CheckAdaptiveClusters(model, vocab_size).ok()) {
    for (const AdaptiveCluster& cluster : AdaptiveClusters(model, vocab_size)) {
      if (cluster.end == vocab_size) break;
      cutoffs.push_back(cluster.end);
      ties.push_back(model.tie_projections);
    }
    model.cutoffs = XlCutoffs(cutoffs);
  }
  keys.Names(model.cutoffs, "cutoffs");
  keys.Write("cutoffs", cutoffs);
  keys.Size("div_val", model.div_val, 4);
  keys.Write("tie_projs", ties);
  keys.Write("proj_share_all_but_first", model.tie_projections);
  keys.Write("adaptive", true);
}

void VisitXlSameLength(HfKeys& keys) {
  ModelConfig& model = keys.model;
  keys.Names(model.same_length, "same_length");
  keys.Write("same_length", model.same_length != SameLength::kOff, HfKeys::In::kTrained);
  HfConfigReader* const reader = keys.reader();
  if (reader == nullptr) return;
  bool same_length = true;
  reader->Bool("same_length", same_length);
  model.same_length = same_length ? SameLength::kTorch : SameLength::kOff;
  reader->unsupported().Require(
      !same_length || model.mem_len > 0,
      "'same_length' is true but 'mem_len' is 0, so that no token sees any");
}

class TransformerXl : public HfFamily {
 public:
  Names names() const override {
    return {.model_type = "transfo-xl",
            .architecture = "TransfoXLLMHeadModel",
            .bare_architecture = "TransfoXLModel",
            .prefix = "transformer.",
            .pretraining = kXlObjectives,
            .other_heads = kXlOtherHeads};
  }
  void VisitKeys(HfKeys& keys) const override;
  void SetDefaults(const HfConfig& /*model*/, RunConfig& config) const override {
    config.objective.name = "causal_lm";
    config.sampling.bidirectional = false;
  }
  TensorTable Tensors(const ModelConfig& model, const ParameterLayout& layout) const override;
};

void TransformerXl::VisitKeys(HfKeys& keys) const {
  HfConfig& config = keys.config;
  ModelConfig& model = keys.model;
  keys.Set(model.segments, Segments::kNone);
  keys.Set(model.scale_embedding, true);
  keys.Set(model.activation, kernels::Activation::kRelu);
  keys.Set(model.initial_memory, InitialMemory::kZeros);
  keys.Set(model.attention_dropout, 0.0);
  keys.Required("vocab_size", config.vocab_size);
  VisitXlSoftmax(keys);
  keys.Required("d_model", model.model_dim);
  keys.Fixed("d_embed", model.model_dim, ", as 'd_model': other embeddings are not supported");
  keys.Required("n_layer", model.num_layers, HfKeys::kMaxLayers);
  keys.Required("n_head", model.num_heads);
  keys.Required("d_head", model.head_dim);
  keys.Required("d_inner", model.ffn_dim);
  keys.Number("layer_norm_epsilon", model.layer_norm_epsilon, 1e-5);
  keys.Fixed("pre_lnorm", false, ": it has no LayerNorm at the end, as ours have");
  keys.Fixed("attn_type", 0);
  keys.Bool("untie_r", model.untie_r, true);
  keys.Size("clamp_len", model.clamp_len, 1000, -1);
  if (model.clamp_len == 0) model.clamp_len = -1;  // either means no limit there
  keys.Write("sample_softmax", -1);
  keys.Write("init", "normal");
  keys.Fixed("tie_word_embeddings", true, ": an output of its own is not supported");
  keys.Id("eos_token_id", config.ids.eos);
  keys.Size("mem_len", model.mem_len, 1600, 0, HfKeys::In::kTrained);
  VisitXlSameLength(keys);
  keys.Rate("dropout", model.dropout);
  keys.Rate("dropatt", model.attention_dropout);
  keys.Range("init_std", model.init_range);
  keys.Range("proj_init_std", model.projection_init_range);
  if (keys.reader() != nullptr) ReadXlSoftmax(*keys.reader(), config);
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
