// `serve` and `chat` of FakeTextService, for tests of whole programs: as `anyorder` has them, but
// RUN may be any directory. ANYORDER_FAKE_MS: how long a call takes; ANYORDER_FAKE_HOLD: calls wait
// while this file exists; ANYORDER_FAKE_CAUSAL: a model that fills no blanks.

#include <CLI/CLI.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "absl/time/clock.h"

#include "launcher/serve/serve.h"
#include "tests/launcher/serve/fake_service.h"

namespace anyorder::launcher {
namespace {

absl::StatusOr<std::unique_ptr<TextService>> OpenFake(const TextModelOptions& options) {
  auto service = std::make_unique<FakeTextService>();
  service->mutable_facts().run_dir = options.run_dir;
  if (std::getenv("ANYORDER_FAKE_CAUSAL") != nullptr)
    service->mutable_facts().methods = {"left-to-right"};
  if (std::getenv("ANYORDER_FAKE_NO_TEMPLATE") != nullptr)
    service->mutable_facts().chat_template = "";
  const char* const delay = std::getenv("ANYORDER_FAKE_MS");
  const absl::Duration pause = absl::Milliseconds(delay == nullptr ? 0 : std::atoi(delay));
  // Computing waits while that file is there, and says by another that it does.
  const char* const hold = std::getenv("ANYORDER_FAKE_HOLD");
  const std::string held = hold == nullptr ? "" : hold;
  service->before_call = [pause, held] {
    absl::SleepFor(pause);
    if (held.empty()) return;
    std::ofstream(held + ".begun").put('1');
    while (std::filesystem::exists(held)) absl::SleepFor(absl::Milliseconds(5));
  };
  return service;
}

int Main(int argc, char** argv) {
  CLI::App app("Serves no model.", kFrontProgram);
  app.require_subcommand(1);
  return ParseAndRun(app, {DeclareServe(app, OpenFake), DeclareChat(app, OpenFake)}, argc, argv);
}

}  // namespace
}  // namespace anyorder::launcher

int main(int argc, char** argv) { return anyorder::launcher::Main(argc, argv); }
