#include "tests/gpu/attention_bisection.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"

#include "core/base/check.h"
#include "tests/gpu/attention_switches.h"
#include "tests/gpu/attention_verdict.h"
#include "tests/kernels/attention_rounding.h"

namespace anyorder::testing {
namespace {

using kernels::AttentionShape;
using kernels::testing::AttentionBounds;
using kernels::testing::AttentionData;

// A result and what it should be.
struct CheckedTensor {
  const char* name;
  Rows rows;
  double most_rms = 0;  // of the differences
  bool columns_are_keys = false;
  std::vector<CheckedElement> elements;

  double Rms(double (*size_of)(const CheckedElement&)) const {
    double sum = 0;
    for (const CheckedElement& element : elements) sum += std::pow(size_of(element), 2);
    return std::sqrt(sum / static_cast<double>(elements.size()));
  }
  double DifferenceRms() const {
    return Rms(
        [](const CheckedElement& e) { return e.found == e.expected ? 0.0 : e.found - e.expected; });
  }
  // kAgrees, or what is wrong.
  std::string Verdict() const {
    const std::string pattern = PatternOf(elements);
    if (pattern != kAgrees || DifferenceRms() <= most_rms) return pattern;
    return absl::StrFormat(
        "precision: no element stands out, but all together are %.3g times as far off as they may",
        DifferenceRms() / most_rms);
  }
};

Rows RowsOf(absl::string_view name) {
  if (name == "out" || name == "lse" || name == "dq") return Rows::kQueries;
  if (name == "dk" || name == "dv") return Rows::kKeys;
  return name == "drelative" ? Rows::kDistances : Rows::kNone;
}

template <typename Element>
CheckedTensor Check(const char* name, Rows rows, const Places& places,
                    const std::vector<Element>& found, const std::vector<Element>& again,
                    const std::vector<double>& expected, const std::vector<double>& bound,
                    double most_rms) {
  const AttentionShape& shape = places.shape();
  const bool is_statistic =
      static_cast<int64_t>(found.size()) == shape.num_rows() * shape.num_heads;
  const int64_t columns = is_statistic && rows == Rows::kQueries ? 1 : shape.head_dim;
  CheckedTensor tensor{name, rows, most_rms, false, {}};
  for (size_t i = 0; i < found.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    CheckedElement element;
    places.Locate(rows, at / (columns * shape.num_heads), &element);
    element.head = static_cast<int>(at / columns % shape.num_heads);
    element.column = static_cast<int>(at % columns);
    element.expected = expected[i];
    element.found = kernels::testing::ToDouble(found[i]);
    element.bound = bound[i];
    element.differs = std::memcmp(&found[i], &again[i], sizeof found[i]) != 0;
    tensor.elements.push_back(element);
  }
  return tensor;
}

// Of a problem, what is right and how far from it a result may be: each element, and all of it (a
// root mean square).
struct Exact {
  AttentionData<double, double> results;
  AttentionBounds bounds;
  AttentionBounds rms;

  // fp32 has the bounds of the analysis, which are tight there; bf16 what rounding was measured to
  // do.
  template <typename T>
  Exact(const AttentionData<T, float>& data, bool backward)
      : results(kernels::testing::RunReference(kernels::testing::InDouble(data),
                                               backward || std::is_same_v<T, float>)) {
    if constexpr (std::is_same_v<T, float>) {
      bounds = kernels::testing::AttentionErrorAnalysis(results, DTypeOf<T>::kValue).bounds();
      kernels::testing::VisitPairs(bounds, rms, [](const auto& bound, auto& mean) {
        double sum = 0;
        for (const double x : bound) sum += x * x;
        mean = {std::sqrt(sum / static_cast<double>(bound.size()))};
      });
    } else {
      kernels::testing::MeasuredRounding measured =
          kernels::testing::MeasureRounding(results, backward);
      bounds = std::move(measured.bounds);
      rms = std::move(measured.rms);
      // Many draws; but what is summed over all rows has one or two a head.
      kernels::testing::VisitPairs(rms, rms, [](auto& mean, auto&) { mean[0] *= 3; });
      for (auto* mean :
           {&rms.dcontent_bias, &rms.dposition_bias, &rms.dsegment_bias, &rms.dsegment_embedding})
        (*mean)[0] *= kernels::testing::kRoundingFactor / 3;
    }
  }
};

template <typename T>
class SwitchRun {
 public:
  SwitchRun(kernels::Backend& device, const AttentionSwitch& which)
      : device_(device),
        data_(kernels::testing::MakeData<T, float>(CaseOf(which.level), 61)),
        places_(data_, which.is_ring) {}

  // The last one is `out` with unit vectors for values.
  std::vector<CheckedTensor> Forward() {
    std::vector<CheckedTensor> tensors = RunTwice(/*is_backward=*/false);
    MakeValuesUnitVectors();
    CheckedTensor& probabilities = tensors.emplace_back(RunTwice(/*is_backward=*/false).front());
    probabilities.name = "probabilities";
    probabilities.columns_are_keys = true;
    return tensors;
  }

  std::vector<CheckedTensor> Backward() { return RunTwice(/*is_backward=*/true); }

 private:
  std::vector<CheckedTensor> RunTwice(bool is_backward) {
    const Exact exact(data_, is_backward);
    const auto run = [&] { is_backward ? RunBackward(exact.results) : RunForward(); };
    run();
    const AttentionData<T, float> first = data_;
    run();
    std::vector<CheckedTensor> tensors;
    const auto check = [&](const char* name, const auto& found, const auto& again,
                           const auto& expected, const auto& bound, const auto& rms) {
      const bool is_gradient = *name == 'd';  // the others are forward's
      if (is_gradient != is_backward) return;
      tensors.push_back(Check(name, RowsOf(name), places_, found, again, expected, bound, rms[0]));
    };
    kernels::testing::VisitResults(check, first, data_, exact.results, exact.bounds, exact.rms);
    return tensors;
  }
  void RunForward() {
    data_.Poison(0);
    device_.AttentionForward(data_.Forward(), {});
  }
  void RunBackward(const AttentionData<double, double>& exact) {
    data_.Poison(device_.AttentionBackwardWorkspaceBytes(data_.shape, DTypeOf<T>::kValue));
    const auto round = [](const std::vector<double>& from, auto* to) {
      using Element = std::decay_t<decltype((*to)[0])>;
      std::transform(from.begin(), from.end(), to->begin(),
                     [](double x) { return static_cast<Element>(static_cast<float>(x)); });
    };
    round(exact.out, &data_.out);
    round(exact.lse, &data_.lse);
    device_.AttentionBackward(data_.Backward(), {});
  }

  void MakeValuesUnitVectors() {
    const int64_t dim = data_.shape.head_dim;
    for (size_t i = 0; i < data_.v.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      const int64_t slot = at / data_.shape.model_dim() % data_.shape.num_keys;
      data_.v[i] = static_cast<T>(slot % dim == at % dim ? 1.0f : 0.0f);
    }
  }

  kernels::Backend& device_;
  AttentionData<T, float> data_;
  Places places_;
};

std::string Number(double x) { return std::isfinite(x) ? absl::StrFormat("%.6g", x) : "null"; }

// How many times its bound an element is away; what is not a number is away infinitely.
double TimesBound(const CheckedElement& element) {
  if (element.found == element.expected) return 0;
  const double times = std::fabs(element.found - element.expected) / element.bound;
  return std::isnan(times) ? HUGE_VAL : times;
}

std::string WorstOf(const CheckedTensor& tensor) {
  const CheckedElement& worst =
      *std::max_element(tensor.elements.begin(), tensor.elements.end(),
                        [](const auto& a, const auto& b) { return TimesBound(a) < TimesBound(b); });
  const std::string key = tensor.columns_are_keys      ? absl::StrCat(worst.column)
                          : tensor.rows == Rows::kKeys ? absl::StrCat(worst.row_of_tile)
                                                       : "null";
  return absl::StrFormat(
      "{\"row_mod_8\": %d, \"warp\": %d, \"key_mod_64\": %s, \"tile\": %d, \"lane\": %d, \"head\": "
      "%d, \"column\": %d, \"expected\": %s, \"found\": %s, \"times_bound\": %s}",
      worst.row_of_tile % 8, worst.warp, key, worst.tile, worst.lane, worst.head, worst.column,
      Number(worst.expected), Number(worst.found), Number(TimesBound(worst)));
}

TensorReport ReportOf(const std::string& name, const CheckedTensor& tensor) {
  const double norm =
      tensor.Rms([](const CheckedElement& e) { return std::isinf(e.expected) ? 0.0 : e.expected; });
  TensorReport report{tensor.name, false, tensor.Verdict(), ""};
  report.passed = report.pattern == kAgrees;
  report.line = absl::StrFormat(
      "{\"bisect\": \"%s\", \"tensor\": \"%s\", \"relative_l2\": %s, \"bound\": %s, "
      "\"passed\": %s, \"worst\": %s, \"pattern\": \"%s\"}",
      name, tensor.name, Number(tensor.DifferenceRms() / norm), Number(tensor.most_rms / norm),
      report.passed ? "true" : "false", WorstOf(tensor), report.pattern);
  return report;
}

std::vector<CheckedTensor> Run(kernels::Backend& device, const AttentionSwitch& which) {
  const auto run = [&](auto switch_run) {
    return which.is_backward ? switch_run.Backward() : switch_run.Forward();
  };
  if (which.is_ring || which.level == kBf16) return run(SwitchRun<BFloat16>(device, which));
  return run(SwitchRun<float>(device, which));
}

}  // namespace

std::vector<std::string> BisectionSwitches() {
  std::vector<std::string> names;
  for (const AttentionSwitch& each : AllSwitches()) names.push_back(each.name());
  return names;
}

std::vector<TensorReport> RunSwitch(kernels::Backend& device, const std::string& name) {
  std::vector<TensorReport> reports;
  for (const AttentionSwitch& which : AllSwitches()) {
    if (which.name() != name) continue;
    for (const CheckedTensor& tensor : Run(device, which)) {
      if (!tensor.elements.empty()) reports.push_back(ReportOf(name, tensor));
    }
  }
  ANYORDER_CHECK(!reports.empty()) << "there is no switch '" << name << "'";
  return reports;
}

bool BisectAttention(kernels::Backend& device, int begin, int end, std::ostream& out) {
  const std::vector<std::string> names = BisectionSwitches();
  std::string first_failure;
  for (int i = begin; i < end; ++i) {
    const std::string& name = names[static_cast<size_t>(i)];
    out << absl::StrFormat("{\"bisecting\": \"%s\", \"number\": %d}", name, i) << std::endl;
    for (const TensorReport& report : RunSwitch(device, name)) {
      out << report.line << std::endl;
      if (first_failure.empty() && !report.passed)
        first_failure =
            absl::StrCat("first failing switch: ", name, ": ", report.tensor, ": ", report.pattern);
    }
  }
  out << (first_failure.empty() ? "attention agrees with the reference in every switch"
                                : first_failure)
      << std::endl;
  return first_failure.empty();
}

}  // namespace anyorder::testing
