#include "core/train/run/config_keys.h"

#include <algorithm>
#include <type_traits>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "core/base/fields.h"
#include "core/base/status.h"
#include "core/objective/objective_traits.h"
#include "core/train/run/field_text.h"
#include "core/train/run/run_config.h"

namespace anyorder {
namespace {

// Keys of configurations that were written before they had their present names.
struct RenamedKey {
  absl::string_view before;
  absl::string_view now;  // with its value, where the type has changed
};
constexpr RenamedKey kRenamedKeys[] = {
    {"model.segment_term", "model.segments = \"none\""},
    {"train.lanes", "train.global_batch_size"},
    {"train.microbatch_lanes", "train.micro_batch_size"},
    {"train.gemm_table", "kernels.gemm_algorithm_cache"},
    {"eval.lanes", "eval.batch_size"},
    {"optimizer.clip_norm", "optimizer.max_grad_norm"},
    {"dist.hang_exit_seconds", "dist.collective_timeout_seconds"},
    {"dist.replica_check_every", "dist.replica_check_interval"},
};

// Names that are keys here, too, are left out, but for batch_size, which is [eval]'s alone.
constexpr KeyElsewhere kKeysElsewhere[] = {
    {"model.num_layers", "num_hidden_layers n_layer n_layers encoder_layers decoder_layers layers"},
    {"model.model_dim",
     "hidden_size d_model n_embd dim embed_dim encoder_embed_dim decoder_embed_dim hidden_dim"},
    {"model.num_heads",
     "num_attention_heads n_head n_heads attention_heads encoder_attention_heads "
     "decoder_attention_heads"},
    {"model.head_dim", "d_head kv_channels"},
    {"model.ffn_dim",
     "intermediate_size d_inner ffn_hidden_size n_inner encoder_ffn_embed_dim "
     "decoder_ffn_embed_dim"},
    {"model.activation", "hidden_act activation_function ff_activation activation_fn"},
    {"model.layer_norm_epsilon", "layer_norm_eps layernorm_epsilon norm_epsilon norm_eps"},
    {"model.mem_len", "mem_length memory_len"},
    {"model.max_positions", "max_position_embeddings n_positions max_target_positions"},
    {"model.positions", "position_embedding_type"},
    {"model.rope_base", "rope_theta rotary_base"},
    {"model.num_segments", "type_vocab_size"},
    {"model.dropout", "hidden_dropout_prob hidden_dropout resid_pdrop embd_pdrop"},
    {"model.attention_dropout", "attention_probs_dropout_prob attn_pdrop dropatt"},
    {"model.init_range", "initializer_range init_std init_method_std"},
    {"model.dtype",
     "fp16 bf16 precision mixed_precision mixed_precision_param torch_dtype params_dtype"},
    {"sampling.seq_len",
     "seq_length max_seq_length max_seq_len sequence_length tokens_per_sample block_size "
     "context_length tgt_len"},
    {"sampling.bidirectional", "bi_data"},
    {"sampling.num_predict", "max_predictions_per_seq"},
    {"sampling.mask_fraction", "mlm_probability mask_prob masked_lm_prob"},
    {"sampling.max_span", "max_span_length"},
    {"objective.name", "objective arch architecture criterion model_type"},
    {"objective.num_classes", "num_labels"},
    {"optimizer.learning_rate", "lr max_lr peak_lr"},
    {"optimizer.min_learning_rate_ratio", "min_lr min_lr_factor min_lr_ratio lr_min"},
    {"optimizer.warmup_steps",
     "warmup warmup_updates warmup_iters warmup_ratio num_warmup_steps lr_warmup_steps "
     "lr_warmup_iters"},
    {"optimizer.decay",
     "lr_scheduler lr_scheduler_type lr_decay_style lr_schedule decay_type scheduler"},
    {"optimizer.decay_power", "power poly_power lr_power"},
    {"optimizer.decay_steps", "num_decay_steps lr_wsd_decay_iters lr_decay_iters cooldown_steps"},
    {"optimizer.layer_decay",
     "lr_layer_decay_rate layerwise_lr_decay layerwise_lr_decay_power layer_lr_decay llrd"},
    {"optimizer.adam_beta1", "beta1 betas adam_betas"},
    {"optimizer.adam_beta2", "beta2"},
    {"optimizer.adam_epsilon", "eps epsilon adam_eps"},
    {"optimizer.weight_decay", "wd"},
    {"optimizer.ema_decay", "ema ema_beta ema_rate"},
    {"optimizer.max_grad_norm", "clip_grad grad_clip gradient_clip_val max_norm"},
    {"data.shards",
     "data_path data_dir dataset dataset_path dataset_name train_file train_data "
     "train_data_path"},
    {"train.steps",
     "max_steps train_iters max_update max_updates max_iters iterations total_steps "
     "training_steps num_train_steps num_train_epochs epochs max_epoch"},
    {"train.seed", "random_seed data_seed"},
    {"train.global_batch_size", "batch_size train_batch_size"},
    {"train.micro_batch_size",
     "per_device_train_batch_size per_gpu_train_batch_size local_batch_size max_sentences "
     "gradient_accumulation_steps grad_accum_steps update_freq"},
    {"train.log_every", "logging_steps log_interval log_freq log_steps"},
    {"train.init_from",
     "load init_checkpoint restore_file finetune_from_model initial_load_path pretrained "
     "model_name_or_path"},
    {"train.lora.rank", "lora_rank lora_r"},
    {"train.lora.alpha", "lora_alpha"},
    {"train.lora.targets", "target_modules lora_target lora_target_modules lora_targets"},
    {"train.lora.tensors", "modules_to_save additional_target"},
    {"dist.transport", "distributed_backend ddp_backend backend"},
    {"dist.bucket_mib", "bucket_cap_mb ddp_bucket_cap_mb ddp_bucket_size"},
    {"dist.collective_timeout_seconds", "ddp_timeout distributed_timeout_minutes"},
    {"checkpoint.every",
     "save_steps save_interval save_interval_updates checkpoint_interval interval"},
    {"checkpoint.keep_best", "load_best_model_at_end keep_best_checkpoints"},
    {"checkpoint.keep_last",
     "save_total_limit keep_latest_k keep_interval_updates keep_last_epochs"},
    {"eval.shards", "eval_data valid_data valid_data_path validation_file"},
    {"eval.every", "eval_steps eval_interval eval_freq validate_interval_updates interval freq"},
    {"eval.batches", "eval_iters"},
    {"eval.metric", "metric_for_best_model best_checkpoint_metric"},
    {"eval.patience", "early_stopping_patience"},
    {"eval.batch_size", "per_device_eval_batch_size eval_batch_size"},
    {"cpu.threads", "num_threads omp_num_threads"},
};

template <typename Value>
std::vector<std::string> ValuesOf() {
  std::vector<std::string> values;
  if constexpr (std::is_enum_v<Value>) {
    values = EnumNameList<Value>();
  } else if constexpr (std::is_same_v<Value, bool>) {
    values = {"true", "false"};
  }
  return values;
}

std::vector<ConfigKey> MakeConfigKeys() {
  std::vector<ConfigKey> keys;
  auto visit_section = [&keys](const char* section, const auto& fields, Decides) {
    auto visit = [&](const char* key, const auto& value, const char* help,
                     const auto&... attributes) {
      const FieldBounds bounds = AttributeOf(FieldBounds(), attributes...);
      using Value = std::decay_t<decltype(value)>;
      keys.push_back({section, key, field_text::ExpectedType<Value>(), field_text::Format(value),
                      bounds.ToText(), bounds.unit, help, ValuesOf<Value>()});
    };
    std::decay_t<decltype(fields)>::VisitFields(fields, visit);
  };
  const RunConfig defaults = RunConfig::ForNewRun();
  RunConfig::VisitSections(defaults, visit_section);
  for (ConfigKey& key : keys) {
    std::vector<std::string> values = key.values;
    if (key.name() == "objective.name") {
      for (const ObjectiveTraits& traits : Objectives()) {
        key.values.emplace_back(traits.name);
        const std::string others = absl::StrReplaceAll(traits.other_names, {{" ", ", "}});
        values.push_back(others.empty() ? traits.name
                                        : absl::StrCat(traits.name, " (", others, ")"));
      }
    }
    if (!values.empty()) key.type = absl::StrJoin(values, ", ");
  }
  return keys;
}

}  // namespace

const std::vector<ConfigKey>& ConfigKeys() {
  static const std::vector<ConfigKey>& keys = *new std::vector<ConfigKey>(MakeConfigKeys());
  return keys;
}

absl::StatusOr<ConfigKey> FindConfigKey(absl::string_view name) {
  const ConfigKey* found = nullptr;
  int num_found = 0;
  for (const ConfigKey& key : ConfigKeys()) {
    if (key.name() == name) return key;
    if (key.key != name) continue;
    found = &key;
    ++num_found;
  }
  if (num_found == 1) return *found;
  const size_t dot = name.rfind('.');
  const bool is_whole = dot != absl::string_view::npos;
  return InvalidArgument("unknown key '", name, "'",
                         SuggestConfigKey(is_whole ? name.substr(0, dot) : "",
                                          is_whole ? name.substr(dot + 1) : name));
}

std::string SuggestConfigKey(absl::string_view section, absl::string_view key) {
  const std::string name = absl::StrCat(section, ".", key);
  if (key == "vocab_size" || key == "padded_vocab_size")
    return "; the dataset says how large its vocabulary is: `anyorder prep --vocab-size N`";
  for (const RenamedKey& renamed : kRenamedKeys)
    if (renamed.before == name || (section.empty() && absl::EndsWith(renamed.before, name)))
      return absl::StrCat("; its name is now '", renamed.now, "'");
  const std::string elsewhere = KeyKnownElsewhere(section, key);
  if (!elsewhere.empty()) return absl::StrCat("; did you mean '", elsewhere, "'?");
  std::vector<std::string> names, keys_of_section;
  for (const ConfigKey& known : ConfigKeys()) {
    if (known.key == key) return absl::StrCat("; did you mean '", known.name(), "'?");
    names.push_back(known.name());
    if (known.section == section) keys_of_section.push_back(known.key);
  }
  const std::string near = NearestName(key, keys_of_section);
  if (!near.empty()) return absl::StrCat("; did you mean '", section, ".", near, "'?");
  const std::string nearest = NearestName(name, names);
  return nearest.empty() ? "" : absl::StrCat("; did you mean '", nearest, "'?");
}

absl::Span<const KeyElsewhere> KeysElsewhere() { return kKeysElsewhere; }

std::string KeyKnownElsewhere(absl::string_view section, absl::string_view key) {
  const std::string word =
      absl::StrReplaceAll(absl::AsciiStrToLower(absl::StripPrefix(key, "--")), {{"-", "_"}});
  std::string found;
  for (const KeyElsewhere& known : kKeysElsewhere) {
    const std::vector<absl::string_view> names = absl::StrSplit(known.names, ' ');
    if (std::find(names.begin(), names.end(), word) == names.end()) continue;
    if (found.empty() || absl::StartsWith(known.key, absl::StrCat(section, ".")))
      found = std::string(known.key);
  }
  return found;
}

}  // namespace anyorder
