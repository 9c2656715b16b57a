// A pretraining objective is data for the network: it turns sampled text into slots, visibility
// arrays and a readout list. A new objective is one file in its system's folder and one line in
// registry/; no kernel and no layer changes.

#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "core/config/model_config.h"
#include "core/objective/batch.h"
#include "core/objective/canvas_form.h"
#include "core/objective/generation_form.h"
#include "core/objective/objective_traits.h"
#include "core/objective/text_sample.h"

namespace anyorder {

using FormOrStatus = absl::StatusOr<std::unique_ptr<GenerationForm>>;

// What all forms have alike; `first_given` is set where a slot predicts the token after it. The
// rest is the caller's.
inline CanvasForm MakeCanvas(CanvasFamily family, int64_t seq_len, const GenerationTokens& tokens) {
  CanvasForm form{.family = family,
                  .seq_len = seq_len,
                  .mask_token = tokens.mask,
                  .end_token = tokens.end_of_document};
  form.first_given = form.predicts_next();
  return form;
}

// What an objective is made of. MakeObjective has checked `sampling` against `traits` when it calls
// a system's function, which refuses what else the objective cannot use.
struct ObjectiveSettings {
  ObjectiveTraits traits;
  const ModelConfig& model;
  const SamplingConfig& sampling;
};

class Objective {
 public:
  explicit Objective(const ObjectiveSettings& settings)
      : traits_(settings.traits), model_(settings.model), sampling_(settings.sampling) {}
  virtual ~Objective() = default;

  const ObjectiveTraits& traits() const { return traits_; }
  std::string name() const { return traits_.name; }
  SampleKind sample_kind() const { return traits_.sample_kind; }
  // Whether the text begins with a part that the next step remembers, of which evaluation reports
  // apart.
  bool has_reuse_part() const {
    return traits_.has(ObjectiveTraits::kRemembers) &&
           traits_.sample_kind != SampleKind::kContiguous;
  }
  // Segment ids that slots can have are below this.
  virtual int64_t num_segments() const { return 1; }
  // What the mean of the weighted losses is, in a few words: bound, pseudo-likelihood, likelihood.
  // `anyorder eval` says it.
  virtual std::string quantity() const { return "training loss of " + name(); }
  // What else a reader of an evaluation must know of the loss; ends with "; ", or is empty.
  virtual std::string evaluation_note() const {
    return sampling_.hide_documents ? "no token sees other documents of its window; " : "";
  }
  // Shape of a microbatch of `batch_size` lanes.
  virtual BatchShape Shape(int64_t batch_size) const = 0;
  // Fills lane `b` of `batch` from `sample`. `batch` has Shape(...).
  virtual void BuildLane(const TextSample& sample, int64_t b, Batch& batch) const = 0;
  // How text is read and written from left to right with what the objective teaches.
  // FailedPrecondition, saying why and what instead, if it teaches no order to write in (the
  // default).
  virtual FormOrStatus Generation(const GenerationTokens& tokens) const;
  // How text with blanks is read and filled with what the objective teaches. FailedPrecondition,
  // saying why, if it teaches neither that nor to score a text (the default).
  virtual absl::StatusOr<CanvasForm> Canvas(const GenerationTokens& tokens) const;

 private:
  const ObjectiveTraits traits_;

 protected:
  // What a system's class reads its settings from.
  const ModelConfig model_;
  const SamplingConfig sampling_;
  const int64_t seq_len_ = sampling_.seq_len;
};

// `name` is any that ObjectiveNamed knows. InvalidArgument for others, and for settings that the
// objective cannot use.
ObjectiveOrStatus MakeObjective(const std::string& name, const ModelConfig& model,
                                const SamplingConfig& sampling);
// Null after adding to `faults` what the other one would report.
std::unique_ptr<Objective> MakeObjective(const std::string& name, const ModelConfig& model,
                                         const SamplingConfig& sampling, FaultList& faults);

}  // namespace anyorder
