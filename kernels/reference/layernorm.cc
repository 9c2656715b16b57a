#include <cmath>
#include <vector>

#include "kernels/arguments.h"
#include "kernels/reference/operations.h"

namespace anyorder::kernels::reference {

namespace {

// Statistics of a row as stored. RMSNorm has no mean.
struct Statistics {
  double mean = 0;
  double rstd = 0;
};
template <typename T>
Statistics StatisticsOf(const T* sum, int64_t columns, double epsilon, bool is_rms) {
  const auto n = static_cast<double>(columns);
  double total = 0;
  for (int64_t c = 0; c < columns; ++c) total += Load(sum[c]);
  Statistics of;
  of.mean = is_rms ? 0.0 : total / n;
  double squares = 0;
  for (int64_t c = 0; c < columns; ++c)
    squares += (Load(sum[c]) - of.mean) * (Load(sum[c]) - of.mean);
  of.rstd = 1 / std::sqrt(squares / n + epsilon);
  return of;
}

template <typename T>
void ForwardRow(const LayerNormForwardArgs& args, int64_t row, int64_t columns) {
  using G = GradientOf<T>;
  const bool is_rms = args.mean.is_null();
  const T* x = args.x.data<T>() + row * columns;
  const T* residual = args.residual.is_null() ? nullptr : args.residual.data<T>() + row * columns;
  T* sum = args.sum.data<T>() + row * columns;
  T* y = args.y.data<T>() + row * columns;
  for (int64_t c = 0; c < columns; ++c) {
    const double factor = DropoutFactor(args.dropout, args.row_ids, row, c);
    const double base = residual != nullptr ? Load(residual[c]) : 0.0;
    sum[c] = Round<T>(base + factor * Load(x[c]));
  }
  const auto [mean, rstd] = StatisticsOf(sum, columns, double{args.epsilon}, is_rms);
  for (int64_t c = 0; c < columns; ++c) {
    const double xhat = (Load(sum[c]) - mean) * rstd;
    const double gamma = Load(args.gamma.data<T>()[c]);
    y[c] = is_rms ? Round<T>(Load(Round<T>(xhat)) * gamma)
                  : Round<T>(xhat * gamma + Load(args.beta.data<T>()[c]));
  }
  if (!is_rms) args.mean.data<G>()[row] = Round<G>(mean);
  args.rstd.data<G>()[row] = Round<G>(rstd);
}

template <typename T>
void Backward(const LayerNormBackwardArgs& args) {
  using G = GradientOf<T>;
  const int64_t rows = NumRows(args.dy);
  const int64_t columns = NumColumns(args.dy);
  const bool is_rms = args.mean.is_null();
  const T* gamma = args.gamma.data<T>();
  std::vector<double> dgamma(columns, 0.0);
  std::vector<double> dbeta(columns, 0.0);
  for (int64_t r = 0; r < rows; ++r) {
    const T* dy = args.dy.data<T>() + r * columns;
    const T* sum = args.sum.data<T>() + r * columns;
    const double mean = is_rms ? 0.0 : Load(args.mean.data<G>()[r]);
    const double rstd = Load(args.rstd.data<G>()[r]);
    double mean_g = 0;
    double mean_g_xhat = 0;
    for (int64_t c = 0; c < columns; ++c) {
      const double xhat = (Load(sum[c]) - mean) * rstd;
      const double g = Load(gamma[c]) * Load(dy[c]);
      if (!is_rms) mean_g += g / static_cast<double>(columns);
      mean_g_xhat += g * xhat / static_cast<double>(columns);
      dgamma[c] += Load(dy[c]) * xhat;
      dbeta[c] += Load(dy[c]);
    }
    for (int64_t c = 0; c < columns; ++c) {
      const double xhat = (Load(sum[c]) - mean) * rstd;
      const double g = Load(gamma[c]) * Load(dy[c]);
      const double dsum = rstd * (g - mean_g - xhat * mean_g_xhat);
      const double factor = DropoutFactor(args.dropout, args.row_ids, r, c);
      args.dx.data<T>()[r * columns + c] = Round<T>(factor * dsum);
      if (!args.dresidual.is_null()) {
        args.dresidual.data<T>()[r * columns + c] = Round<T>(dsum);
      }
    }
  }
  for (int64_t c = 0; c < columns; ++c) {
    args.dgamma.data<G>()[c] = Round<G>(dgamma[c]);
    if (!is_rms) args.dbeta.data<G>()[c] = Round<G>(dbeta[c]);
  }
}

}  // namespace

void Run(const LayerNormForwardArgs& args) {
  WithStorage(args.x.dtype(), [&]<typename T>() {
    for (int64_t r = 0; r < NumRows(args.x); ++r) ForwardRow<T>(args, r, NumColumns(args.x));
  });
}

void Run(const LayerNormBackwardArgs& args) {
  WithStorage(args.dy.dtype(), [&]<typename T>() { Backward<T>(args); });
}

}  // namespace anyorder::kernels::reference
