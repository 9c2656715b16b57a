#include "launcher/huggingface/families/hf_keys.h"

#include "absl/strings/str_cat.h"

namespace anyorder::launcher {

void HfKeys::Size(const char* key, int64_t& field, int64_t absent, int64_t least, In in) {
  Set(field, absent, key);
  if (reader_ != nullptr) reader_->Size(key, least, kMaxSize, field);
  Write(key, field, in);
}

void HfKeys::Number(const char* key, double& field, double absent, double low, double high) {
  Set(field, absent, key);
  if (reader_ != nullptr) reader_->Number(key, low, high, field);
  Write(key, field);
}

void HfKeys::Bool(const char* key, bool& field, bool absent) {
  Set(field, absent, key);
  if (reader_ != nullptr) reader_->Bool(key, field);
  Write(key, field);
}

void HfKeys::Activation(const char* key, kernels::Activation& field, const char* standard, In in) {
  Names(field, key);
  if (reader_ != nullptr) reader_->Activation(key, standard, field);
  Write(key, HfActivation(field), in);
}

void HfKeys::Required(const char* key, int64_t& field, int64_t most) {
  Names(field, key);
  if (reader_ != nullptr) reader_->RequiredSize(key, most, field);
  Write(key, field);
}

void HfKeys::Training(const char* key, double& field, double high) {
  Names(field, key);
  if (reader_ != nullptr) reader_->Number(key, 0.0, high, field);
  Write(key, field, In::kTrained);
}

void HfKeys::Summary(const char* key, const Json& value, bool is_written) {
  if (is_written) Write(key, value);
  if (reader_ == nullptr) return;
  const auto found = reader_->json().find(key);
  if (found == reader_->json().end() || *found == value) return;
  const bool is_none = key == absl::string_view("summary_activation");
  if (found->is_null() && !is_none) return;  // as if it were absent
  const std::string text = found->is_null() ? "\"none\"" : HfConfigReader::Text(*found);
  absl::StrAppend(&config.other_summary, config.other_summary.empty() ? "" : "; ", "'", key,
                  "' is ", text, ", not ", HfConfigReader::Text(value));
}

void HfKeys::SplitWidth(const char* heads, const char* width) {
  Set(model.head_dim, model.model_dim / model.num_heads);
  Require(model.num_heads * model.head_dim == model.model_dim,
          absl::StrCat("'", heads, "' is ", model.num_heads, " but must divide '", width,
                       "' = ", model.model_dim));
}

const char* HfKeys::NameOf(const void* field) const {
  for (const auto& [member, key] : names_)
    if (member == field) return key;
  return "";
}

}  // namespace anyorder::launcher
