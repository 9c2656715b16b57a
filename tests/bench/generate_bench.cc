// Generation with cached keys beside recomputing the text for every token: tokens per second of
// both, and their ratio.
//
//   generate_bench [--layers L] [--dim D] [--lanes B] [--prompt P] [--tokens N] [--dtype fp32|bf16]
//   [--threads T] [--form causal|cloze] [--method NAME --family NAME] [--steps N] [--block B]
//   [--draft K] [--cache none|prefix|dual]
//
// A GPT of random weights (heads of 64, feed-forward 4 D, vocabulary 32,000) reads P tokens a lane
// and generates N. Cached: the steps of core/generate's Decoder, its prompt apart. Recomputed: one
// forward pass over the whole text so far and one row of logits a lane, at every 16th length, which
// stands for 16 of them. Search is in neither. Prints one JSON object.
//
// With --method: whole texts by that method of `anyorder generate`, choosing tokens included, of a
// network of a family (masked, blocks, two-stream, eso, pairs; causal for left-to-right), with kept
// keys and without, and passes a token. Greedy, so that draws cost nothing.

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"

#include "core/base/status.h"
#include "core/generate/any_order/write_options.h"
#include "core/generate/decoder.h"
#include "core/generate/sampling.h"
#include "core/network/tensors/parameters.h"
#include "kernels/backend.h"
#include "tests/bench/options.h"
#include "tests/testing/acts_on.h"
#include "tests/testing/sample_texts.h"

namespace anyorder::bench {
namespace {

constexpr int64_t kVocab = 32000;
constexpr int64_t kEvery = 16;
constexpr GenerationTokens kTokens{
    .classifier = 3, .separator = 4, .mask = 6, .end_of_document = 7};

struct Options {
  int64_t layers = 4;
  int64_t dim = 256;
  int64_t lanes = 8;
  int64_t prompt = 64;
  int64_t tokens = 64;
  int64_t threads = 1;
  std::string dtype = "fp32";
  std::string form = "causal";
  // Of --method.
  std::string method;
  std::string family = "causal";
  std::string cache = "none";
  int64_t steps = 0;
  int64_t block = 8;
  int64_t draft = 5;
};

struct Subject {
  Options options;
  ModelConfig model;
  std::unique_ptr<kernels::Backend> backend;
  std::unique_ptr<kernels::Buffer> storage;
  ConstTensorView weights;
  std::unique_ptr<GenerationForm> form;
};

absl::StatusOr<Subject> MakeSubject(const Options& options) {
  Subject subject;
  subject.options = options;
  ModelConfig& model = subject.model;
  model.num_layers = options.layers;
  model.model_dim = options.dim;
  model.head_dim = 64;
  model.num_heads = options.dim / model.head_dim;
  model.ffn_dim = 4 * options.dim;
  model.positions = options.family == "pairs" ? Positions::kLearnedPairs : Positions::kLearned;
  model.max_positions = options.prompt + options.tokens + 2;
  model.segments = options.form == "cloze" ? Segments::kLearned : Segments::kNone;
  model.attention_biases = true;
  model.mem_len = 0;
  model.dtype = options.dtype == "bf16" ? ComputeType::kBFloat16 : ComputeType::kFloat32;
  RETURN_IF_ERROR(model.Validate().ToStatus());
  ASSIGN_OR_RETURN(subject.backend,
                   kernels::MakeCpuBackend({.num_threads = static_cast<int>(options.threads)}));
  const ParameterLayout layout(model, kVocab);
  const int64_t elements = layout.num_elements();
  std::vector<float> values(static_cast<size_t>(elements));
  InitializeParameters(layout, model, 1, 0, elements, values.data());
  const DType dtype = ToDType(model.dtype);
  ASSIGN_OR_RETURN(subject.storage, subject.backend->Allocate(elements * SizeOf(dtype)));
  const TensorView weights(subject.storage->data(), dtype, {elements});
  subject.backend->Cast(ConstTensorView(values.data(), {elements}), weights, {});
  subject.weights = weights;
  subject.form = options.form == "cloze" ? MakeClozeGeneration({kTokens, kTokens.mask, 0, 1})
                                         : MakeCausalGeneration(kTokens, 0);
  return subject;
}

struct Cached {
  double prompt_seconds = 0;
  double seconds = 0;  // of the steps
};

absl::StatusOr<Cached> RunCached(const Subject& subject) {
  const Options& options = subject.options;
  // Prompts differ, so that each is computed.
  std::vector<Prompt> prompts(
      static_cast<size_t>(options.lanes),
      {std::vector<int32_t>(static_cast<size_t>(options.prompt), 11), options.tokens});
  for (size_t n = 0; n < prompts.size(); ++n) prompts[n].tokens[0] += static_cast<int32_t>(n);
  Cached cached;
  absl::StatusOr<std::unique_ptr<Decoder>> decoder;
  cached.prompt_seconds = SecondsOf([&] {
    decoder = Decoder::Create(subject.model, kVocab, subject.weights, *subject.form, prompts,
                              *subject.backend);
  });
  RETURN_IF_ERROR(decoder.status());
  const std::vector<int32_t> newest(static_cast<size_t>(options.lanes), 12);
  std::vector<int32_t> own(newest.size());
  std::iota(own.begin(), own.end(), 0);
  absl::Status status;
  const auto step = [&] {
    status.Update((*decoder)->Next(newest, own));
    for (int64_t lane = 0; lane < options.lanes && status.ok(); ++lane)
      status.Update((*decoder)->Logits(lane).status());
  };
  step();  // which compiles the products of this shape
  const double rest = SecondsOf([&] {
    for (int64_t t = 1; t < options.tokens; ++t) step();
  });
  RETURN_IF_ERROR(status);
  cached.seconds =
      rest * static_cast<double>(options.tokens) / static_cast<double>(options.tokens - 1);
  return cached;
}

// One pass over `length` slots a lane.
absl::StatusOr<double> PassSeconds(const Subject& subject, int64_t length) {
  BatchShape shape = {.batch_size = subject.options.lanes,
                      .content_rows = length,
                      .targets = 1,
                      .num_distances = length,
                      .content_readout = true};
  Batch batch(shape);
  for (int64_t row = 0; row < shape.num_rows(); ++row) {
    const auto slot = static_cast<int32_t>(row % length);
    const bool is_source = subject.options.form == "cloze" && slot < subject.options.prompt;
    batch.tokens[row] = 12;
    batch.row_pos[row] = batch.key_pos[row] = slot;
    batch.row_lim[row] = batch.key_key[row] = is_source ? 0 : slot;
  }
  for (int64_t b = 0; b < shape.batch_size; ++b)
    batch.readout_rows[b] = static_cast<int32_t>((b + 1) * length - 1);
  ASSIGN_OR_RETURN(const std::unique_ptr<InferenceNetwork> network,
                   InferenceNetwork::Create({subject.model, shape, kVocab}, *subject.backend));
  std::vector<float> logits(static_cast<size_t>(shape.batch_size * kVocab));
  const TensorView view(logits.data(), {shape.batch_size, kVocab});
  double seconds = 0;
  for (int i = 0; i < 2; ++i) {  // the first compiles the products
    seconds = SecondsOf([&] {
      network->Run(batch, subject.weights, nullptr);
      network->ReadLogits(batch, view);
    });
  }
  return seconds;
}

template <typename Enum>
absl::StatusOr<Enum> Named(const std::string& name, const auto& names) {
  for (const auto& [value, spelling] : names)
    if (name == spelling) return value;
  return InvalidArgument("'", name, "' is unknown");
}

constexpr auto kFamilies =
    std::to_array<std::pair<CanvasFamily, const char*>>({{CanvasFamily::kMasked, "masked"},
                                                         {CanvasFamily::kBlocks, "blocks"},
                                                         {CanvasFamily::kTwoStream, "two-stream"},
                                                         {CanvasFamily::kEso, "eso"},
                                                         {CanvasFamily::kPairs, "pairs"},
                                                         {CanvasFamily::kCausal, "causal"}});

struct Written {
  double seconds = 0;
  double passes = 0;  // a token
};

// The texts of left-to-right: greedy search of each lane for itself.
absl::StatusOr<Written> SearchGreedily(const Subject& subject,
                                       const std::vector<std::vector<int32_t>>& prompts) {
  const Options& options = subject.options;
  SampleOptions sample{.cuts = {.temperature = 0}};
  sample.rules = {.end_token = kTokens.end_of_document,
                  .min_tokens = options.tokens - 1,
                  .max_tokens = options.tokens};
  absl::Status status;
  Written written{.passes = 1};
  written.seconds = SecondsOf([&] {
    std::vector<Prompt> texts;
    // They differ, so that each is computed.
    for (const std::vector<int32_t>& prompt : prompts) {
      texts.push_back({prompt, options.tokens});
      texts.back().tokens[0] += static_cast<int32_t>(texts.size());
    }
    absl::StatusOr<std::unique_ptr<Decoder>> decoder = Decoder::Create(
        subject.model, kVocab, subject.weights, *subject.form, texts, *subject.backend);
    status = decoder.status();
    if (!status.ok()) return;
    const std::vector<uint64_t> streams(prompts.size(), 0);
    status = testing::SampleTexts(**decoder, sample, streams).status();
  });
  RETURN_IF_ERROR(status);
  return written;
}

absl::StatusOr<Written> WriteTexts(const Subject& subject, const WriteOptions& write,
                                   CanvasFamily family) {
  const Options& options = subject.options;
  std::vector<int32_t> prompt(static_cast<size_t>(options.prompt));
  std::iota(prompt.begin(), prompt.end(), 11);
  const std::vector<std::vector<int32_t>> prompts(static_cast<size_t>(options.lanes), prompt);
  if (write.method == WriteMethod::kLeftToRight) return SearchGreedily(subject, prompts);
  const WritingModel model{.model = &subject.model,
                           .vocab_size = kVocab,
                           .weights = subject.weights,
                           .form = {.family = family,
                                    .seq_len = options.prompt + options.tokens,
                                    .block_len = options.block,
                                    .mask_token = kTokens.mask,
                                    .end_token = kTokens.end_of_document,
                                    .eso = {.diffusion_share = 0.5}},
                           .backend = subject.backend.get()};
  std::vector<Canvas> canvases(prompts.size(), Canvas{prompt});
  for (Canvas& canvas : canvases)
    canvas.tokens.resize(static_cast<size_t>(options.prompt + options.tokens), kBlank);
  absl::StatusOr<std::vector<WrittenText>> texts;
  Written written;
  written.seconds = SecondsOf([&] { texts = WriteBlanks(model, canvases, write, NobodyListens); });
  RETURN_IF_ERROR(texts.status());
  written.passes = static_cast<double>(texts->front().passes) / static_cast<double>(options.tokens);
  return written;
}

// Both ways, after a first time that compiles products of these shapes.
absl::Status BenchMethod(const Subject& subject) {
  const Options& options = subject.options;
  WriteOptions write{.steps = options.steps};
  write.draw.cuts.temperature = 0;
  write.draw.banned.assign(kVocab, 0);
  write.draw.banned[kTokens.mask] = 1;
  ASSIGN_OR_RETURN(write.method, Named<WriteMethod>(options.method, kEnumNames<WriteMethod>));
  ASSIGN_OR_RETURN(write.cache, Named<BlockCache>(options.cache, kEnumNames<BlockCache>));
  ASSIGN_OR_RETURN(const CanvasFamily family, Named<CanvasFamily>(options.family, kFamilies));
  if (family == CanvasFamily::kMasked) write.block_len = options.block;
  if (ActsOn("draft", write.method)) write.draft = options.draft;
  const auto generated = static_cast<double>(options.lanes * options.tokens);
  double speeds[2] = {0, 0};
  double passes = 0;
  for (const bool recompute : {false, true}) {
    // RunBench without --method recomputes what is written from left to right.
    if (recompute && !ActsOn("recompute", write.method)) continue;
    write.recompute = recompute;
    if (recompute) write.cache = BlockCache::kNone;
    for (int round = 0; round < 2; ++round) {
      ASSIGN_OR_RETURN(const Written written, WriteTexts(subject, write, family));
      speeds[recompute ? 1 : 0] = generated / written.seconds;
      if (!recompute) passes = written.passes;
    }
  }
  absl::PrintF(
      "{\"method\": \"%s\", \"family\": \"%s\", \"cache\": \"%s\", \"layers\": %d, \"dim\": %d, "
      "\"dtype\": \"%s\", \"threads\": %d, \"lanes\": %d, \"prompt\": %d, \"tokens\": %d, "
      "\"passes_per_token\": %.3f, \"tokens_per_second\": %.1f, "
      "\"recomputed_tokens_per_second\": %.1f, \"peak_rss_mib\": %.0f}\n",
      options.method, options.family, options.cache, options.layers, options.dim, options.dtype,
      options.threads, options.lanes, options.prompt, options.tokens, passes, speeds[0], speeds[1],
      PeakRssMib());
  return absl::OkStatus();
}

absl::Status RunBench(int argc, char** argv) {
  Options options;
  RETURN_IF_ERROR(ParseOptions(argc, argv,
                               {{"--layers", &options.layers, 1},
                                {"--dim", &options.dim, 1},
                                {"--lanes", &options.lanes, 1},
                                {"--prompt", &options.prompt, 1},
                                {"--tokens", &options.tokens, 1},
                                {"--threads", &options.threads, 1},
                                {"--dtype", &options.dtype},
                                {"--form", &options.form},
                                {"--method", &options.method},
                                {"--family", &options.family},
                                {"--cache", &options.cache},
                                {"--steps", &options.steps},
                                {"--block", &options.block, 1},
                                {"--draft", &options.draft}}));
  ASSIGN_OR_RETURN(const Subject subject, MakeSubject(options));
  if (!options.method.empty()) return BenchMethod(subject);
  ASSIGN_OR_RETURN(const Cached cached, RunCached(subject));
  double recomputed = 0;
  for (int64_t t = kEvery / 2; t < options.tokens; t += kEvery) {
    ASSIGN_OR_RETURN(const double seconds, PassSeconds(subject, options.prompt + t));
    recomputed += static_cast<double>(kEvery) * seconds;
  }
  const auto generated = static_cast<double>(options.lanes * options.tokens);
  absl::PrintF(
      "{\"form\": \"%s\", \"layers\": %d, \"dim\": %d, \"dtype\": \"%s\", \"threads\": %d, "
      "\"lanes\": %d, \"prompt\": %d, \"tokens\": %d, \"prompt_ms\": %.1f, "
      "\"cached_tokens_per_second\": %.0f, \"recomputed_tokens_per_second\": %.1f, "
      "\"ratio\": %.1f}\n",
      options.form, options.layers, options.dim, options.dtype, options.threads, options.lanes,
      options.prompt, options.tokens, 1e3 * cached.prompt_seconds, generated / cached.seconds,
      generated / recomputed, recomputed / cached.seconds);
  return absl::OkStatus();
}

}  // namespace
}  // namespace anyorder::bench

int main(int argc, char** argv) {
  return anyorder::ReportAndExitStatus("generate_bench", anyorder::bench::RunBench(argc, argv));
}
