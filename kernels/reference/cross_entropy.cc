#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/arguments.h"
#include "kernels/reference/operations.h"

namespace anyorder::kernels::reference {

namespace {

template <typename T>
std::vector<double> Logits(const LinearCrossEntropyArgs& args, int64_t row) {
  const int64_t columns = NumColumns(args.x);
  const int64_t vocab = NumRows(args.weight);
  const T* x = args.x.data<T>() + row * columns;
  const T* weight = args.weight.data<T>();
  std::vector<double> logits(vocab);
  for (int64_t j = 0; j < vocab; ++j) {
    logits[j] = args.bias.is_null() ? 0.0 : Load(args.bias.data<T>()[j]);
    for (int64_t c = 0; c < columns; ++c) logits[j] += Load(x[c]) * Load(weight[j * columns + c]);
  }
  return logits;
}

double LogSumExp(const std::vector<double>& values) {
  const double max = *std::max_element(values.begin(), values.end());
  double sum = 0;
  for (const double value : values) sum += std::exp(value - max);
  return max + std::log(sum);
}

// Spreads dlogits of one row; dweight and dbias are summed in double over all rows.
template <typename T>
void SpreadGradient(const LinearCrossEntropyArgs& args, int64_t row,
                    const std::vector<double>& dlogits, std::vector<double>* dweight,
                    std::vector<double>* dbias) {
  const int64_t columns = NumColumns(args.x);
  const T* x = args.x.data<T>() + row * columns;
  const T* weight = args.weight.data<T>();
  std::vector<double> dx(columns, 0.0);
  for (size_t j = 0; j < dlogits.size(); ++j) {
    for (int64_t c = 0; c < columns; ++c) {
      dx[c] += dlogits[j] * Load(weight[j * columns + c]);
      (*dweight)[j * columns + c] += dlogits[j] * Load(x[c]);
    }
    (*dbias)[j] += dlogits[j];
  }
  for (int64_t c = 0; c < columns; ++c) args.dx.data<T>()[row * columns + c] = Round<T>(dx[c]);
}

template <typename G>
void AddTo(const TensorView& tensor, const std::vector<double>& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    G& element = tensor.data<G>()[i];
    element = Round<G>(Load(element) + values[i]);
  }
}

}  // namespace

void Run(const LinearCrossEntropyArgs& args) {
  WithStorage(args.x.dtype(), [&]<typename T>() {
    using G = GradientOf<T>;
    const int64_t columns = NumColumns(args.x);
    const int64_t vocab = NumRows(args.weight);
    const bool with_gradients = !args.dx.is_null();
    std::vector<double> dweight(with_gradients ? vocab * columns : 0, 0.0);
    std::vector<double> dbias(with_gradients ? vocab : 0, 0.0);
    for (int64_t r = 0; r < NumRows(args.x); ++r) {
      std::vector<double> logits(vocab, 0.0);
      double loss = 0;
      if (args.row_weights[r] != 0.0f) {
        logits = Logits<T>(args, r);
        const double lse = LogSumExp(logits);
        loss = lse - logits[args.labels[r]];
        for (int64_t j = 0; j < vocab; ++j) {
          const double target = j == args.labels[r] ? 1.0 : 0.0;
          logits[j] = args.row_weights[r] * (std::exp(logits[j] - lse) - target);
        }
      }
      args.loss.data<G>()[r] = Round<G>(loss);
      if (with_gradients) SpreadGradient<T>(args, r, logits, &dweight, &dbias);
    }
    if (!args.dweight.is_null()) AddTo<G>(args.dweight, dweight);
    if (!args.dbias.is_null()) AddTo<G>(args.dbias, dbias);
  });
}

}  // namespace anyorder::kernels::reference
