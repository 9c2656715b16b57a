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

#include "core/base/dtype.h"
#include "core/config/model_config.h"
#include "core/network/tensors/parameters.h"
#include "core/train/run/run_config.h"
#include "data/dataset/dataset_index.h"
#include "launcher/huggingface/families/file_tensor.h"
#include "launcher/huggingface/families/hf_keys.h"

namespace anyorder::launcher {

// A head on top of the language model. A run that has it takes it from the files whole, or, where
// they have nothing of it, begins with random values. Its tensors are HfFamily::Tensors's.
enum class HfHeadKind {
  kLanguageModel,
  kNextSentence,
  // Heads of tasks; a class of transformers each.
  kClasses,  // or a score
  kChoices,
  kConditionalSpans,
  kSimpleSpans,
  kTags,  // classes of words
};

struct HfHead {
  const char* name;          // in messages: "next-sentence head"
  std::string architecture;  // the class of transformers that has it
  const char* remedy;        // what else to do where the files have it only in part
  // Our parameters, and their names there: the same shape and order, but a matrix of two inputs is
  // [2, d, d] here and [d, 2 d] there. Without a name of ours: the bias of choices, which is the
  // same for all: an import ignores it, an export writes 0.
  std::vector<std::pair<std::string, std::string>> names;
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

class HfFamily {
 public:
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
    // Our objectives whose network it is. Those for tasks begin with that of an imported model;
    // there are none without such heads.
    std::span<const char* const> pretraining = {};
    std::span<const char* const> finetuning = {};
    // How the names of tensors begin, behind the prefix or without it, that belong to other heads:
    // an import leaves them out.
    std::span<const char* const> other_heads = {};
  };

  virtual ~HfFamily() = default;
  virtual Names names() const = 0;
  // The class of this network, with the heads that it has.
  std::string Architecture(const ModelConfig& model) const;
  // Heads that our network may have.
  virtual std::span<const HfHead> heads() const { return {}; }

  // Each key of config.json once, but for `architectures`, `model_type`, the element type and what
  // it says of labels. What a model of the family cannot have has no key here: it is read as our
  // default, and CheckFamily refuses a run that has another value.
  virtual void VisitKeys(HfKeys& keys) const = 0;
  // What a config.json says, with the faults in `reader`.
  HfConfig ReadConfig(HfConfigReader& reader) const;
  // The config.json of this run's network. `classes`: the names of a classifier's labels, if they
  // are known.
  Json NewConfig(const RunConfig& config, int64_t vocab_size, DType dtype, const VocabIds& ids,
                 const std::vector<std::string>& classes) const;
  // Changes in that of an imported model what the run has changed: with `trained`, settings of
  // training, too.
  void UpdateConfig(const RunConfig& config, int64_t vocab_size, bool trained,
                    const std::vector<std::string>& classes, Json& json) const;
  // What there is to say of a run.
  HfConfig Describe(const RunConfig& config, int64_t vocab_size, const VocabIds& ids) const;
  // What config.json calls a key of section [model], or "".
  std::string NameOf(absl::string_view model_key) const;
  // What a run that goes on from such a model trains, unless told otherwise: the objective and its
  // lengths. `config` has the model, too.
  virtual void SetDefaults(const HfConfig& /*model*/, RunConfig& /*config*/) const {}
  // Every tensor of such a model, in the order of an export. Parameters of `layout` that are in
  // none have no part in its function: an import leaves them as randomly initialised.
  virtual TensorTable Tensors(const ModelConfig& model, const ParameterLayout& layout) const = 0;
  // What a config.json says of Tensors's table beside our parameters.
  virtual void FitTensors(const HfConfig& /*config*/, TensorTable& /*tensors*/) const {}
  // Puts into the parameters what other tensors of the files say that our network does not have.
  // `piece` has parameters as Tensors's table placed them; `read` gives a tensor of the files, by
  // its name with the prefix. Errors: those of `read`.
  using TensorReader = std::function<absl::StatusOr<std::vector<float>>(const std::string& name)>;
  virtual absl::Status Fold(const HfConfig& /*config*/, const ParameterLayout& /*layout*/,
                            const TensorReader& /*read*/, const FlatPiece& /*piece*/) const {
    return absl::OkStatus();
  }

  // The head of the network's task, or null.
  const HfHead* FindTaskHead(const ModelConfig& model) const;

 protected:
  // The tensors of the heads that the network has. Of a task's network those of the language model
  // may be missing, and no export has them, as in the classes for tasks.
  TensorTable HeadTensors(const ModelConfig& model, const ParameterLayout& layout) const;

 private:
  // Reads which task the class of `architectures` is for.
  void ReadTask(HfConfigReader& reader, HfConfig& config) const;
  // Says in config.json what the head of the run's task is, if it has one, with the names of its
  // classes, or if they are not known those that are there.
  void WriteTask(const TaskConfig& task, const std::vector<std::string>& classes, Json& json) const;
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
// The closest of `family` and those that share its type; of equals, `family`.
const HfFamily& VariantOfRun(const HfFamily& family, const RunConfig& config);

// Every setting with which no model of the family can be this run's network, each with both values:
// what the family's config.json, written of the run and read again, says otherwise.
std::vector<std::string> Obstacles(const HfFamily& family, const RunConfig& config);
// FailedPrecondition listing them, unless there are none.
absl::Status CheckFamily(const HfFamily& family, const RunConfig& config);
// FailedPrecondition listing what `read`, a config.json that goes with the run's weights, says
// otherwise than the run; memory and windows, which a run may change, only where it has `trained`.
absl::Status CheckSays(const HfConfig& read, const RunConfig& config, bool trained);

}  // namespace anyorder::launcher
