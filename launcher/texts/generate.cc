// `anyorder generate`: text from a checkpoint.

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

#include "core/base/log.h"
#include "core/base/status.h"
#include "core/generate/beam_search.h"
#include "core/generate/decoder.h"
#include "launcher/inference/prompts.h"
#include "launcher/process/command_line.h"
#include "launcher/process/counted.h"
#include "launcher/process/openmp_spin.h"
#include "launcher/texts/json_lines.h"
#include "launcher/texts/model_text_service.h"
#include "launcher/texts/stream_view.h"
#include "launcher/texts/trace_file.h"
#include "launcher/texts/write_flags.h"

namespace anyorder::launcher {
namespace {

using Tokens = std::vector<int32_t>;

struct GenerateOptions : TextModelOptions {
  std::string input;   // prompts (prompts.h)
  std::string output;  // .jsonl to make, "-": standard output, "": none, with `streams`
  std::string trace;   // file of traces to make, or ""
  bool streams = false;

  BeamOptions beams{.width = 5};
  int64_t best = 1;  // texts a prompt that are written, at most
  bool stop_first = false;
  // Not beam search: so many drawn texts a prompt; absent: 1, if there is a method.
  std::optional<int64_t> samples;
  WriteFlags write;
  bool no_end = false;
  bool has_beam_options = false;  // said on the command line
  bool has_draw_options = false;
  TokenRules rules;
  int64_t max_tokens = 0;  // of a text, the end token included; 0: CompletionRequest's
  int64_t batch = 8;       // prompts at once
};

CompletionRequest RequestOf(const GenerateOptions& options, const WriteOptions& write,
                            const std::string& prompt, int64_t number) {
  CompletionRequest request{.prompt = prompt,
                            .max_tokens = options.max_tokens,
                            .min_tokens = options.rules.min_tokens,
                            .block_ngram = options.rules.block_ngram,
                            .samples = options.samples.value_or(1),
                            .write = write};
  request.first_stream = static_cast<uint64_t>((number - 1) * request.samples);
  if (options.no_end) request.min_tokens = kMostTokens;
  return request;
}

// What the options say of beam search, and no piece that is not text. Without max_tokens, which are
// a prompt's own.
BeamOptions BeamsOf(const GenerateOptions& options, const ModelTextService& service) {
  BeamOptions beams = options.beams;
  beams.rules = options.rules;
  beams.rules.never_ends = options.no_end;
  beams.rules.end_token = service.left_to_right()->traits().end_token;
  beams.rules.banned = service.non_text();
  if (options.stop_first) beams.stop = SearchStop::kFirst;
  return beams;
}

// How many tokens may follow each prompt.
absl::StatusOr<std::vector<int64_t>> MostTokens(const CompletionRequest& request,
                                                const ModelTextService& service,
                                                const std::vector<Tokens>& prompts) {
  std::vector<int64_t> most;
  for (Tokens prompt : prompts) {
    const absl::StatusOr<int64_t> tokens = service.MaxTokens(request, &prompt);
    ANYORDER_RETURN_IF_ERROR(Annotate(tokens.status(), absl::StrCat("prompt ", most.size() + 1)));
    most.push_back(*tokens);
  }
  return most;
}

// What is written of a prompt's texts.
absl::Status WriteLine(const std::string& prompt, int64_t number, int64_t rank,
                       const nlohmann::ordered_json& text, JsonLines& output) {
  nlohmann::ordered_json line{{"prompt", number}, {"rank", rank}, {"input", prompt}};
  line.update(text);
  return output.Write(line);
}

// One prompt after the other, by beam search: at once up to `batch` whose texts may be equally
// long.
absl::Status SearchTexts(const GenerateOptions& options, const WriteOptions& write,
                         const ModelTextService& service, const std::vector<std::string>& prompts,
                         JsonLines& output) {
  ANYORDER_ASSIGN_OR_RETURN(const std::vector<Tokens> tokens,
                            service.Encode(prompts, "encoding the prompts"));
  BeamOptions beams = BeamsOf(options, service);
  const CompletionRequest request = RequestOf(options, write, /*prompt=*/"", /*number=*/1);
  ANYORDER_ASSIGN_OR_RETURN(const std::vector<int64_t> most, MostTokens(request, service, tokens));
  for (size_t n = 0; n < most.size(); ++n) {
    beams.rules.max_tokens = most[n];
    ANYORDER_RETURN_IF_ERROR(Annotate(beams.Validate(), absl::StrCat("prompt ", n + 1)));
  }
  const TextModel& model = service.model();
  const auto num_prompts = static_cast<int64_t>(tokens.size());
  int64_t end = 0;
  for (int64_t begin = 0; begin < num_prompts; begin = end) {
    beams.rules.max_tokens = most[begin];
    const int64_t last = std::min(num_prompts, begin + options.batch);
    while (end < last && most[end] == most[begin]) ++end;
    ANYORDER_ASSIGN_OR_RETURN(
        const std::unique_ptr<Decoder> decoder,
        Decoder::Create(model.config.model, model.vocabulary.size(), model.weights.values,
                        *service.left_to_right(), {tokens.begin() + begin, tokens.begin() + end},
                        {beams.width, beams.rules.max_tokens}, *model.backend));
    ANYORDER_ASSIGN_OR_RETURN(const std::vector<std::vector<Hypothesis>> found,
                              BeamSearch(*decoder, beams));
    for (int64_t n = begin; n < end; ++n) {
      int64_t rank = 0;
      for (const Hypothesis& text : found[n - begin]) {
        if (++rank > options.best) break;
        const std::string words = service.WordsBehind(prompts[n], text.tokens);
        ANYORDER_RETURN_IF_ERROR(WriteLine(prompts[n], n + 1, rank,
                                           {{"text", words},
                                            {"score", text.score},
                                            {"log_prob", text.log_prob},
                                            {"tokens", text.length()},
                                            {"ended", text.ended}},
                                           output));
      }
    }
  }
  return absl::OkStatus();
}

// What drawn texts are written to.
struct DrawnFiles {
  JsonLines texts;
  JsonLines traces;
};

absl::Status WriteDrawn(const std::string& prompt, int64_t number, int64_t rank,
                        const WriteOptions& write, const Completion& text, DrawnFiles& files) {
  ANYORDER_RETURN_IF_ERROR(WriteLine(prompt, number, rank,
                                     {{"text", text.text},
                                      {"score", text.log_prob},
                                      {"log_prob", text.log_prob},
                                      {"tokens", text.tokens},
                                      {"ended", text.ended},
                                      {"passes", text.passes}},
                                     files.texts));
  return files.traces.WriteText(TraceLine(TraceOf(number, rank, EnumName(write.method), text)));
}

// The same by a method that draws.
absl::Status DrawTexts(const GenerateOptions& options, const WriteOptions& write,
                       ModelTextService& service, const std::vector<std::string>& prompts,
                       DrawnFiles& files) {
  const auto num_prompts = static_cast<int64_t>(prompts.size());
  // A prompt that does not fit is told by its number, before any text is written.
  ANYORDER_ASSIGN_OR_RETURN(const std::vector<Tokens> tokens,
                            service.Encode(prompts, "encoding the prompts"));
  const CompletionRequest any = RequestOf(options, write, /*prompt=*/"", /*number=*/1);
  ANYORDER_RETURN_IF_ERROR(MostTokens(any, service, tokens).status());
  for (int64_t begin = 0; begin < num_prompts; begin += options.batch) {
    const int64_t end = std::min(num_prompts, begin + options.batch);
    std::vector<CompletionRequest> requests;
    for (int64_t n = begin; n < end; ++n)
      requests.push_back(RequestOf(options, write, prompts[n], n + 1));
    ANYORDER_ASSIGN_OR_RETURN(const std::vector<std::vector<Completion>> found,
                              service.Complete(requests));
    for (int64_t n = begin; n < end; ++n) {
      int64_t rank = 0;
      for (const Completion& text : found[n - begin])
        ANYORDER_RETURN_IF_ERROR(WriteDrawn(prompts[n], n + 1, ++rank, write, text, files));
    }
  }
  return absl::OkStatus();
}

// The same, one text after the other, shown while they are written.
absl::Status StreamTexts(const GenerateOptions& options, const WriteOptions& write,
                         ModelTextService& service, const std::vector<std::string>& prompts,
                         DrawnFiles& files) {
  for (size_t n = 0; n < prompts.size(); ++n) {
    const auto number = static_cast<int64_t>(n) + 1;
    CompletionRequest request = RequestOf(options, write, prompts[n], number);
    const int64_t samples = std::exchange(request.samples, 1);
    ANYORDER_ASSIGN_OR_RETURN(std::vector<Tokens> tokens,
                              service.Encode({prompts[n]}, "encoding the prompts"));
    const auto given = static_cast<int64_t>(tokens[0].size());
    const absl::StatusOr<int64_t> most = service.MaxTokens(request, &tokens[0]);
    ANYORDER_RETURN_IF_ERROR(Annotate(most.status(), absl::StrCat("prompt ", number)));
    for (int64_t rank = 1; rank <= samples; ++rank, ++request.first_stream) {
      StreamOptions shown = StreamToStandardOutput();
      shown.left_to_right = write.method == WriteMethod::kLeftToRight;
      shown.prompt = prompts[n];
      shown.first = std::max<int64_t>(1, given);
      shown.length = *most;
      StreamView view(shown);
      request.listener = [&view](int64_t, const ShownToken& token) { view.Add(token); };
      ANYORDER_ASSIGN_OR_RETURN(const std::vector<std::vector<Completion>> found,
                                service.Complete({request}));
      view.Finish(found[0][0].text);
      ANYORDER_RETURN_IF_ERROR(WriteDrawn(prompts[n], number, rank, write, found[0][0], files));
    }
  }
  return absl::OkStatus();
}

absl::Status Draw(const GenerateOptions& options, const WriteOptions& write,
                  ModelTextService& service, const std::vector<std::string>& prompts,
                  DrawnFiles& files) {
  if (write.cache != BlockCache::kNone) {
    Log(absl::StrCat("cache \"", EnumName(write.cache),
                     "\" is approximate: texts can differ from those without it"));
  }
  return options.streams ? StreamTexts(options, write, service, prompts, files)
                         : DrawTexts(options, write, service, prompts, files);
}

// Writes one JSON object a text: prompt (its number, from 1), rank (from 1), input, text, score,
// log_prob, tokens, ended and, of drawn texts, passes of the network. The file must not be there
// yet; texts of finished prompts stay in it if something fails later.
// Errors: InvalidArgument for options that do not fit one another, the model or a prompt;
// AlreadyExists; FailedPrecondition for a run whose objective writes no text, another vocabulary,
// or unreadable prompts; NotFound, DataLoss.
absl::Status Generate(const GenerateOptions& options) {
  SetLogName("generate");
  if (options.output.empty() && !options.streams)
    return absl::InvalidArgumentError("--output is required, or --stream");
  if (options.output == "-" && options.streams) {
    return absl::InvalidArgumentError(
        "--stream shows texts on standard output; leave out --output, or name a file");
  }
  ANYORDER_ASSIGN_OR_RETURN(const std::vector<std::string> prompts, ReadPrompts(options.input));
  ANYORDER_ASSIGN_OR_RETURN(const std::unique_ptr<ModelTextService> service,
                            ModelTextService::Open(options));
  const bool draws = options.samples || !options.write.method.empty() || options.streams ||
                     !options.trace.empty() || service->left_to_right() == nullptr;
  if (draws && options.has_beam_options) {
    return absl::InvalidArgumentError(
        "--beam, --best, --length-penalty and --stop-first have an effect with beam search only, "
        "which this model or --sample, --method, --trace or --stream rules out; leave them out");
  }
  if (!draws && options.has_draw_options) {
    return absl::InvalidArgumentError(
        "--temperature, --top-k, --top-p and --seed are of sampling, but this is beam search; add "
        "--sample 1");
  }
  // Of beam search, too: it writes from left to right.
  ANYORDER_ASSIGN_OR_RETURN(const WriteOptions write, OptionsOf(options.write, service->facts()));
  ANYORDER_RETURN_IF_ERROR(service->CheckWrite(write));
  ANYORDER_ASSIGN_OR_RETURN(JsonLines texts, JsonLines::Open(options.output));
  ANYORDER_ASSIGN_OR_RETURN(JsonLines traces, JsonLines::Open(options.trace, "--trace"));
  DrawnFiles files{std::move(texts), std::move(traces)};
  ANYORDER_RETURN_IF_ERROR(draws ? Draw(options, write, *service, prompts, files)
                                 : SearchTexts(options, write, *service, prompts, files.texts));
  ANYORDER_RETURN_IF_ERROR(files.texts.Close());
  ANYORDER_RETURN_IF_ERROR(files.traces.Close());
  if (options.output != "-" && !options.output.empty()) {
    Log(absl::StrCat(options.output, ": texts for ",
                     Counted(static_cast<int64_t>(prompts.size()), "prompt")));
  }
  return absl::OkStatus();
}

// How texts are chosen: beam search, or sampling with --sample or --method.
void DeclareChoice(CLI::App* command, GenerateOptions& options) {
  CLI::Option* sample =
      AddCount(command, "--sample", options.samples,
               "sample N texts per prompt instead of beam search", 1, kMostTokens);
  for (CLI::Option* option :
       {AddCount(command, "--beam", options.beams.width, "beam width; 1 is greedy search", 1, 1024),
        AddCount(command, "--best", options.best, "hypotheses returned per prompt", 1, kMostTokens),
        AddNumber(command, "--length-penalty", options.beams.length_penalty,
                  "divide log-probabilities by ((5 + n) / 6)^X for n tokens")})
    option->capture_default_str()->excludes(sample);
  command
      ->add_flag("--stop-first", options.stop_first,
                 "stop as soon as the beam holds --beam finished texts")
      ->excludes(sample);
  command->add_flag("--no-end", options.no_end, "write --max-len tokens, whatever the model says");
  AddWriteFlags(command, options.write);
}

}  // namespace

Subcommand DeclareGenerate(CLI::App& front) {
  const auto options = std::make_shared<GenerateOptions>();
  CLI::App* command =
      AddCommand(front, "generate", "Generate text from a checkpoint.",
                 {"anyorder generate runs/gpt --input prompts.txt --output texts.jsonl",
                  "echo 'Once upon a time' | anyorder generate runs/gpt --input - --output - "
                  "--sample 3 --top-p 0.9",
                  "anyorder generate runs/llada --input prompts.txt --output texts.jsonl --method "
                  "llada --block-length 16"});
  AddRunDir(command, options->run_dir, "run directory");
  AddPath(command, "--input", options->input,
          "prompts, one per line; .jsonl: the field text of each object; -: standard input",
          PathUse::kReadFile, /*takes_dash=*/true)
      ->required();
  AddPath(command, "--output", options->output, "FILE.jsonl to write; -: standard output",
          PathUse::kWriteFile, /*takes_dash=*/true);
  AddPath(command, "--trace", options->trace,
          "FILE.jsonl to write: the order in which texts were written (anyorder show --trace)",
          PathUse::kWriteFile);
  command->add_flag(
      "--stream", options->streams,
      "show each text on the terminal while it is written; then --output is optional");
  AddCount(command, "--max-len", options->max_tokens,
           "most tokens per text, end of text included; max_tokens in JSON requests (default: 128, "
           "or what the model can write)",
           1, kMostTokens);
  AddCount(command, "--min-len", options->rules.min_tokens,
           "fewest tokens per text; min_tokens in JSON requests", 0, kMostTokens)
      ->capture_default_str();
  AddCount(command, "--block-ngram", options->rules.block_ngram,
           "never repeat N consecutive tokens within a text; 0: off", 0, kMostTokens)
      ->capture_default_str();
  DeclareChoice(command, *options);
  AddCount(command, "--batch", options->batch, "prompts per batch; does not affect results", 1,
           4096)
      ->capture_default_str();
  AddTextModelOptions(command, *options);
  return {command, [options, command] {
            EnsureShortSpin();
            const auto has_any = [command](std::initializer_list<const char*> names) {
              return std::any_of(names.begin(), names.end(),
                                 [command](const char* name) { return command->count(name) > 0; });
            };
            options->has_beam_options =
                has_any({"--beam", "--best", "--length-penalty", "--stop-first"});
            options->has_draw_options = has_any({"--temperature", "--top-k", "--top-p", "--seed"});
            return Report(Generate(*options));
          }};
}

}  // namespace anyorder::launcher
