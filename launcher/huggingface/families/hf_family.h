// A family of models of Hugging Face's transformers that our network can be: what its config.json
// says, which of its tensors are which of our parameters, and what it cannot hold. A file of this
// folder each; families.cc has the table.

#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "core/config/model_config.h"
#include "core/network/tensors/parameters.h"
#include "core/train/run/run_config.h"
#include "data/dataset/dataset_index.h"
#include "launcher/huggingface/families/config_reader.h"
#include "launcher/huggingface/families/file_tensor.h"

namespace anyorder::launcher {

class HfFamily;

// What a config.json says.
struct HfConfig {
  const HfFamily* family = nullptr;  // of the table
  // Architecture, dropout, memory and initial range; what the file leaves open has our default.
  ModelConfig model;
  int64_t vocab_size = 0;
  // The activation is "gelu": by name the exact GELU, yet the released models, whose files say so,
  // were trained with the tanh approximation. `model` has the latter; either may be chosen.
  bool gelu_is_open = false;
  // No key says what a feed-forward layer is added to (model.ffn_residual): either may be chosen.
  bool ffn_residual_is_open = false;
  // Rows of a table of learned positions before that of the first token, which nobody uses.
  int64_t first_position = 0;
  // Of models without a table of positions: the longest text that it was trained for; 0: unknown.
  int64_t max_length = 0;
  // dit.cc: tokens a block of BD3-LM, and the width of the noise level's embedding, by which every
  // normalisation is modulated; 0: none is.
  int64_t block_len = 0;
  int64_t condition_dim = 0;
  // What makes the sequence summary another function than that of our heads, "" if nothing does.
  std::string other_summary;
  // The task that the class of `architectures` is for, with the keys of its head; without a name if
  // it is for none.
  ObjectiveConfig objective{.name = ""};

  bool has_task() const { return !objective.name.empty(); }
};

// What stands in the way of a run's network being one of a family, each with the setting's name.
struct HfObstacles {
  void Require(bool condition, std::string obstacle) {
    if (!condition) list.push_back(std::move(obstacle));
  }
  std::vector<std::string> list;
};

// A head on top of the language model. A run that has it takes it from the files whole, or, where
// they have nothing of it, begins with random values. Its tensors are HfFamily::Tensors's.
enum class HfHeadKind {
  kLanguageModel,
  kNextSentence,
  // Of tasks; a class of transformers each.
  kClasses,  // or a score
  kChoices,
  kConditionalSpans,
  kSimpleSpans,
  kTags,  // classes of words
};

struct HfHead {
  const char* name;          // in messages: "next-sentence head"
  const char* architecture;  // the class of transformers that has it
  const char* remedy;        // what else to do where the files have it only in part
  // Our parameters, and their names there: the same shape and order, but a matrix of two inputs is
  // [2, d, d] here and [d, 2 d] there. Without a name of ours: the bias of choices, which is the
  // same for all: an import ignores it, an export writes 0.
  std::vector<std::pair<const char*, const char*>> names;
  HfHeadKind kind = HfHeadKind::kLanguageModel;
  // kTags: whether the class has dropout of its own before the last layer.
  bool has_dropout = true;

  // Whether it is a summary of the sequence, whose form config.json describes.
  bool has_summary() const {
    return kind == HfHeadKind::kNextSentence || kind == HfHeadKind::kClasses ||
           kind == HfHeadKind::kChoices;
  }
  bool is_of_task() const { return kind >= HfHeadKind::kClasses; }
  // Whether a network of this kind has it, or would have it if it had a language model.
  bool IsIn(const ModelConfig& model) const;
  // Whether it has this parameter of ours.
  bool Holds(absl::string_view ours) const;
};

struct HfKeyName {
  const char* ours;  // of section [model]
  const char* theirs;
};

class HfFamily {
 public:
  using Json = nlohmann::ordered_json;
  using VocabIds = data::VocabIds;

  struct Names {
    const char* model_type;         // of config.json
    const char* architecture;       // the class that an export is of, unless it has a task
    const char* bare_architecture;  // the class without heads, whose names lack the prefix
    const char* prefix;
    // Whether an import takes the latter: all that it lacks is a head, which may be drawn.
    bool takes_bare = false;
    // Whether its tokenizer is XLNet's: spiece.model must be there, and an export frames texts as
    // XLNet does. Others may come without one.
    bool has_xlnet_tokenizer = false;
    // The class with a next-sentence head beside the language model, if there is one.
    const char* next_sentence_architecture = nullptr;
    // Whether an export has the element types of the weights that were imported, their repeated
    // tensors and, before training, their very values where ours are computed from them
    // (originals.h).
    bool keeps_storage = false;
    // False where Python files beside the weights have its class.
    bool is_in_transformers = true;
    // The Python file that has its class, where neither transformers nor the weights bring it.
    const char* class_file = nullptr;
  };

  virtual ~HfFamily() = default;
  virtual Names names() const = 0;
  // The class of this network, with the heads that it has.
  const char* Architecture(const ModelConfig& model) const;
  // What config.json calls our keys, for messages.
  virtual std::span<const HfKeyName> keys() const = 0;
  // The name of a key of section [model], or "".
  absl::string_view NameOf(absl::string_view model_key) const;
  // Heads that our network may have.
  virtual std::span<const HfHead> heads() const { return {}; }
  // How the names of tensors begin that belong to other heads: an import leaves them out.
  virtual std::span<const char* const> other_heads() const { return {}; }
  // Our objectives for tasks, that of an imported model first; none if there are no such heads.
  virtual std::span<const char* const> finetuning() const { return {}; }

  // Reads what config.json says into `config`, with the faults in `reader`.
  virtual void ReadConfig(HfConfigReader& reader, HfConfig& config) const = 0;
  // What a run that goes on from such a model trains, unless told otherwise: the objective and its
  // lengths. `config` has the model, too.
  virtual void SetDefaults(const HfConfig& model, RunConfig& config) const;
  // The settings with which such a model cannot be this run's network.
  virtual void Check(const RunConfig& config, HfObstacles& obstacles) const = 0;
  // The config.json of this run's network, but for `architectures`, the element type, and what
  // UpdateConfig says.
  virtual Json NewConfig(const RunConfig& config, int64_t vocab_size,
                         const VocabIds& ids) const = 0;
  // Changes in a config.json what the run has changed: with `trained`, settings of training, too.
  virtual void UpdateConfig(const RunConfig& config, int64_t vocab_size, bool trained,
                            Json& json) const = 0;
  // Every tensor of such a model, in the order of an export. Parameters of `layout` that are in
  // none have no part in its function: an import leaves them as randomly initialised.
  virtual TensorTable Tensors(const ModelConfig& model, const ParameterLayout& layout) const = 0;
  // What a config.json says of Tensors's table beside our parameters.
  virtual void FitTensors(const HfConfig& config, TensorTable& tensors) const;
  // Puts into the parameters what other tensors of the files say that our network does not have.
  // `flat` has the parameters as Tensors's table placed them; `read` gives a tensor of the files.
  // Errors: those of `read`.
  using TensorReader = std::function<absl::StatusOr<std::vector<float>>(const std::string& name)>;
  virtual absl::Status Fold(const HfConfig& config, const ParameterLayout& layout,
                            const TensorReader& read, float* flat) const;

  // Reads which task the class of `architectures` is for.
  void ReadTask(HfConfigReader& reader, HfConfig& config) const;
  // Says in config.json what the head of the run's task is, if it has one, with the names of its
  // classes: `classes`, or if they are not known those that are there.
  void WriteTask(const TaskConfig& task, const std::vector<std::string>& classes, Json& json) const;

 protected:
  // The tensors of the heads that the network has. Of a task's network those of the language model
  // may be missing, and no export has them, as in the classes for tasks.
  TensorTable HeadTensors(const ModelConfig& model, const ParameterLayout& layout) const;
  // Adds what is wrong with the objective: it must be one of `pretraining`, or one of finetuning()
  // with a head that a class has.
  void CheckObjective(const RunConfig& config, std::span<const char* const> pretraining,
                      HfObstacles& obstacles) const;
  // Adds which layers of Llama's the network has. `is_tied`: whether the output is the embedding.
  static void CheckPlainLayers(const ModelConfig& model, bool is_tied, HfObstacles& obstacles);
};

// One of each, from the file of that name.
const HfFamily& A3Family();  // llama.cc
const HfFamily& BertFamily();
const HfFamily& Bd3LmFamily();  // dit.cc
const HfFamily& DreamFamily();  // llama.cc
const HfFamily& Gpt2Family();   // gpt.cc
const HfFamily& LladaFamily();
const HfFamily& LlamaFamily();
const HfFamily& LongformerFamily();
const HfFamily& MdlmFamily();       // dit.cc
const HfFamily& OpenAiGptFamily();  // gpt.cc
const HfFamily& Qwen2Family();      // llama.cc
const HfFamily& Qwen3Family();      // llama.cc
const HfFamily& RobertaFamily();
const HfFamily& TransformerXlFamily();
const HfFamily& XlnetFamily();

// All of them.
std::span<const HfFamily* const> HfFamilies();
// Their types, as config.json has them, with commas between.
std::string HfFamilyTypes();

// The family of a config.json: where several have its type, that of the class, else the first.
// FailedPrecondition naming the types that there are.
absl::StatusOr<const HfFamily*> FamilyOfType(absl::string_view model_type,
                                             absl::string_view architecture = "");

// The family that this run's network comes closest to.
const HfFamily& FamilyOfRun(const RunConfig& config);
// The same among `family` and those that share its type; of equals, `family`.
const HfFamily& VariantOfRun(const HfFamily& family, const RunConfig& config);

// FailedPrecondition, listing every setting that stands in the way, unless a model of the family
// can be this run's network.
absl::Status CheckFamily(const HfFamily& family, const RunConfig& config);

}  // namespace anyorder::launcher
