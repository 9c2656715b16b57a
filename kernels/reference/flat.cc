// Operations on flat ranges and on rows: AdamW, sums of squares, add, cast, copies.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/arguments.h"
#include "kernels/reference/operations.h"

namespace anyorder::kernels::reference {

void Run(const AdamWArgs& args) {
  if (args.control != nullptr && args.control->skips != 0) return;
  const double t = static_cast<double>(args.step) + 1;
  double correction = 1;
  double epsilon = args.epsilon;
  if (args.control != nullptr) {
    correction = args.control->correction;
    epsilon *= args.control->epsilon_scale;
  } else if (args.bias_correction) {
    correction = std::sqrt(1 - std::pow(args.beta2, t)) / (1 - std::pow(args.beta1, t));
    if (args.corrects_epsilon) epsilon *= std::sqrt(1 - std::pow(args.beta2, t));
  }
  const double grad_scale = args.control != nullptr ? args.control->grad_scale : args.grad_scale;
  WithStorage(args.grad.dtype(), [&]<typename G>() {
    for (int64_t i = 0; i < args.grad.num_elements(); ++i) {
      const double g = grad_scale * Load(args.grad.data<G>()[i]);
      const double m = args.beta1 * Load(args.m.data<G>()[i]) + (1 - args.beta1) * g;
      const double v = args.beta2 * Load(args.v.data<G>()[i]) + (1 - args.beta2) * g * g;
      const double old = Load(args.master.data<G>()[i]);
      const double step = correction * m / (std::sqrt(v) + epsilon) + args.weight_decay * old;
      args.m.data<G>()[i] = Round<G>(m);
      args.v.data<G>()[i] = Round<G>(v);
      args.master.data<G>()[i] = Round<G>(old - args.learning_rate * step);
    }
  });
  // From the master as stored, so that weights can be rebuilt from a checkpoint bit for bit.
  if (!args.weights.is_null()) Run(CastArgs{args.master, args.weights});
}

void Run(const CopyRowsArgs& args) {
  const int64_t size = SizeOf(args.source.dtype());
  const char* source = static_cast<const char*>(args.source.raw());
  char* destination = static_cast<char*>(args.destination.raw());
  for (int64_t r = 0; r < args.rows; ++r) {
    std::memcpy(destination + (args.destination_begin + r * args.destination_stride) * size,
                source + (args.source_begin + r * args.source_stride) * size, args.columns * size);
  }
}

void Run(const GatherRowsArgs& args) {
  WithStorage(args.x.dtype(), [&]<typename T>() {
    const int64_t columns = NumColumns(args.x);
    const T* x = args.x.data<T>();
    T* y = args.y.data<T>();
    for (int64_t r = 0; r < args.num_rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        if (args.scatter_add) {
          T& element = y[args.rows[r] * columns + c];
          element = Round<T>(Load(element) + Load(x[r * columns + c]));
        } else {
          y[r * columns + c] = x[args.rows[r] * columns + c];
        }
      }
    }
  });
}

void Run(const SumOfSquaresArgs& args) {
  WithStorage(args.x.dtype(), [&]<typename G>() {
    const G* x = args.x.data<G>();
    for (int64_t block = 0; block < args.sums.num_elements(); ++block) {
      const int64_t begin = block * kNormBlockElements;
      const int64_t end = std::min(begin + kNormBlockElements, args.x.num_elements());
      double sum = 0;
      for (int64_t i = begin; i < end; ++i) sum += Load(x[i]) * Load(x[i]);
      args.sums.data<double>()[block] = sum;
    }
  });
}

void Run(const AddArgs& args) {
  WithStorage(args.a.dtype(), [&]<typename T>() {
    for (int64_t i = 0; i < args.a.num_elements(); ++i)
      args.y.data<T>()[i] = Round<T>(Load(args.a.data<T>()[i]) + Load(args.b.data<T>()[i]));
  });
}

void Run(const CastArgs& args) {
  WithStorage(args.x.dtype(), [&]<typename From>() {
    WithStorage(args.y.dtype(), [&]<typename To>() {
      for (int64_t i = 0; i < args.x.num_elements(); ++i)
        args.y.data<To>()[i] = Round<To>(Load(args.x.data<From>()[i]));
    });
  });
}

void Run(const FillZeroArgs& args) {
  if (args.x.num_bytes() > 0) std::memset(args.x.raw(), 0, args.x.num_bytes());
}

}  // namespace anyorder::kernels::reference
