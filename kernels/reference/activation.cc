#include <cmath>
#include <numbers>

#include "kernels/arguments.h"
#include "kernels/reference/operations.h"
#include "kernels/reference/storage.h"

namespace anyorder::kernels::reference {

namespace {

constexpr double kCubic = 0.044715;
const double kRootTwoOverPi = std::sqrt(2.0 / std::numbers::pi);

double Activate(Activation activation, double x) {
  switch (activation) {
    case Activation::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(kRootTwoOverPi * (x + kCubic * x * x * x)));
    case Activation::kGeluErf:
      return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2));
    case Activation::kRelu:
      return x > 0 ? x : 0;
  }
  return 0;
}

double ActivateDerivative(Activation activation, double x) {
  switch (activation) {
    case Activation::kGeluTanh: {
      const double t = std::tanh(kRootTwoOverPi * (x + kCubic * x * x * x));
      return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * kRootTwoOverPi * (1 + 3 * kCubic * x * x);
    }
    case Activation::kGeluErf: {
      const double density = std::exp(-0.5 * x * x) / std::sqrt(2 * std::numbers::pi);
      return 0.5 * (1 + std::erf(x / std::numbers::sqrt2)) + x * density;
    }
    case Activation::kRelu:
      return x > 0 ? 1 : 0;
  }
  return 0;
}

}  // namespace

void ActivationForward(const ActivationForwardArgs& args) {
  CheckArguments(args);
  WithStorage(args.x.dtype(), [&]<typename T>() {
    const T* x = args.x.data<T>();
    T* y = args.y.data<T>();
    const int64_t columns = NumColumns(args.x);
    for (int64_t i = 0; i < args.x.num_elements(); ++i) {
      const double factor = DropoutFactor(args.dropout, args.row_ids, i / columns, i % columns);
      y[i] = Round<T>(factor * Activate(args.activation, Load(x[i])));
    }
  });
}

void ActivationBackward(const ActivationBackwardArgs& args) {
  CheckArguments(args);
  WithStorage(args.x.dtype(), [&]<typename T>() {
    const T* x = args.x.data<T>();
    const T* dy = args.dy.data<T>();
    T* dx = args.dx.data<T>();
    const int64_t columns = NumColumns(args.x);
    for (int64_t i = 0; i < args.x.num_elements(); ++i) {
      const double factor = DropoutFactor(args.dropout, args.row_ids, i / columns, i % columns);
      dx[i] = Round<T>(factor * Load(dy[i]) * ActivateDerivative(args.activation, Load(x[i])));
    }
  });
}

void DropoutApply(const DropoutArgs& args) {
  CheckArguments(args);
  WithStorage(args.x.dtype(), [&]<typename T>() {
    const T* x = args.x.data<T>();
    T* y = args.y.data<T>();
    const int64_t columns = NumColumns(args.x);
    for (int64_t i = 0; i < args.x.num_elements(); ++i) {
      const double factor = DropoutFactor(args.dropout, args.row_ids, i / columns, i % columns);
      y[i] = Round<T>(factor * Load(x[i]));
    }
  });
}

}  // namespace anyorder::kernels::reference
