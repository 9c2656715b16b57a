// Both streams of XLNet's attention at the pretraining shape.

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
class PassTimes {
 public:
  PassTimes(kernels::Backend& backend, Timer& timer) : backend_(backend), timer_(timer) {}

  std::map<std::string, double> Of(const kernels::AttentionBackwardArgs& args) {
    passes_.clear();
    kernels::cuda::AttentionPassObserver() = [this](const char* pass, StreamView) { Mark(pass); };
    backend_.AttentionBackward(args, {});
    kernels::cuda::AttentionPassObserver() = nullptr;
    backend_.Synchronize({});
    std::map<std::string, double> times;
    for (size_t i = 0; i + 1 < passes_.size(); ++i)
      times[passes_[i]] += timer_.Milliseconds(static_cast<int>(i));
    return times;
  }

 private:
  void Mark(const char* pass) {
    const auto next = static_cast<int>(passes_.size());
    if (next > 0) timer_.End(next - 1);
    if (*pass != '\0') timer_.Begin(next);
    passes_.emplace_back(pass);
  }

  kernels::Backend& backend_;
  Timer& timer_;
  std::vector<std::string> passes_;
};

// Products that each pass runs, in units: a recomputes two of forward's and has three of its own.
double UnitsOf(const std::string& pass) {
  if (pass == "a") return 5;
  if (pass == "keys") return 2;
  return pass == "distances" ? 1 : 0;
}

void MeasurePasses(Bench& bench, const std::vector<std::unique_ptr<AttentionProblem>>& problems,
                   const std::string& suffix, const std::string& shape, double unit) {
  PassTimes passes(bench.backend(), bench.timer());
  std::map<std::string, std::vector<double>> samples;
  for (int sample = 0; sample < bench.samples(); ++sample) {
    const AttentionProblem& problem = *problems[static_cast<size_t>(sample) % problems.size()];
    for (const auto& [pass, ms] : passes.Of(problem.backward())) samples[pass].push_back(ms * 1e-3);
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

}  // namespace anyorder::bench
