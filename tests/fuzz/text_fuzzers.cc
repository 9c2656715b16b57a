// Files about texts: traces of how they were written, with both drawings of them, and what
// `anyorder likelihood` reads.

#include "launcher/likelihood/likelihood.h"
#include "launcher/show/show_trace.h"
#include "launcher/texts/trace_file.h"
#include "tests/fuzz/fuzz_target.h"

namespace anyorder::fuzz {
namespace {

std::vector<std::string> TraceSeeds() {
  launcher::Trace trace{.method = "llada", .prompt_pieces = {"A", " b"}, .passes = 4};
  trace.written = {{1, 5, " c\n", -0.5, 0.25}, {3, 2, "語", -1e-9, 1}, {4, 3, "\t", -30, 0}};
  return {launcher::TraceLine(trace),
          launcher::TraceLine(trace) + launcher::TraceLine({.method = "dream"})};
}

void UseTrace(absl::string_view text) {
  static const ScratchDirectory scratch;
  const auto traces = launcher::ReadTraces(scratch.Store("t.jsonl", std::string(text)));
  if (!traces.ok()) return;
  for (const launcher::Trace& trace : *traces) {
    ANYORDER_CHECK(!launcher::TraceSvgPicture(trace, "").empty());
    for (const int64_t columns : {1, 9, 80}) {
      for (const bool flag : {false, true})
        launcher::TraceTerminalPicture(trace, "", /*ascii=*/flag, /*colours=*/!flag, columns);
    }
    // What was taken is taken again.
    const std::string line = launcher::TraceLine(trace);
    const auto again = launcher::ReadTraces(scratch.Store("again.jsonl", line));
    ANYORDER_CHECK_OK(again.status());
    ANYORDER_CHECK(launcher::TraceLine(again->front()) == line) << line;
  }
}

std::vector<std::string> LikelihoodSeeds() {
  return {
      "{\"input\":\"A\",\"text\":\" b\",\"rank\":1}\n{\"text\":\"\"}\n",
      "{\"context\":\"A\",\"choices\":[\" b\",\" c\"],\"label\":1}\n{\"choices\":[\"a\",\"b\"]}\n"};
}

void UseLikelihood(absl::string_view text) {
  static const ScratchDirectory scratch;
  for (const char* name : {"t.jsonl", "t.txt"}) {
    const auto input = launcher::ReadLikelihoodInput(scratch.Store(name, std::string(text)));
    if (!input.ok()) continue;
    for (const launcher::LikelihoodItem& item : input->items) {
      const auto texts = std::ssize(item.texts);
      ANYORDER_CHECK(texts >= 1 && (texts > 1) == input->has_choices) << texts;
      ANYORDER_CHECK(item.answer >= -1 && item.answer < texts) << item.answer;
      for (const std::string& one : item.texts) ANYORDER_CHECK(!one.empty());
    }
  }
}

const bool registered[] = {
    Register({"trace", TraceSeeds, UseTrace}),
    Register({"likelihood", LikelihoodSeeds, UseLikelihood}),
};

}  // namespace
}  // namespace anyorder::fuzz
