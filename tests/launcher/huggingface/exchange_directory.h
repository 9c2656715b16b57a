// A directory in which tests of import and export keep model directories and runs by their names.

#pragma once

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/base/whole_file.h"
#include "core/train/run/config_file.h"
#include "core/train/run/run_directory.h"
#include "launcher/huggingface/exchange.h"
#include "launcher/huggingface/hf_model.h"
#include "tests/launcher/huggingface/hf_directory.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temporary_directory.h"

namespace anyorder::launcher {

inline HfConfig Parsed(const nlohmann::ordered_json& config) {
  return ParseHfConfig(config.dump(), "config.json").value();
}
// A run of such a model, with what an import makes of it.
inline RunConfig RunOfModel(const nlohmann::ordered_json& config) {
  const HfConfig parsed = Parsed(config);
  RunConfig run = ContinuedTrainingDefaults({}, parsed);
  EXPECT_TRUE(run.Validate().empty()) << config << run.Validate().Joined();
  return run;
}

// A small config.json of the family, with the sizes under all their names.
inline nlohmann::ordered_json SmallConfig(const HfFamily& family) {
  nlohmann::ordered_json json = {{"model_type", family.names().model_type},
                                 {"architectures", {family.names().architecture}},
                                 {"vocab_size", 14},
                                 {"max_position_embeddings", 22},
                                 {"n_positions", 20},
                                 {"type_vocab_size", 2},
                                 {"model_length", 64},
                                 {"cond_dim", 8},
                                 {"mem_len", 5},
                                 {"same_length", false},
                                 {"cutoffs", {4, 7}},
                                 {"div_val", 2},
                                 {"block_type", "llama"},
                                 {"activation_type", "silu"},
                                 {"layer_norm_type", "rms"},
                                 {"rope", true}};
  for (const char* key : {"num_hidden_layers", "n_layer", "n_layers", "n_blocks"}) json[key] = 2;
  for (const char* key : {"hidden_size", "d_model", "n_embd", "hidden_dim"}) json[key] = 16;
  for (const char* key : {"num_attention_heads", "n_head", "n_heads", "d_head"}) json[key] = 4;
  for (const char* key : {"intermediate_size", "d_inner", "mlp_hidden_size"}) json[key] = 64;
  return json;
}

// Members with which this config.json is refused, in place of its own, and with what words.
inline void ExpectPatchesRefused(const nlohmann::ordered_json& config,
                                 const std::vector<std::pair<const char*, const char*>>& patches) {
  for (const auto& [patch, words] : patches) {
    nlohmann::ordered_json patched = config;
    patched.update(nlohmann::ordered_json::parse(patch));
    const absl::Status status = ParseHfConfig(patched.dump(), "config.json").status();
    EXPECT_THAT(status, Exits(kExitData, "config.json", words)) << config << patch;
    EXPECT_THAT(status, ::testing::Not(Says("\n")));
  }
}

inline std::vector<float> Transposed(const std::vector<float>& matrix, size_t rows) {
  EXPECT_FALSE(matrix.empty());
  const size_t columns = matrix.size() / rows;
  std::vector<float> transposed(matrix.size());
  for (size_t i = 0; i < rows; ++i)
    for (size_t j = 0; j < columns; ++j) transposed[j * rows + i] = matrix[i * columns + j];
  return transposed;
}

class ExchangeDirectory {
 protected:
  std::string At(const std::string& name) const { return absl::StrCat(root_, "/", name); }
  void Remove(std::initializer_list<const char*> names) const {
    for (const char* name : names) std::filesystem::remove_all(At(name));
  }

  absl::Status ImportAs(const std::string& run, const std::string& input = "hf",
                        const std::vector<std::string>& overrides = {}) const {
    return ImportHuggingFace({At(input), At(run), "", overrides});
  }
  // An import of "hf" as "run" ends so, in one line with all these parts, and writes nothing.
  void ExpectRefused(int exit_status, const std::vector<std::string>& parts,
                     const std::vector<std::string>& overrides = {},
                     const std::string& config = "") const {
    const auto entries = [this] {
      namespace fs = std::filesystem;
      return std::distance(fs::recursive_directory_iterator(root_), {});
    };
    const auto before = entries();
    const absl::Status status = ImportHuggingFace({At("hf"), At("run"), config, overrides});
    EXPECT_EQ(entries(), before) << "something was written";
    EXPECT_THAT(status, ::testing::AllOf(Exits(exit_status), ::testing::Not(Says("\n"))));
    for (const std::string& part : parts) EXPECT_THAT(status, Says(part));
  }
  // The same of this model.
  template <typename Model>
  void ExpectModelRefused(const Model& model, const std::vector<std::string>& parts,
                          const std::vector<std::string>& overrides = {}) const {
    Remove({"hf", "run"});
    model.Write(At("hf"));
    ExpectRefused(kExitData, parts, overrides);
  }
  // What is read of "hf", whose names have their prefix, does not depend on the pieces.
  void ExpectSameInAnyPieces(const RunConfig& config) const {
    const HfConfig model = Parsed(JsonOf("hf/config.json"));
    const HfWeights weights = HfWeights::Open(At("hf")).value();
    const ParameterLayout layout(config.model, model.vocab_size);
    TensorTable tensors = model.family->Tensors(config.model, layout);
    model.family->FitTensors(model, tensors);
    const auto read = [&](int64_t most) {
      std::vector<float> flat(static_cast<size_t>(layout.num_elements()));
      for (int64_t begin = 0; begin < std::ssize(flat); begin += most) {
        const FlatPiece piece = {begin, std::min(begin + most, std::ssize(flat)), &flat[begin]};
        EXPECT_EQ(weights.Read(tensors, piece), absl::OkStatus());
        const auto values = [&](const std::string& name) { return weights.Values(name); };
        EXPECT_EQ(model.family->Fold(model, layout, values, piece), absl::OkStatus());
      }
      return BytesOf(flat);
    };
    const std::string whole = read(layout.num_elements());
    for (const int64_t most : {37, 1000}) EXPECT_TRUE(read(most) == whole) << most;
  }
  // Of "run", as Hugging Face has it or with our names.
  absl::Status Export(const std::string& output, const WeightFileOptions& files = {}) const {
    return ExportModel({At("run"), -1, At(output), ExportFormat::kHuggingFace, files});
  }
  absl::Status ExportOurs(const std::string& output, const std::string& run = "run") const {
    return ExportModel({At(run), -1, At(output), ExportFormat::kSafetensors});
  }

  nlohmann::ordered_json JsonOf(const std::string& file) const {
    return nlohmann::ordered_json::parse(ReadWholeFile(At(file), kMaxTextBytes).value());
  }
  RunConfig ConfigOf(const std::string& run = "run") const {
    return LoadRunConfig(RunDirectory(At(run)).config, {}).value();
  }
  std::vector<float> ValuesIn(const std::string& directory, const std::string& name) const {
    return StoredValues(At(directory), name);
  }
  // The tensors of a directory, by name, types and shapes in front of their bytes.
  std::map<std::string, std::string> TensorsIn(const std::string& directory) const {
    std::map<std::string, std::string> tensors;
    for (const auto& file : std::filesystem::directory_iterator(At(directory))) {
      if (file.path().extension() != ".safetensors") continue;
      const auto reader = ckpt::SafetensorsReader::Open(file.path().string()).value();
      for (const ckpt::SafetensorsTensor& tensor : reader.tensors()) {
        const auto& [name, dtype, shape] = tensor.entry;
        std::string bytes(static_cast<size_t>(shape.num_elements() * SizeOf(dtype)), '\0');
        EXPECT_TRUE(reader.Read(name, 0, shape.num_elements(), bytes.data()).ok());
        tensors[name] = absl::StrCat(Name(dtype), shape.ToString(), bytes);
      }
    }
    return tensors;
  }
  // These tensors, byte for byte, among others.
  void ExpectHas(const std::string& directory, const std::vector<HfTensor>& tensors) const {
    std::map<std::string, std::string> stored = TensorsIn(directory);
    for (const auto& [entry, bytes] : tensors)
      EXPECT_EQ(stored[entry.name], absl::StrCat(Name(entry.dtype), entry.shape.ToString(), bytes))
          << entry.name;
  }
  // These and no others.
  void ExpectIs(const std::string& directory, const std::vector<HfTensor>& tensors) const {
    EXPECT_EQ(TensorsIn(directory).size(), tensors.size());
    ExpectHas(directory, tensors);
  }

  const TemporaryDirectory directory_;
  const std::string& root_ = directory_.path();
};

// "hf" is a model made by hand, of which "run" is made.
class MadeModelDirectory : public ExchangeDirectory {
 protected:
  // What is said on stdout stays in `said_`.
  absl::Status Import(const std::vector<std::string>& overrides = {}) {
    Remove({"hf", "run", "out"});
    model_.Write(At("hf"));
    return ImportAgain(overrides);
  }
  // What is in "hf".
  absl::Status ImportAgain(const std::vector<std::string>& overrides = {}) {
    ::testing::internal::CaptureStdout();
    const absl::Status status = ImportAs("run", "hf", overrides);
    said_ = ::testing::internal::GetCapturedStdout();
    return status;
  }

  // All the tensors that a model of this config.json has, all values different, with XLNet's
  // tokenizer.
  void Make(const nlohmann::ordered_json& json) {
    model_.config = json;
    const HfConfig config = Parsed(json);
    TensorTable tensors =
        config.family->Tensors(config.model, ParameterLayout(config.model, config.vocab_size));
    config.family->FitTensors(config, tensors);
    model_.tensors.clear();
    float first_value = 0;
    for (const FileTensor& tensor : tensors) {
      if (tensor.is_alias) continue;
      model_.Add(tensor.name, {tensor.shape.num_elements()}, first_value += 1);
      model_.tensors.back().entry.shape = tensor.shape;
    }
  }

  HfDirectory model_;
  std::string said_;
};

}  // namespace anyorder::launcher
