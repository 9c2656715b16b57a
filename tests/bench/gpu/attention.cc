// Both streams of XLNet's attention at the pretraining shape, and plain attention.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "kernels/cuda/attention/attention_scratch.h"
#include "tests/bench/gpu/attention_problem.h"
#include "tests/bench/gpu/cases.h"

namespace anyorder::bench {
namespace {

// Milliseconds of each pass of one backward, by name.
std::map<std::string, double> PassTimes(Bench& bench, const kernels::AttentionBackwardArgs& args) {
  std::vector<std::string> passes;
  kernels::cuda::AttentionPassObserver() = [&](const char* pass, StreamView) {
    const auto next = static_cast<int>(passes.size());
    if (next > 0) bench.timer().End(next - 1);
    if (*pass != '\0') bench.timer().Begin(next);
    passes.emplace_back(pass);
  };
  bench.backend().AttentionBackward(args, {});
  kernels::cuda::AttentionPassObserver() = nullptr;
  bench.backend().Synchronize({});
  std::map<std::string, double> times;
  for (size_t i = 0; i + 1 < passes.size(); ++i)
    times[passes[i]] += bench.timer().Milliseconds(static_cast<int>(i));
  return times;
}

// Products that each pass runs, in units: a recomputes two of forward's and has three of its own.
double UnitsOf(const std::string& pass) {
  if (pass == "a") return 5;
  if (pass == "keys") return 2;
  return pass == "distances" ? 1 : 0;
}

void MeasurePasses(Bench& bench, const std::vector<std::unique_ptr<AttentionProblem>>& problems,
                   const std::string& suffix, const std::string& shape, double unit) {
  std::map<std::string, std::vector<double>> samples;
  for (int sample = 0; sample < bench.samples(); ++sample) {
    const AttentionProblem& problem = *problems[static_cast<size_t>(sample) % problems.size()];
    for (const auto& [pass, ms] : PassTimes(bench, problem.backward()))
      samples[pass].push_back(ms * 1e-3);
  }
  for (const auto& [pass, seconds] : samples) {
    Case what{absl::StrCat("attention_backward_", pass, suffix), shape, Work::kFlops,
              UnitsOf(pass) * unit};
    what.value_is_time = what.work == 0;
    bench.Report(what, Summarise(seconds), 1);
  }
}

}  // namespace

void MeasureAttention(Bench& bench, const XlnetSize& size, int64_t batch, double dropout) {
  const double unit = AttentionUnit(size) * static_cast<double>(batch);
  const double bytes = MatrixBytes(4, batch * size.rows(), size.model_dim);
  const size_t sets = Bench::SetsFor(bytes);
  std::vector<std::unique_ptr<AttentionProblem>> problems;
  for (size_t set = 0; set < sets; ++set)
    problems.push_back(std::make_unique<AttentionProblem>(bench.backend(), size, batch, dropout));
  const auto forward = [&](size_t set) {
    bench.backend().AttentionForward(problems[set]->forward(), {});
  };
  const auto backward = [&](size_t set) {
    bench.backend().AttentionBackward(problems[set]->backward(), {});
  };
  for (size_t set = 0; set < sets; ++set) forward(set);
  const std::string suffix = batch == kGoalBatch ? "" : absl::StrCat("_b", batch);
  const std::string shape = absl::StrCat("B", batch, " H", size.heads, " D", size.head_dim(), " C",
                                         size.length, " Q", size.targets, " K", size.keys());
  if (!problems.front()->plan().memory.is_null()) {
    Case plan{"attention_plan" + suffix, shape};
    plan.value_is_time = true;
    bench.Measure(plan, sets,
                  [&](size_t set) { bench.backend().PlanAttention(problems[set]->plan(), {}); });
  }
  bench.Measure({"attention_forward" + suffix, shape, Work::kFlops, kForwardUnits * unit}, sets,
                forward);
  bench.Measure({"attention_backward" + suffix, shape, Work::kFlops, kBackwardUnits * unit}, sets,
                backward);
  MeasurePasses(bench, problems, suffix, shape, unit);
}

void MeasurePlainAttention(Bench& bench, const PlainSize& size, int64_t batch) {
  const AttentionProblem problem(bench.backend(), size, batch);
  const auto length = static_cast<double>(size.length);
  const double pairs = size.is_causal ? length * (length + 1) / 2 : length * length;
  const double product = 2.0 * pairs * static_cast<double>(batch * size.heads * size.head_dim);
  const std::string name = absl::StrCat("plain_d", size.head_dim, "_t", size.length,
                                        size.is_causal ? "_causal" : "_both");
  const std::string shape = absl::StrCat("B", batch, " H", size.heads, " KV", size.kv_heads, " D",
                                         size.head_dim, " T", size.length);
  bench.Measure({name + "_forward", shape, Work::kFlops, kPlainForwardProducts * product}, 1,
                [&](size_t) { bench.backend().AttentionForward(problem.forward(), {}); });
  bench.Measure({name + "_backward", shape, Work::kFlops, kPlainBackwardProducts * product}, 1,
                [&](size_t) { bench.backend().AttentionBackward(problem.backward(), {}); });
}

}  // namespace anyorder::bench
