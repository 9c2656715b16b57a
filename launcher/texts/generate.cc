// `anyorder generate`: text from a checkpoint.

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "core/base/counted.h"
#include "core/base/log.h"
#include "core/base/status.h"
#include "launcher/inference/prompts.h"
#include "launcher/process/command_line.h"
#include "launcher/texts/json_lines.h"
#include "launcher/texts/model_text_service.h"
#include "launcher/texts/stream_view.h"
#include "launcher/texts/trace_file.h"
#include "launcher/texts/write_flags.h"

namespace anyorder::launcher {
namespace {

struct GenerateOptions : TextModelOptions {
  std::string input;   // prompts (prompts.h)
  std::string output;  // .jsonl to make, "-": standard output, "": none, with `streams`
  std::string trace;   // file of traces to make, or ""
  bool streams = false;

  BeamRequest beams;
  int64_t best = 1;  // texts of a prompt that beam search gives, at most
  // Not beam search: so many drawn texts a prompt; absent: 1, if there is a method.
  std::optional<int64_t> samples;
  WriteFlags write;
  bool no_end = false;
  bool has_beam_options = false;  // said on the command line
  bool has_draw_options = false;
  CompletionRequest limits = {.max_prompt = 0};  // of tokens; 0: ModelFacts'
  int64_t batch = 8;                             // prompts at once
};

std::vector<CompletionRequest> RequestsOf(const GenerateOptions& options, const ModelFacts& facts,
                                          const WriteOptions& write, bool draws,
                                          const std::vector<std::string>& prompts) {
  CompletionRequest request = options.limits;
  if (request.max_prompt == 0) request.max_prompt = facts.max_prompt;
  if (options.no_end) request.min_tokens = kMostTokens;
  if (!draws) request.beams = options.beams;
  request.samples = draws ? options.samples.value_or(1) : options.best;
  request.write = write;
  std::vector<CompletionRequest> requests(prompts.size(), request);
  for (size_t n = 0; n < prompts.size(); ++n) {
    requests[n].prompt = prompts[n];
    requests[n].first_stream = n * static_cast<uint64_t>(request.samples);
  }
  return requests;
}

struct GeneratedFiles {
  JsonLines texts;
  JsonLines traces;
};

// A text of prompt `number`.
absl::Status WriteText(const CompletionRequest& request, int64_t number, int64_t rank,
                       const Completion& text, GeneratedFiles& files) {
  nlohmann::ordered_json line{{"prompt", number},        {"rank", rank},
                              {"input", request.prompt}, {"text", text.text},
                              {"score", text.score},     {"log_prob", text.log_prob},
                              {"tokens", text.tokens},   {"ended", text.ended}};
  if (!request.beams) line["passes"] = text.passes;
  RETURN_IF_ERROR(files.texts.Write(line));
  return files.traces.WriteText(TraceLine({number, rank, EnumName(request.write.method),
                                           text.prompt_pieces, text.passes, text.written}));
}

// Texts of all prompts, `batch` prompts at a time.
absl::Status WriteTexts(const std::vector<CompletionRequest>& requests, int64_t batch,
                        TextService& service, GeneratedFiles& files) {
  const auto num_prompts = static_cast<int64_t>(requests.size());
  for (int64_t begin = 0; begin < num_prompts; begin += batch) {
    const int64_t end = std::min(num_prompts, begin + batch);
    ASSIGN_OR_RETURN(const std::vector<std::vector<Completion>> found,
                     service.Complete({requests.begin() + begin, requests.begin() + end}));
    for (int64_t n = begin; n < end; ++n) {
      int64_t rank = 0;
      for (const Completion& text : found[n - begin])
        RETURN_IF_ERROR(WriteText(requests[n], n + 1, ++rank, text, files));
    }
  }
  return absl::OkStatus();
}

// The same, one text after the other, shown while they are written.
absl::Status StreamTexts(const std::vector<CompletionRequest>& requests, ModelTextService& service,
                         GeneratedFiles& files) {
  for (size_t n = 0; n < requests.size(); ++n) {
    CompletionRequest request = requests[n];
    const int64_t samples = std::exchange(request.samples, 1);
    ASSIGN_OR_RETURN(const EncodedPrompt prompt, service.Encode(request));
    for (int64_t rank = 1; rank <= samples; ++rank, ++request.first_stream) {
      StreamOptions shown = StreamToStandardOutput();
      shown.left_to_right = request.write.method == WriteMethod::kLeftToRight;
      shown.prompt = request.prompt;
      shown.first = std::max<int64_t>(1, std::ssize(prompt.tokens));
      shown.length = prompt.max_tokens;
      StreamView view(shown);
      request.listener = [&view](int64_t, const ShownToken& token) { view.Add(token); };
      ASSIGN_OR_RETURN(const std::vector<std::vector<Completion>> found,
                       service.Complete({request}));
      view.Finish(found[0][0].text);
      RETURN_IF_ERROR(WriteText(request, static_cast<int64_t>(n) + 1, rank, found[0][0], files));
    }
  }
  return absl::OkStatus();
}

// Writes a line a text (README.md has its fields); those of finished prompts stay if something
// fails later (json_lines.h). Errors: InvalidArgument for options that do not fit one another, the
// model or a prompt; AlreadyExists; FailedPrecondition for a run whose objective writes no text,
// another vocabulary, or unreadable prompts; NotFound, DataLoss.
absl::Status Generate(const GenerateOptions& options) {
  if (options.output.empty() && !options.streams)
    return absl::InvalidArgumentError("--output is required, or --stream");
  if (options.output == "-" && options.streams) {
    return absl::InvalidArgumentError(
        "--stream shows texts on standard output; leave out --output, or name a file");
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> prompts, ReadPrompts(options.input));
  ASSIGN_OR_RETURN(const std::unique_ptr<ModelTextService> service,
                   ModelTextService::Open(options));
  ASSIGN_OR_RETURN(const WriteOptions write, OptionsOf(options.write, service->facts()));
  const bool draws = options.samples || !options.write.method.empty() || options.streams ||
                     !options.trace.empty() || write.method != WriteMethod::kLeftToRight;
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
  // A prompt that does not fit is told by its number, before any text is written.
  const std::vector<CompletionRequest> requests =
      RequestsOf(options, service->facts(), write, draws, prompts);
  RETURN_IF_ERROR(service->CheckComplete(requests));
  ASSIGN_OR_RETURN(JsonLines texts, JsonLines::Open(options.output));
  ASSIGN_OR_RETURN(JsonLines traces, JsonLines::Open(options.trace, "--trace"));
  GeneratedFiles files{std::move(texts), std::move(traces)};
  if (write.cache != BlockCache::kNone) {
    Log(absl::StrCat("cache \"", EnumName(write.cache),
                     "\" is approximate: texts can differ from those without it"));
  }
  RETURN_IF_ERROR(options.streams ? StreamTexts(requests, *service, files)
                                  : WriteTexts(requests, options.batch, *service, files));
  RETURN_IF_ERROR(files.texts.Close());
  RETURN_IF_ERROR(files.traces.Close());
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
    option->excludes(sample);
  command
      ->add_flag("--stop-first", options.beams.stop_first,
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
  AddCount(command, "--max-len", options->limits.max_tokens,
           "most tokens per text, end of text included; max_tokens in JSON requests (default: 128, "
           "or what the model can write)",
           1, kMostTokens);
  AddCount(
      command, "--max-prompt", options->limits.max_prompt,
      "most tokens of a prompt (default: as many as the model has learned to read, 16 times as "
      "many if it has memory)",
      1, kMostTokens);
  AddCount(command, "--min-len", options->limits.min_tokens,
           "fewest tokens per text; min_tokens in JSON requests", 0, kMostTokens);
  AddCount(command, "--block-ngram", options->limits.block_ngram,
           "never repeat N consecutive tokens within a text; 0: off", 0, kMostTokens);
  DeclareChoice(command, *options);
  AddCount(command, "--batch", options->batch, "prompts per batch; does not affect results", 1,
           4096);
  AddTextModelOptions(command, *options);
  return {command,
          [options, command] {
            const auto has_any = [command](std::initializer_list<const char*> names) {
              return std::any_of(names.begin(), names.end(),
                                 [command](const char* name) { return command->count(name) > 0; });
            };
            options->has_beam_options =
                has_any({"--beam", "--best", "--length-penalty", "--stop-first"});
            options->has_draw_options = has_any({"--temperature", "--top-k", "--top-p", "--seed"});
            return Report(Generate(*options));
          },
          /*computes=*/true};
}

}  // namespace anyorder::launcher
