// WriteOptions' rules, and which method is whose.

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "core/base/status.h"
#include "core/generate/any_order/in_order.h"
#include "core/generate/any_order/speculative.h"
#include "core/generate/any_order/unmask.h"
#include "core/generate/any_order/write_options.h"

namespace anyorder {
namespace {

bool IsIn(WriteMethod method, const std::vector<WriteMethod>& methods) {
  return std::find(methods.begin(), methods.end(), method) != methods.end();
}

absl::Status CheckMethod(const CanvasForm& form, const WriteOptions& options) {
  const std::vector<WriteMethod> methods = MethodsOf(form);
  if (!IsIn(options.method, methods)) {
    return InvalidArgument("method \"", EnumName(options.method),
                           "\" does not fit what this model has learned; choose ",
                           absl::StrJoin(methods, ", ", [](std::string* out, WriteMethod method) {
                             absl::StrAppend(out, "\"", EnumName(method), "\"");
                           }));
  }
  if (options.cache != BlockCache::kNone && form.family != CanvasFamily::kMasked) {
    return InvalidArgument(
        "cache \"", EnumName(options.cache), "\" is for masked diffusion; this model ",
        form.has_final_keys() ? "keeps its keys exactly without it" : "cannot use it",
        ": leave it out");
  }
  if (form.family == CanvasFamily::kBlocks && options.block_len > 0 &&
      options.block_len != form.block_len) {
    return InvalidArgument("block length ", options.block_len, ", but this model writes blocks of ",
                           form.block_len, " tokens (sampling.block_len); leave it out");
  }
  if (options.guidance > 0 && form.family != CanvasFamily::kMasked)
    return absl::InvalidArgumentError("guidance is for masked diffusion; leave it out");
  return absl::OkStatus();
}

// Tokens must be in the vocabulary, and each blank have a token that may stand there.
absl::Status CheckTokens(const Canvas& canvas, int64_t vocab_size, const WriteOptions& options) {
  const std::vector<uint8_t>& banned = options.draw.banned;
  const auto check_size = [vocab_size](const std::vector<uint8_t>& list) -> absl::Status {
    if (list.empty() || static_cast<int64_t>(list.size()) == vocab_size) return absl::OkStatus();
    return InvalidArgument("a list of banned tokens has ", list.size(), " entries for ", vocab_size,
                           " tokens");
  };
  const auto check_left = [&](int64_t position, const std::vector<uint8_t>* here) -> absl::Status {
    for (int64_t token = 0; token < vocab_size; ++token) {
      const bool is_banned = !banned.empty() && banned[token] != 0;
      if (!is_banned && (here == nullptr || (*here)[token] == 0)) return absl::OkStatus();
    }
    return InvalidArgument("all tokens are banned at position ", position,
                           "; allow at least one of them");
  };
  ANYORDER_RETURN_IF_ERROR(check_size(banned));
  bool is_any_checked = false;
  for (int64_t i = 0; i < static_cast<int64_t>(canvas.tokens.size()); ++i) {
    const int32_t token = canvas.tokens[i];
    if (token != kBlank && (token < 0 || token >= vocab_size)) {
      return InvalidArgument("token ", token, " at position ", i, " is not in the vocabulary of ",
                             vocab_size);
    }
    const auto found = canvas.banned_at.find(i);
    const bool has_own = found != canvas.banned_at.end();
    if (has_own) ANYORDER_RETURN_IF_ERROR(check_size(*found->second));
    if (token != kBlank || (!has_own && is_any_checked)) continue;
    ANYORDER_RETURN_IF_ERROR(check_left(i, has_own ? found->second.get() : nullptr));
    is_any_checked = is_any_checked || !has_own;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteOptions::Validate() const {
  FaultList faults;
  draw.cuts.AddFaults(&faults);
  const auto at_least = [&faults](const char* name, int64_t value, int64_t least) {
    faults.Require(value >= least, absl::StrCat(name, " ", value, " must be at least ", least));
  };
  at_least("steps", steps, 0);
  at_least("block length", block_len, 0);
  at_least("group length", group_len, 1);
  at_least("draft", draft, 0);
  at_least("orders", orders, 1);
  const auto in = [&faults](const char* name, double value, double least, double most) {
    faults.Require(value >= least && value <= most,
                   absl::StrCat(name, " ", value, " must be in [", least, ", ", most, "]"));
  };
  in("guidance", guidance, 0, 1e3);
  in("threshold", threshold, 0, 1);
  in("order temperature", order_temperature, 0, 1e6);
  faults.Require(
      method != WriteMethod::kThreshold || order_temperature == 0,
      "an order temperature draws positions, but method \"threshold\" takes all that are "
      "sure; leave it out");
  faults.Require(cache == BlockCache::kNone || block_len > 0,
                 "a cache is kept for a block; set a block length");
  faults.Require(
      orders == 1 || (method == WriteMethod::kBurst && literal && draft == 0),
      "several orders are of method \"burst\" as released, which guesses all blanks: add "
      "the literal switch, and draft 0");
  return faults.ToStatus();
}

std::vector<WriteMethod> MethodsOf(const CanvasForm& form) {
  switch (form.family) {
    case CanvasFamily::kMasked:
      if (form.shifted)
        return {WriteMethod::kDream, WriteMethod::kLlada, WriteMethod::kMdlm,
                WriteMethod::kThreshold};
      return {WriteMethod::kLlada, WriteMethod::kDream, WriteMethod::kMdlm,
              WriteMethod::kThreshold};
    case CanvasFamily::kBlocks:
      return {WriteMethod::kBlocks, WriteMethod::kLlada, WriteMethod::kDream, WriteMethod::kMdlm,
              WriteMethod::kThreshold};
    case CanvasFamily::kTwoStream:
      return {WriteMethod::kSequential, WriteMethod::kSpeculative, WriteMethod::kGroups,
              WriteMethod::kResample,   WriteMethod::kLlada,       WriteMethod::kDream,
              WriteMethod::kThreshold};
    case CanvasFamily::kEso: return {WriteMethod::kEso};
    case CanvasFamily::kPairs:
      return {WriteMethod::kSequential, WriteMethod::kSpeculative, WriteMethod::kBurst};
    case CanvasFamily::kCausal: break;
  }
  return {};
}

absl::Status CheckCanWrite(const WritingModel& model, const std::vector<Canvas>& canvases,
                           const WriteOptions& options) {
  ANYORDER_RETURN_IF_ERROR(options.Validate());
  ANYORDER_RETURN_IF_ERROR(CheckMethod(model.form, options));
  for (const Canvas& canvas : canvases) {
    const auto length = static_cast<int64_t>(canvas.tokens.size());
    if (length == 0) return absl::InvalidArgumentError("the text has no place for a token");
    ANYORDER_RETURN_IF_ERROR(CheckTokens(canvas, model.vocab_size, options));
    const bool has_given = std::any_of(canvas.tokens.begin(), canvas.tokens.end(),
                                       [](int32_t token) { return token != kBlank; });
    const bool is_missing =
        model.form.family == CanvasFamily::kPairs ? !has_given : canvas.tokens[0] == kBlank;
    if (model.form.first_given && is_missing) {
      return absl::InvalidArgumentError(
          model.form.family == CanvasFamily::kPairs
              ? "all of the text is blank, but this model predicts tokens from at least one"
              : "the first token is blank, but this model has not learned to predict it");
    }
    if (model.model->learned_positions() && length > model.model->max_positions) {
      return InvalidArgument("a text of ", length, " tokens, but the model has learned ",
                             model.model->max_positions,
                             " positions (model.max_positions); shorten it");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<WrittenText>> WriteBlanks(const WritingModel& model,
                                                     const std::vector<Canvas>& canvases,
                                                     const WriteOptions& options,
                                                     TokenListener listener) {
  ANYORDER_RETURN_IF_ERROR(CheckCanWrite(model, canvases, options));
  if (canvases.empty()) return std::vector<WrittenText>();
  switch (options.method) {
    case WriteMethod::kEso:
    case WriteMethod::kGroups:
    case WriteMethod::kSequential: return WriteInOrder(model, canvases, options, listener);
    case WriteMethod::kSpeculative:
    case WriteMethod::kBurst: return WriteSpeculatively(model, canvases, options, listener);
    default: return UnmaskBlanks(model, canvases, options, listener);
  }
}

}  // namespace anyorder
