#include "launcher/huggingface/families/bert_like.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "core/base/status.h"

namespace anyorder::launcher {
namespace {

// RoBERTa's first positions are those of padding and what is before it.
void VisitPositions(bool is_roberta, HfKeys& keys) {
  HfConfig& config = keys.config;
  if (is_roberta) {
    int64_t pad = config.ids.pad < 0 ? 1 : config.ids.pad;
    if (keys.reader() != nullptr) keys.reader()->Size("pad_token_id", 0, HfKeys::kMaxSize, pad);
    config.first_position = pad + 1;
  }
  int64_t rows = keys.model.max_positions + config.first_position;
  keys.Required("max_position_embeddings", rows);
  keys.Set(keys.model.max_positions, rows - config.first_position, "max_position_embeddings");
  keys.Require(rows > config.first_position,
               absl::StrCat("'max_position_embeddings' leaves no position behind the ",
                            config.first_position, " that 'pad_token_id' takes"));
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

void AddDense(const std::string& ours, const std::string& theirs, TensorList& list) {
  for (const char* end : {".weight", ".bias"})
    if (list.Contains(ours + end)) list.Plain(ours + end, theirs + end);
}

void AddProjection(const std::string& ours, const std::string& theirs, bool is_transposed,
                   TensorList& list) {
  if (!list.Contains(ours)) return;
  if (is_transposed) {
    list.Turned({ours}, theirs + ".weight");
  } else {
    list.Below({ours}, theirs + ".weight");
  }
  if (list.Contains(ours + "_bias")) list.Plain(ours + "_bias", theirs + ".bias");
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

void BertLikeFamily::VisitKeys(HfKeys& keys) const {
  HfConfig& config = keys.config;
  ModelConfig& model = keys.model;
  // A model without segments is one whose segments are all zero.
  if (keys.Replace(model.segments, Segments::kNone, Segments::kLearned)) model.num_segments = 1;
  keys.Set(model.positions, Positions::kLearned);
  keys.Set(model.segments, Segments::kLearned);
  keys.Set(model.embedding_layer_norm, true);
  keys.Set(model.attention_biases, true);
  keys.Set(model.mlm_head, true);
  keys.Set(model.readout_dropout, false);
  keys.Set(model.mem_len, int64_t{0});
  keys.Required("vocab_size", config.vocab_size);
  keys.Required("hidden_size", model.model_dim);
  keys.Required("num_hidden_layers", model.num_layers, HfKeys::kMaxLayers);
  keys.Required("num_attention_heads", model.num_heads);
  keys.SplitWidth("num_attention_heads", "hidden_size");
  keys.Required("intermediate_size", model.ffn_dim);
  if (is_roberta()) {
    keys.Fixed("hidden_act", "gelu", ": the head has the exact GELU, and ours is the layers'");
    keys.Set(model.activation, kernels::Activation::kGeluErf, "hidden_act");
  } else {
    keys.Activation("hidden_act", model.activation, "gelu");
  }
  keys.Rate("hidden_dropout_prob", model.dropout);
  keys.Rate("attention_probs_dropout_prob", model.attention_dropout);
  VisitPositions(is_roberta(), keys);
  keys.Required("type_vocab_size", model.num_segments);
  keys.Write("type_vocab_size", model.num_segments, HfKeys::In::kAll);  // an import may add some
  keys.Range("initializer_range", model.init_range);
  keys.Number("layer_norm_eps", model.layer_norm_epsilon, 1e-12);
  keys.Fixed("position_embedding_type", "absolute");
  keys.Fixed("tie_word_embeddings", true, ": an output of its own is not supported");
  keys.Id("bos_token_id", config.ids.cls);
  keys.Id("eos_token_id", config.ids.sep);
  keys.Id("sep_token_id", config.ids.sep);
  keys.Id("pad_token_id", config.ids.pad);
  if (keys.reader() == nullptr) return;
  keys.reader()->Expect("is_decoder", false, ": it was trained to read one way only");
  keys.reader()->Expect("add_cross_attention", false);
}

void BertLikeFamily::SetDefaults(const HfConfig& /*model*/, RunConfig& config) const {
  config.objective.name = "bert";
  config.sampling.seq_len = std::min<int64_t>(512, config.model.max_positions);
}

TensorTable BertLikeFamily::Tensors(const ModelConfig& model, const ParameterLayout& layout) const {
  if (model.adaptive() || model.positions != Positions::kLearned) return {};  // as Check says
  TensorList list(layout);
  const std::string prefix = names().prefix;
  const std::string embeddings = prefix + "embeddings.";
  list.Plain("transformer.word_embedding.weight", embeddings + "word_embeddings.weight");
  list.Plain("transformer.position_embedding.weight", embeddings + "position_embeddings.weight");
  const std::string types = embeddings + "token_type_embeddings.weight";
  const char* const segments = "transformer.segment_embedding.weight";
  if (list.Contains(segments)) {
    list.Plain(segments, types);
  } else {
    list.Add({types, Shape{1, model.model_dim}, {TensorBlock::Zeros(1, model.model_dim)}});
  }
  AddDense("transformer.embedding_layer_norm", embeddings + "LayerNorm", list);
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    const std::string ours = absl::StrCat("transformer.layer.", layer, ".");
    const std::string theirs = absl::StrCat(prefix, "encoder.layer.", layer, ".");
    for (const Projection& one : kProjections)
      AddProjection(ours + one.ours, theirs + one.theirs, one.is_transposed, list);
    for (const auto& [mine, other] : kRestOfLayer) AddDense(ours + mine, theirs + other, list);
  }
  for (FileTensor& tensor : HeadTensors(model, layout)) list.Add(std::move(tensor));
  list.TiedOutput(output().weight);
  if (list.Contains("lm_loss.bias")) {
    list.Alias("lm_loss.bias", output().bias, "it must be the other name of the output's bias");
    if (output().exports_bias && !model.task.has_head()) list.ExportAlias();
  }
  TensorTable tensors = list.Take();
  AddOldNames(tensors);
  return tensors;
}

void BertLikeFamily::FitTensors(const HfConfig& config, TensorTable& tensors) const {
  const std::string embeddings = absl::StrCat(names().prefix, "embeddings.");
  const int64_t types = config.model.num_segments;
  for (FileTensor& tensor : tensors) {
    if (config.first_position > 0 && tensor.name == embeddings + "position_embeddings.weight") {
      const int64_t columns = tensor.shape[1];
      tensor.shape = Shape{tensor.shape[0] + config.first_position, columns};
      tensor.blocks.insert(tensor.blocks.begin(),
                           TensorBlock::Zeros(config.first_position, columns));
    } else if (tensor.name == embeddings + "token_type_embeddings.weight" &&
               types < tensor.shape[0]) {
      tensor.shape = Shape{types, tensor.shape[1]};
      tensor.blocks = {tensor.blocks[0].Rows(0, types)};
    }
  }
}

// Types that the files lack are copies of those that they have.
absl::Status BertLikeFamily::Fold(const HfConfig& config, const ParameterLayout& layout,
                                  const TensorReader& read, const FlatPiece& piece) const {
  const ParameterInfo& table = layout.Find("transformer.segment_embedding.weight");
  if (table.shape[0] == config.model.num_segments) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<float> rows,
                   read(absl::StrCat(names().prefix, "embeddings.token_type_embeddings.weight")));
  piece.ForEachOf(table, [&](int64_t i, float& value) { value = rows[i % std::ssize(rows)]; });
  return absl::OkStatus();
}

}  // namespace anyorder::launcher
