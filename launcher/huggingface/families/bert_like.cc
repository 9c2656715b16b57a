#include "launcher/huggingface/families/bert_like.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace anyorder::launcher {
namespace {

constexpr HfKeyName kBertKeys[] = {{"num_layers", "num_hidden_layers"},
                                   {"model_dim", "hidden_size"},
                                   {"num_heads", "num_attention_heads"},
                                   {"ffn_dim", "intermediate_size"},
                                   {"activation", "hidden_act"},
                                   {"layer_norm_epsilon", "layer_norm_eps"},
                                   {"max_positions", "max_position_embeddings"},
                                   {"num_segments", "type_vocab_size"},
                                   {"attention_windows", "attention_window"}};

// Objectives whose network predicts masked tokens where they stand, each from all of the text.
constexpr const char* kBertObjectives[] = {"bert", "longformer", "unilm", "unilm_seq2seq",
                                           "masked_diffusion"};

void ReadBertSizes(HfConfigReader& reader, HfConfig& config) {
  ModelConfig& model = config.model;
  reader.RequiredSize("num_hidden_layers", HfConfigReader::kMaxLayers, model.num_layers);
  reader.RequiredSize("hidden_size", HfConfigReader::kMaxSize, model.model_dim);
  reader.RequiredSize("num_attention_heads", HfConfigReader::kMaxSize, model.num_heads);
  reader.RequiredSize("intermediate_size", HfConfigReader::kMaxSize, model.ffn_dim);
  reader.RequiredSize("vocab_size", HfConfigReader::kMaxSize, config.vocab_size);
  reader.RequiredSize("max_position_embeddings", HfConfigReader::kMaxSize, model.max_positions);
  reader.RequiredSize("type_vocab_size", HfConfigReader::kMaxSize, model.num_segments);
  if (!reader.faults().empty()) return;
  model.head_dim = model.model_dim / model.num_heads;
  reader.faults().Require(model.num_heads * model.head_dim == model.model_dim,
                          absl::StrCat("'num_attention_heads' is ", model.num_heads,
                                       " but must divide 'hidden_size' = ", model.model_dim));
}

// A layer's projection; q, k and v are stored there as [out, in].
struct Projection {
  const char* ours;
  const char* theirs;
  bool is_transposed;
};
constexpr Projection kProjections[] = {{"rel_attn.q", "attention.self.query", true},
                                       {"rel_attn.k", "attention.self.key", true},
                                       {"rel_attn.v", "attention.self.value", true},
                                       {"rel_attn.global_q", "attention.self.query_global", true},
                                       {"rel_attn.global_k", "attention.self.key_global", true},
                                       {"rel_attn.global_v", "attention.self.value_global", true},
                                       {"rel_attn.o", "attention.output.dense", false}};
constexpr std::pair<const char*, const char*> kRestOfLayer[] = {
    {"rel_attn.layer_norm", "attention.output.LayerNorm"},
    {"ff.layer_1", "intermediate.dense"},
    {"ff.layer_2", "output.dense"},
    {"ff.layer_norm", "output.LayerNorm"}};

void AddDense(const ParameterLayout& layout, const std::string& ours, const std::string& theirs,
              TensorTable& tensors) {
  for (const char* end : {".weight", ".bias"}) {
    if (layout.Contains(ours + end))
      tensors.push_back(PlainTensor(layout.Find(ours + end), theirs + end));
  }
}

void AddProjection(const ParameterLayout& layout, const std::string& ours,
                   const std::string& theirs, bool is_transposed, TensorTable& tensors) {
  if (!layout.Contains(ours)) return;
  const ParameterInfo& info = layout.Find(ours);
  const TensorBlock block = is_transposed ? TensorBlock::Transposed(info) : TensorBlock::Of(info);
  tensors.push_back({theirs + ".weight", Shape{block.rows, block.columns}, {block}});
  if (layout.Contains(ours + "_bias"))
    tensors.push_back(PlainTensor(layout.Find(ours + "_bias"), theirs + ".bias"));
}

// Models converted from TensorFlow, the released BERT among them, have these names.
void AddOldNames(TensorTable& tensors) {
  TensorTable old;
  for (const auto& [name, former] :
       {std::pair<const char*, const char*>{"LayerNorm.weight", "LayerNorm.gamma"},
        {"LayerNorm.bias", "LayerNorm.beta"}}) {
    for (const FileTensor& tensor : tensors) {
      if (!absl::EndsWith(tensor.name, name)) continue;
      old.push_back(tensor);
      old.back().name = absl::StrCat(absl::StripSuffix(tensor.name, name), former);
      old.back().is_alias = true;
      old.back().repeats = "it is an old name of the tensor that is there, too";
    }
  }
  tensors.insert(tensors.end(), old.begin(), old.end());
}

}  // namespace

std::span<const HfKeyName> BertLikeFamily::keys() const { return kBertKeys; }

void BertLikeFamily::ReadConfig(HfConfigReader& reader, HfConfig& config) const {
  ModelConfig& model = config.model;
  ReadBertSizes(reader, config);
  model.positions = Positions::kLearned;
  model.segments = Segments::kLearned;
  model.embedding_layer_norm = true;
  model.attention_biases = true;
  model.mlm_head = true;
  model.readout_dropout = false;
  model.mem_len = 0;
  reader.Number("layer_norm_eps", 1e-30, 1.0, model.layer_norm_epsilon);
  reader.Number("initializer_range", 0.0, 1e3, model.init_range);
  reader.Number("hidden_dropout_prob", 0.0, 0.999, model.dropout);
  reader.Number("attention_probs_dropout_prob", 0.0, 0.999, model.attention_dropout);
  reader.Activation("hidden_act", "gelu", model.activation);
  reader.Expect("position_embedding_type", "absolute");
  reader.Expect("is_decoder", false, ": it was trained to read one way only");
  reader.Expect("add_cross_attention", false);
  reader.Expect("tie_word_embeddings", true, ": an output of its own is not supported");
  if (!pads_positions()) return;
  int64_t pad = 1;
  reader.Size("pad_token_id", 0, HfConfigReader::kMaxSize, pad);
  config.first_position = pad + 1;
  model.max_positions -= config.first_position;
  reader.faults().Require(model.max_positions > 0,
                          absl::StrCat("'max_position_embeddings' leaves no position behind the ",
                                       config.first_position, " that 'pad_token_id' takes"));
}

void BertLikeFamily::SetDefaults(const HfConfig& /*model*/, RunConfig& config) const {
  config.objective.name = "bert";
  SamplingConfig& sampling = config.sampling;
  sampling.seq_len = std::min<int64_t>(512, config.model.max_positions / 2 * 2);
  sampling.reuse_len = sampling.seq_len / 2;
  sampling.num_predict = std::max<int64_t>(1, sampling.seq_len * 15 / 100);
  sampling.spans = SpanKind::kSingle;
  sampling.bidirectional = false;
}

void BertLikeFamily::Check(const RunConfig& config, HfObstacles& obstacles) const {
  const ModelConfig& model = config.model;
  CheckObjective(config, kBertObjectives, obstacles);
  obstacles.Require(
      model.num_heads * model.head_dim == model.model_dim,
      absl::StrCat("model.num_heads * model.head_dim is ", model.num_heads * model.head_dim,
                   ", not model.model_dim = ", model.model_dim));
  CheckPlainLayers(model, /*is_tied=*/true, obstacles);
  obstacles.Require(!model.scale_embedding, "model.scale_embedding is true");
  obstacles.Require(model.positions == Positions::kLearned, "model.positions is not learned");
  obstacles.Require(!model.has_distance_bias(), "model.position_bias is on");
  obstacles.Require(!model.relative_segments(), "model.segments is relative");
  obstacles.Require(!model.pre_norm(), "model.layer_norm is pre");
  obstacles.Require(model.embedding_layer_norm, "model.embedding_layer_norm is false");
  obstacles.Require(model.attention_biases, "model.attention_biases is false");
  obstacles.Require(model.softmax_bias, "model.softmax_bias is false");
  obstacles.Require(model.mlm_head, "model.mlm_head is false");
  obstacles.Require(!model.adaptive(), "model.softmax is adaptive");
}

HfFamily::Json BertLikeFamily::NewConfig(const RunConfig& config, int64_t vocab_size,
                                         const VocabIds& ids) const {
  const ModelConfig& model = config.model;
  return {{"model_type", names().model_type},
          {"vocab_size", vocab_size},
          {"hidden_size", model.model_dim},
          {"num_hidden_layers", model.num_layers},
          {"num_attention_heads", model.num_heads},
          {"intermediate_size", model.ffn_dim},
          {"hidden_act", HfActivation(model.activation)},
          {"hidden_dropout_prob", model.dropout},
          {"attention_probs_dropout_prob", model.attention_dropout},
          {"max_position_embeddings", model.max_positions + (pads_positions() ? ids.pad + 1 : 0)},
          // A model without segments is one whose segments are all zero.
          {"type_vocab_size", model.segments == Segments::kLearned ? model.num_segments : 1},
          {"initializer_range", model.init_range},
          {"layer_norm_eps", model.layer_norm_epsilon},
          {"position_embedding_type", "absolute"},
          {"tie_word_embeddings", true},
          {"bos_token_id", ids.cls},
          {"eos_token_id", ids.sep},
          {"sep_token_id", ids.sep},
          {"pad_token_id", ids.pad}};
}

void BertLikeFamily::UpdateConfig(const RunConfig& config, int64_t vocab_size, bool trained,
                                  Json& json) const {
  json["vocab_size"] = vocab_size;
  if (!trained) return;
  json["hidden_dropout_prob"] = config.model.dropout;
  json["attention_probs_dropout_prob"] = config.model.attention_dropout;
  json["initializer_range"] = config.model.init_range;
}

TensorTable BertLikeFamily::Tensors(const ModelConfig& model, const ParameterLayout& layout) const {
  TensorTable tensors;
  if (model.adaptive() || model.positions != Positions::kLearned) return tensors;  // as Check says
  const std::string prefix = names().prefix;
  const std::string embeddings = prefix + "embeddings.";
  const ParameterInfo& words = layout.Find("transformer.word_embedding.weight");
  tensors.push_back(PlainTensor(words, embeddings + "word_embeddings.weight"));
  tensors.push_back(PlainTensor(layout.Find("transformer.position_embedding.weight"),
                                embeddings + "position_embeddings.weight"));
  const std::string types = embeddings + "token_type_embeddings.weight";
  const char* const segments = "transformer.segment_embedding.weight";
  if (layout.Contains(segments)) {
    tensors.push_back(PlainTensor(layout.Find(segments), types));
  } else {
    tensors.push_back({types, Shape{1, model.model_dim}, {TensorBlock::Zeros(1, model.model_dim)}});
  }
  AddDense(layout, "transformer.embedding_layer_norm", embeddings + "LayerNorm", tensors);
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    const std::string ours = absl::StrCat("transformer.layer.", layer, ".");
    const std::string theirs = absl::StrCat(prefix, "encoder.layer.", layer, ".");
    for (const Projection& one : kProjections)
      AddProjection(layout, ours + one.ours, theirs + one.theirs, one.is_transposed, tensors);
    for (const auto& [mine, other] : kRestOfLayer)
      AddDense(layout, ours + mine, theirs + other, tensors);
  }
  for (FileTensor& tensor : HeadTensors(model, layout)) tensors.push_back(std::move(tensor));
  tensors.push_back(PlainTensor(words, output().weight));
  tensors.back().is_alias = true;
  tensors.back().repeats =
      "it must be the word embedding, an output of its own is not supported; save the model with "
      "tied embeddings";
  if (layout.Contains("lm_loss.bias")) {
    tensors.push_back(PlainTensor(layout.Find("lm_loss.bias"), output().bias));
    tensors.back().is_alias = true;
    tensors.back().is_exported = output().exports_bias && !model.task.has_head();
    tensors.back().repeats = "it must be the other name of the output's bias";
  }
  AddOldNames(tensors);
  return tensors;
}

void BertLikeFamily::FitTensors(const HfConfig& config, TensorTable& tensors) const {
  if (config.first_position == 0) return;
  const std::string positions =
      absl::StrCat(names().prefix, "embeddings.position_embeddings.weight");
  for (FileTensor& tensor : tensors) {
    if (tensor.name != positions) continue;
    const int64_t columns = tensor.shape[1];
    tensor.shape = Shape{tensor.shape[0] + config.first_position, columns};
    tensor.blocks.insert(tensor.blocks.begin(), TensorBlock::Zeros(config.first_position, columns));
  }
}

}  // namespace anyorder::launcher
