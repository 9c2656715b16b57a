// What attention works out ahead for a microbatch (kernels::AttentionPlan): one plan for each
// arrangement of rows and keys, which all its layers share, forward and backward. Windows, biases
// and dropout differ from layer to layer and are no part of it.

#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"

#include "core/network/layers/global_slots.h"
#include "core/network/layers/positions.h"
#include "core/network/tensors/step_context.h"

namespace anyorder {

class AttentionPlans {
 public:
  // ResourceExhausted.
  absl::Status Allocate(const NetworkShape& shape, kernels::Backend& backend);
  // The plans of the context's microbatch; after DeviceInputs::Send and the tables' own SetInputs.
  void Prepare(const StepContext& context, const PositionTables& relative,
               const GlobalSlots& globals);

  // Sets shape, rows, keys, distances and plan of the attention call of `layer`, or of global
  // slots' own call.
  void SetInputsOfLayer(const NetworkShape& shape, int64_t layer,
                        kernels::AttentionInputs* in) const;
  void SetInputsOfGlobals(kernels::AttentionInputs* in) const;

  int64_t bytes() const { return storage_ == nullptr ? 0 : storage_->size_bytes(); }

 private:
  enum Arrangement { kAllRows, kQueryRows, kGlobalSlots, kArrangements };
  static Arrangement ArrangementOf(const NetworkShape& shape, int64_t layer);
  void SetInputs(Arrangement arrangement, kernels::AttentionInputs* in) const;

  std::array<bool, kArrangements> is_used_ = {};
  std::array<kernels::AttentionPlan, kArrangements> plans_;
  std::unique_ptr<kernels::Buffer> storage_;
};

}  // namespace anyorder
