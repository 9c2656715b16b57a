// Operations on rows: activations, dropout, embeddings, rotary positions.

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "kernels/arguments.h"
#include "kernels/reference/operations.h"

namespace anyorder::kernels::reference {

namespace {

constexpr double kCubic = 0.044715;
const double kRootTwoOverPi = std::sqrt(2.0 / std::numbers::pi);

// Both forms of GELU are x times a distribution function, computed so that the left tail does not
// cancel: (1 + tanh v) / 2 = 1 / (1 + exp(-2 v)) and (1 + erf z) / 2 = erfc(-z) / 2.
double TanhArgument(double x) { return kRootTwoOverPi * (x + kCubic * x * x * x); }
double TanhDistribution(double x) { return 1 / (1 + std::exp(-2 * TanhArgument(x))); }
double ErfDistribution(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }

double Activate(Activation activation, double x) {
  switch (activation) {
    case Activation::kGeluTanh: return x * TanhDistribution(x);
    case Activation::kGeluErf: return x * ErfDistribution(x);
    case Activation::kRelu: return x > 0 ? x : 0;
    case Activation::kSilu: return x / (1 + std::exp(-x));
    case Activation::kTanh: return std::tanh(x);
  }
  return 0;
}

double ActivateDerivative(Activation activation, double x) {
  switch (activation) {
    case Activation::kGeluTanh: {
      const double below = TanhDistribution(x);
      const double above = TanhDistribution(-x);
      const double slope = 2 * kRootTwoOverPi * (1 + 3 * kCubic * x * x);
      return below + x * below * above * slope;
    }
    case Activation::kGeluErf:
      return ErfDistribution(x) + x * std::exp(-0.5 * x * x) / std::sqrt(2 * std::numbers::pi);
    case Activation::kRelu: return x > 0 ? 1 : 0;
    case Activation::kSilu: {
      const double below = 1 / (1 + std::exp(-x));
      const double above = 1 / (1 + std::exp(x));
      return below + x * below * above;
    }
    case Activation::kTanh: return 1 / (std::cosh(x) * std::cosh(x));
  }
  return 0;
}

// Element i of a gated unit's factor; 1 where there is none.
template <typename T>
double FactorAt(const ConstTensorView& factor, int64_t i) {
  return factor.is_null() ? 1.0 : Load(factor.data<T>()[i]);
}

// out[i] = value(factor by which dropout scales element i, i), for each element of args.x.
template <typename T, typename Args, typename Value>
void WriteDropped(const Args& args, T* out, Value value) {
  const int64_t columns = NumColumns(args.x);
  for (int64_t i = 0; i < args.x.num_elements(); ++i)
    out[i] =
        Round<T>(value(DropoutFactor(args.dropout, args.row_ids, i / columns, i % columns), i));
}

}  // namespace

void Run(const ActivationForwardArgs& args) {
  WithStorage(args.x.dtype(), [&]<typename T>() {
    const T* x = args.x.data<T>();
    WriteDropped(args, args.y.data<T>(), [&](double factor, int64_t i) {
      return factor * FactorAt<T>(args.factor, i) * Activate(args.activation, Load(x[i]));
    });
  });
}

void Run(const ActivationBackwardArgs& args) {
  WithStorage(args.x.dtype(), [&]<typename T>() {
    const T* x = args.x.data<T>();
    const T* dy = args.dy.data<T>();
    const auto gradient = [&](double factor, int64_t i) {
      return factor * Load(dy[i]) * FactorAt<T>(args.factor, i) *
             ActivateDerivative(args.activation, Load(x[i]));
    };
    const auto dfactor = [&](double factor, int64_t i) {
      return factor * Load(dy[i]) * Activate(args.activation, Load(x[i]));
    };
    // dfactor may be the factor that dx reads, and dx may be the dy that dfactor reads.
    std::vector<T> dx(static_cast<size_t>(args.x.num_elements()));
    WriteDropped(args, dx.data(), gradient);
    if (!args.dfactor.is_null()) WriteDropped(args, args.dfactor.data<T>(), dfactor);
    std::copy(dx.begin(), dx.end(), args.dx.data<T>());
  });
}

void Run(const DropoutArgs& args) {
  WithStorage(args.x.dtype(), [&]<typename T>() {
    const T* x = args.x.data<T>();
    WriteDropped(args, args.y.data<T>(),
                 [&](double factor, int64_t i) { return factor * Load(x[i]); });
  });
}

void Run(const EmbeddingForwardArgs& args) {
  WithStorage(args.table.dtype(), [&]<typename T>() {
    const int64_t columns = NumColumns(args.table);
    for (int64_t r = 0; r < NumRows(args.y); ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        const double entry = Load(args.table.data<T>()[args.ids[r] * columns + c]);
        const double factor = DropoutFactor(args.dropout, args.row_ids, r, c);
        args.y.data<T>()[r * columns + c] = Round<T>(factor * args.scale * entry);
      }
    }
  });
}

void Run(const EmbeddingBackwardArgs& args) {
  WithStorage(args.dy.dtype(), [&]<typename T>() {
    using G = GradientOf<T>;
    const int64_t columns = NumColumns(args.dy);
    for (int64_t r = 0; r < NumRows(args.dy); ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        const double factor = DropoutFactor(args.dropout, args.row_ids, r, c);
        G& entry = args.dtable.data<G>()[args.ids[r] * columns + c];
        const double dy = Load(args.dy.data<T>()[r * columns + c]);
        entry = Round<G>(Load(entry) + factor * args.scale * dy);
      }
    }
  });
}

void Run(const RotaryArgs& args) {
  WithStorage(args.x.dtype(), [&]<typename T>() {
    using G = GradientOf<T>;
    const int64_t head_dim = NumColumns(args.angles);
    const int64_t half = head_dim / 2;
    const int64_t columns = NumColumns(args.x);
    const double sign = args.inverse ? -1.0 : 1.0;
    for (int64_t r = 0; r < NumRows(args.x); ++r) {
      const G* cosines = args.angles.data<G>() + r * head_dim;
      for (int64_t head = 0; head < columns; head += head_dim) {
        const T* x = args.x.data<T>() + r * columns + head;
        T* y = args.y.data<T>() + r * columns + head;
        for (int64_t f = 0; f < half; ++f) {
          const double cosine = Load(cosines[f]);
          const double sine = sign * Load(cosines[half + f]);
          const double low = Load(x[f]);
          const double high = Load(x[f + half]);
          y[f] = Round<T>(low * cosine - high * sine);
          y[f + half] = Round<T>(high * cosine + low * sine);
        }
      }
    }
  });
}

}  // namespace anyorder::kernels::reference
