// A pretraining objective is data for the network: it turns sampled text into slots, visibility
// arrays and a readout list. A new objective is one file in its system's folder and one line in
// registry/; no kernel and no layer changes.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/config/model_config.h"
#include "core/objective/batch.h"
#include "core/objective/canvas_form.h"
#include "core/objective/generation_form.h"
#include "core/objective/text_sample.h"

namespace anyorder {

// How a network predicts each token of a text from those before it, once: by the content slot
// before it, or by a query slot at its own position. Their visibility is that of lane_frame.h's
// CausalSlot and CausalQuery.
enum class LeftToRight { kNever, kContent, kQueries };

using FormOrStatus = absl::StatusOr<std::unique_ptr<GenerationForm>>;

// What its line in registry/ says of an objective.
struct ObjectiveTraits {
  const char* name;
  SampleKind sample_kind;
  // Whether its network may have recurrence memory, and lanes that read backwards. Others read
  // windows of text, one way, and remember nothing.
  bool remembers = false;
  // Whether it puts <mask> where the text has another token.
  bool puts_mask = true;
};

// Special tokens that an objective puts into sequences, so that a vocabulary must have them.
struct SpecialTokenNeed {
  bool separator = false;
  bool classifier = false;
  bool mask = false;
  bool begin = false;
  bool end = false;
};

class Objective {
 public:
  explicit Objective(const ObjectiveTraits& traits) : traits_(traits) {}
  virtual ~Objective() = default;

  std::string name() const { return traits_.name; }
  SampleKind sample_kind() const { return traits_.sample_kind; }
  // Pairs of texts have <sep> and <cls>; layouts of labelled examples may have any.
  virtual SpecialTokenNeed special_tokens() const {
    const SampleKind kind = traits_.sample_kind;
    const bool is_plain = kind == SampleKind::kContiguous;
    const bool has_examples = kind == SampleKind::kExamples;
    return {!is_plain, !is_plain, traits_.puts_mask || has_examples, has_examples, has_examples};
  }
  // Whether the text begins with a part that the next step remembers, of which evaluation reports
  // apart.
  bool has_reuse_part() const {
    return traits_.remembers && traits_.sample_kind != SampleKind::kContiguous;
  }
  // Segment ids that slots can have are below this.
  virtual int64_t num_segments() const { return 1; }
  // What the mean of the weighted losses is, in a few words: bound, pseudo-likelihood, likelihood.
  // `anyorder eval` says it.
  virtual std::string quantity() const { return "training loss of " + name(); }
  // What else a reader of an evaluation must know of the loss; ends with "; ", or is empty.
  virtual std::string evaluation_note() const { return ""; }
  // Of objectives that learn from labelled examples (SampleKind::kExamples): FailedPrecondition if
  // those of `task` are none for it.
  virtual absl::Status CheckTask(ExampleTask) const { return absl::OkStatus(); }
  // Shape of a microbatch of `batch_size` lanes.
  virtual BatchShape Shape(int64_t batch_size) const = 0;
  // Fills lane `b` of `batch` from `sample`. `batch` has Shape(...).
  virtual void BuildLane(const TextSample& sample, int64_t b, Batch& batch) const = 0;
  // Whether the network has learned to score a text from left to right, and how: `anyorder eval
  // --objective causal`.
  virtual LeftToRight left_to_right() const { return LeftToRight::kNever; }
  // How text is generated with what the objective teaches. FailedPrecondition, saying why and what
  // instead, if it teaches no order to write in (the default).
  virtual FormOrStatus Generation(const GenerationTokens& tokens) const;
  // How text with blanks is read and filled with what the objective teaches. FailedPrecondition,
  // saying why, if it teaches neither that nor to score a text (the default).
  virtual absl::StatusOr<CanvasForm> Canvas(const GenerationTokens& tokens) const;
  // Whether model.same_length, by which each row sees as many keys as any other, means something.
  virtual bool takes_same_length() const { return false; }

 private:
  const ObjectiveTraits traits_;
};

using ObjectiveOrStatus = absl::StatusOr<std::unique_ptr<Objective>>;

// What an objective is made of. MakeObjective has checked `sampling` against `traits` when it calls
// a system's function, which refuses what else the objective cannot use.
struct ObjectiveSettings {
  ObjectiveTraits traits;
  const ModelConfig& model;
  const SamplingConfig& sampling;
};

// Names: those of ObjectiveNames(); README.md says which system each is. An unknown
// name is InvalidArgument with the nearest known one; so is a setting that the objective cannot
// use.
ObjectiveOrStatus MakeObjective(const std::string& name, const ModelConfig& model,
                                const SamplingConfig& sampling);
std::vector<std::string> ObjectiveNames();
// The keys of section [sampling] that an objective reads; of an unknown one those that all read.
std::vector<std::string> SamplingKeys(const std::string& objective);

}  // namespace anyorder
