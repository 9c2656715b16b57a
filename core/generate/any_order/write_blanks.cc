// WriteOptions' rules, and which method is whose.

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

#include "core/base/status.h"
#include "core/generate/any_order/methods.h"
#include "core/generate/any_order/open_network.h"
#include "core/generate/any_order/write_options.h"

namespace anyorder {
namespace {

bool IsIn(WriteMethod method, const WriteMethods& methods) {
  return std::find(methods.begin(), methods.end(), method) != methods.end();
}

// visit(key, value, default, bounds, methods) of each option; it has no effect with other methods.
template <typename Options, typename Visitor>
void VisitWithDefaults(Options& options, Visitor visit) {
  const WriteOptions usual;
  std::vector<const void*> defaults;
  auto note = [&](const char*, const auto& value, const auto&...) { defaults.push_back(&value); };
  WriteOptions::VisitFields(usual, note);
  auto next = defaults.begin();
  auto both = [&](const char* key, auto& value, const char*, const FieldBounds& bounds,
                  const WriteMethods& methods = {}) {
    using Value = std::remove_cvref_t<decltype(value)>;
    visit(key, value, *static_cast<const Value*>(*next++), bounds, methods);
  };
  WriteOptions::VisitFields(options, both);
}

// Options of the method that contradict one another, or of which one leaves another no effect.
void AddContradictions(const WriteOptions& options, FaultList* faults) {
  const WriteMethod method = options.method;
  const bool is_measured =
      options.confidence == Confidence::kProbability || options.confidence == Confidence::kMargin;
  faults->Require(
      method != WriteMethod::kThreshold || is_measured,
      absl::StrCat("method \"threshold\" compares a probability or a margin, not "
                   "confidence \"",
                   EnumName(options.confidence), "\"; choose one of these, or another method"));
  const bool has_surest = options.confidence != Confidence::kProbability ||
                          options.order_temperature > 0 || options.delay_end;
  faults->Require(method != WriteMethod::kDream || !options.origin || !has_surest,
                  "random-positions chooses which tokens are written, whatever their confidence; "
                  "leave out confidence, order-temperature and end-last");
  faults->Require(method != WriteMethod::kBlocks || options.steps == 0 || !options.delay_end,
                  "with steps, method \"bd3lm\" chooses at random which tokens are written; leave "
                  "out end-last");
  faults->Require(method != WriteMethod::kLlada || !options.literal || options.delay_end,
                  "with method \"llada\" literal has an effect on end-last only; add end-last, or "
                  "leave out literal");
  faults->Require(method != WriteMethod::kBurst || options.orders == 1 ||
                      (options.literal && options.Draft() == 0),
                  "orders above 1 need method \"burst\" with literal and without draft");
  const bool has_cache = options.cache != BlockCache::kNone;
  faults->Require(!has_cache || options.block_len > 0,
                  "a cache holds keys within a block; set block-length");
  faults->Require(!has_cache || !options.recompute,
                  "a cache keeps keys between passes, and recompute keeps none; leave out one");
}

absl::Status CheckMethod(const CanvasForm& form, const WriteOptions& options) {
  const WriteMethods methods = MethodsOf(form);
  if (!IsIn(options.method, methods)) {
    return InvalidArgument("method \"", EnumName(options.method),
                           "\" does not fit what this model has learned; choose ",
                           NamesOf(methods));
  }
  const bool is_masked = form.family == CanvasFamily::kMasked;
  if (options.cache != BlockCache::kNone && !is_masked) {
    return InvalidArgument("cache ", EnumName(options.cache),
                           " is for models of masked diffusion, which this is not; leave it out");
  }
  if (options.guidance > 0 && !is_masked) {
    return absl::InvalidArgumentError(
        "guidance is for models of masked diffusion, which this is not; leave it out");
  }
  if (form.family == CanvasFamily::kBlocks && options.block_len > 0 &&
      options.block_len != form.block_len) {
    return InvalidArgument("block-length is ", options.block_len,
                           ", but this model writes blocks of ", form.block_len,
                           " tokens (sampling.block_len); leave it out");
  }
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
  RETURN_IF_ERROR(check_size(banned));
  bool is_any_checked = false;
  for (int64_t i = 0; i < static_cast<int64_t>(canvas.tokens.size()); ++i) {
    const int32_t token = canvas.tokens[i];
    if (token != kBlank && (token < 0 || token >= vocab_size)) {
      return InvalidArgument("token ", token, " at position ", i, " is not in the vocabulary of ",
                             vocab_size);
    }
    const auto found = canvas.banned_at.find(i);
    const bool has_own = found != canvas.banned_at.end();
    if (has_own) RETURN_IF_ERROR(check_size(*found->second));
    if (token != kBlank || (!has_own && is_any_checked)) continue;
    RETURN_IF_ERROR(check_left(i, has_own ? found->second.get() : nullptr));
    is_any_checked = is_any_checked || !has_own;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<WrittenText>> WriteTogether(const WritingTask& task) {
  switch (task.options.method) {
    case WriteMethod::kEso:
    case WriteMethod::kGroups:
    case WriteMethod::kSequential: return WriteInOrder(task);
    case WriteMethod::kSpeculative:
    case WriteMethod::kBurst: return WriteSpeculatively(task);
    default: return UnmaskBlanks(task);
  }
}

constexpr int64_t kActivationBytes = int64_t{4} << 30;
constexpr int64_t kGuessBytes = int64_t{1} << 30;

}  // namespace

absl::Status WriteOptions::Validate() const {
  FaultList faults;
  VisitWithDefaults(*this, [&](const char* key, const auto& value, const auto& usual,
                               const FieldBounds& bounds, const WriteMethods& methods) {
    const std::string name = absl::StrReplaceAll(key, {{"_", "-"}});
    if constexpr (std::is_convertible_v<decltype(value), std::optional<double>>) {
      const std::optional<double> number = value;
      faults.Require(!number || bounds.Contain(*number),
                     absl::StrCat(name, " ", number.value_or(0), " must be ", bounds.ToText()));
    }
    faults.Require(methods.empty() || value == usual || IsIn(method, methods),
                   absl::StrCat(name, " has no effect with method \"", EnumName(method),
                                "\", only with ", NamesOf(methods), "; leave it out"));
  });
  if (faults.empty()) AddContradictions(*this, &faults);
  return faults.ToStatus();
}

void WriteOptions::ResetIdle() {
  VisitWithDefaults(*this, [this](const char*, auto& value, const auto& usual, const FieldBounds&,
                                  const WriteMethods& methods) {
    if (!methods.empty() && !IsIn(method, methods)) value = usual;
  });
}

std::string NamesOf(const WriteMethods& methods) {
  return absl::StrJoin(methods, ", ", [](std::string* out, WriteMethod method) {
    absl::StrAppend(out, EnumName(method));
  });
}

WriteMethods MethodsOf(const CanvasForm& form) {
  using enum WriteMethod;
  switch (form.family) {
    case CanvasFamily::kMasked:
      if (form.shifted) return {kDream, kLlada, kMdlm, kThreshold};
      return {kLlada, kDream, kMdlm, kThreshold};
    case CanvasFamily::kBlocks: return {kBlocks, kLlada, kDream, kMdlm, kThreshold};
    case CanvasFamily::kTwoStream:
      return {kSequential, kSpeculative, kGroups, kResample, kLlada, kDream, kThreshold};
    case CanvasFamily::kEso: return {kEso};
    case CanvasFamily::kPairs: return {kSequential, kSpeculative, kBurst};
    case CanvasFamily::kCausal: break;
  }
  return {};
}

absl::Status CheckCanWrite(const WritingModel& model, const std::vector<Canvas>& canvases,
                           const WriteOptions& options) {
  RETURN_IF_ERROR(options.Validate());
  RETURN_IF_ERROR(CheckMethod(model.form, options));
  for (const Canvas& canvas : canvases) {
    const auto length = static_cast<int64_t>(canvas.tokens.size());
    if (length == 0) return absl::InvalidArgumentError("the text has no place for a token");
    RETURN_IF_ERROR(CheckTokens(canvas, model.vocab_size, options));
    const bool has_given = std::ranges::count(canvas.tokens, kBlank) < length;
    const bool is_missing =
        model.form.family == CanvasFamily::kPairs ? !has_given : canvas.tokens[0] == kBlank;
    if (model.form.first_given && is_missing) {
      return absl::InvalidArgumentError(
          model.form.family == CanvasFamily::kPairs
              ? "all of the text is blank, but this model predicts tokens from at least one"
              : "the first token is blank, but this model has not learned to predict it");
    }
    if (model.model->learned_positions() && length > model.model->max_positions) {
      return OutOfRange("a text of ", length, " tokens, but the model has learned ",
                        model.model->max_positions, " positions (model.max_positions); shorten it");
    }
  }
  return absl::OkStatus();
}

int64_t TextsAtOnce(const WritingModel& model, const WriteOptions& options, int64_t length) {
  int64_t texts = std::max<int64_t>(1, kTokensAtOnce / length);
  const bool guesses =
      options.method == WriteMethod::kSpeculative || options.method == WriteMethod::kBurst;
  if (guesses && !options.literal) {
    const int64_t most = options.Draft() > 0 ? std::min(options.Draft(), length) : length;
    const int64_t bytes = most * model.vocab_size * static_cast<int64_t>(sizeof(double));
    texts = std::clamp<int64_t>(kGuessBytes / bytes, 1, texts);
  }
  return LanesOf(model, texts, length, kActivationBytes);
}

absl::StatusOr<std::vector<WrittenText>> WriteBlanks(const WritingModel& model,
                                                     const std::vector<Canvas>& canvases,
                                                     const WriteOptions& options,
                                                     TokenListener listener, PassCheck check) {
  RETURN_IF_ERROR(CheckCanWrite(model, canvases, options));
  std::vector<WrittenText> written;
  if (canvases.empty()) return written;
  const auto num_texts = static_cast<int64_t>(canvases.size());
  const int64_t at_once = TextsAtOnce(model, options, LongestOf(canvases));
  for (int64_t begin = 0; begin < num_texts; begin += at_once) {
    const std::vector<Canvas> group(canvases.begin() + begin,
                                    canvases.begin() + std::min(num_texts, begin + at_once));
    ASSIGN_OR_RETURN(
        std::vector<WrittenText> texts,
        WriteTogether(
            {model, group, options,
             [&](int64_t text, const WrittenToken& token) { listener(begin + text, token); },
             [&](int64_t text, bool is_done) { return check(begin + text, is_done); }}));
    std::move(texts.begin(), texts.end(), std::back_inserter(written));
  }
  return written;
}

}  // namespace anyorder
