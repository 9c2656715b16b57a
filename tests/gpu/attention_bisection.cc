#include "tests/gpu/attention_bisection.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

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
      bounds =
          kernels::testing::AttentionErrorAnalysis(results, kernels::testing::kUnitOf<T>).bounds();
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

  std::vector<CheckedTensor> Forward() {
    std::vector<CheckedTensor> tensors;
    const auto run = [&](bool is_probabilities) {
      const Exact exact(data_, /*backward=*/false);
      RunForward();
      const std::vector<T> out = data_.out;
      const std::vector<float> lse = data_.lse;
      RunForward();
      const char* const name = is_probabilities ? "probabilities" : "out";
      tensors.push_back(Check(name, Rows::kQueries, places_, out, data_.out, exact.results.out,
                              exact.bounds.out, exact.rms.out[0]));
      tensors.back().columns_are_keys = is_probabilities;
      if (is_probabilities) return;
      tensors.push_back(Check("lse", Rows::kQueries, places_, lse, data_.lse, exact.results.lse,
                              exact.bounds.lse, exact.rms.lse[0]));
    };
    run(false);
    MakeValuesUnitVectors();
    run(true);
    return tensors;
  }

  std::vector<CheckedTensor> Backward() {
    const Exact exact(data_, /*backward=*/true);
    RunBackward(exact.results);
    const AttentionData<T, float> first = data_;
    RunBackward(exact.results);
    std::vector<CheckedTensor> tensors;
    const auto add = [&](const char* name, Rows rows, auto result, auto right, auto bound) {
      tensors.push_back(Check(name, rows, places_, first.*result, data_.*result,
                              exact.results.*right, exact.bounds.*bound, (exact.rms.*bound)[0]));
    };
    using Data = AttentionData<T, float>;
    using Right = AttentionData<double, double>;
    using Bound = AttentionBounds;
    add("dq", Rows::kQueries, &Data::dq, &Right::dq, &Bound::dq);
    add("dk", Rows::kKeys, &Data::dk, &Right::dk, &Bound::dk);
    add("dv", Rows::kKeys, &Data::dv, &Right::dv, &Bound::dv);
    add("drelative", Rows::kDistances, &Data::drelative, &Right::drelative, &Bound::drelative);
    add("dcontent_bias", Rows::kNone, &Data::dcontent_bias, &Right::dcontent_bias,
        &Bound::dcontent_bias);
    add("dposition_bias", Rows::kNone, &Data::dposition_bias, &Right::dposition_bias,
        &Bound::dposition_bias);
    add("dsegment_bias", Rows::kNone, &Data::dsegment_bias, &Right::dsegment_bias,
        &Bound::dsegment_bias);
    add("dsegment_embedding", Rows::kNone, &Data::dsegment_embedding, &Right::dsegment_embedding,
        &Bound::dsegment_embedding);
    return tensors;
  }

 private:
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
      "{\"bisect\": \"%s\", \"tensor\": \"%s\", \"relative_l2\": %s, \"bound\": %s, \"passed\": "
      "%s, "
      "\"worst\": %s, \"pattern\": \"%s\"}",
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
