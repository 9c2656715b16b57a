// Time and memory of one head's attention, forward and backward, in one of the ways of
// tests/kernels/windowed_attention.h.
//
//   windowed_attention_bench --way dense|loop|chunks|fused|online [--length T] [--window ONE-SIDED]
//   [--globals G] [--dim D]
//                            [--rounds N]
//
// online: the product's kernel without a window, dense attention by online softmax. Prints one JSON
// object: the least processor time of a round in seconds (one thread), and by how many bytes the
// largest resident memory of forward and backward exceeded that before the first of them, inputs
// and outputs not counted. One process a measurement, or memory that an earlier one touched would
// not be seen. windowed_attention_exponents.py runs it over lengths and fits powers.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"

#include "core/base/check.h"
#include "core/base/status.h"
#include "tests/bench/options.h"
#include "tests/bench/rounds.h"
#include "tests/kernels/windowed_attention.h"

namespace anyorder::bench {
namespace {

using kernels::testing::MakeWindowedAttention;
using kernels::testing::NormalValues;
using kernels::testing::Way;
using kernels::testing::WindowedAttention;
using kernels::testing::WindowedGradients;
using kernels::testing::WindowedInputs;
using kernels::testing::WindowedShape;

struct Options {
  std::string way = "fused";
  int64_t length = 1024;
  int64_t window = 64;
  int64_t globals = 1;
  int64_t dim = 64;
  int64_t rounds = 3;
};

// Kilobytes of a line of /proc/self/status.
int64_t StatusBytes(const std::string& name) {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (absl::StartsWith(line, name)) return 1024 * std::atoll(line.c_str() + name.size() + 1);
  }
  return 0;
}

absl::StatusOr<std::unique_ptr<WindowedAttention>> MakeLaunchBackend(const Options& options,
                                                                     WindowedShape shape,
                                                                     kernels::Backend& backend) {
  const std::map<std::string, Way> ways = {{"dense", Way::kDense},
                                           {"loop", Way::kLoop},
                                           {"chunks", Way::kChunks},
                                           {"fused", Way::kFused},
                                           {"online", Way::kFused}};
  const auto way = ways.find(options.way);
  if (way == ways.end())
    return absl::InvalidArgumentError("--way must be dense, loop, chunks, fused or online");
  if (options.way == "online") shape.band = kernels::Band();
  std::unique_ptr<WindowedAttention> attention = MakeWindowedAttention(way->second, shape, backend);
  if (attention == nullptr)
    return absl::InvalidArgumentError("chunks need a length that twice the window divides");
  return attention;
}

absl::Status RunBench(int argc, char** argv) {
  Options options;
  ANYORDER_RETURN_IF_ERROR(ParseOptions(argc, argv,
                                        {{"--way", &options.way},
                                         {"--length", &options.length},
                                         {"--window", &options.window},
                                         {"--globals", &options.globals},
                                         {"--dim", &options.dim},
                                         {"--rounds", &options.rounds}}));
  ANYORDER_ASSIGN_OR_RETURN(const std::unique_ptr<kernels::Backend> backend,
                            kernels::MakeCpuBackend({.num_threads = 1}));
  const auto side = static_cast<int32_t>(options.window);
  const WindowedShape shape = {
      options.length, options.dim, {side, side, 1}, options.globals, /*causal=*/false};
  const int64_t whole = shape.length * shape.head_dim;
  const std::vector<float> q = NormalValues(whole, 1), k = NormalValues(whole, 2),
                           v = NormalValues(whole, 3);
  const std::vector<float> global_q = NormalValues(shape.num_global * shape.head_dim, 4);
  const std::vector<float> global_k = NormalValues(whole, 5), global_v = NormalValues(whole, 6);
  const std::vector<float> dout = NormalValues(whole, 7);
  std::vector<float> out(q.size()), dq(q.size()), dk(q.size()), dv(q.size());
  std::vector<float> dglobal_q(global_q.size()), dglobal_k(q.size()), dglobal_v(q.size());
  // A first product, so that what the library sets up once is not counted.
  backend->Gemm({.a = ConstTensorView(q.data(), {options.dim, options.dim}),
                 .b = ConstTensorView(k.data(), {options.dim, options.dim}),
                 .bias = {},
                 .c = TensorView(dq.data(), {options.dim, options.dim})},
                {});
  const WindowedInputs in = {q.data(),        k.data(),        v.data(),
                             global_q.data(), global_k.data(), global_v.data()};
  const WindowedGradients gradients = {dq.data(),        dk.data(),        dv.data(),
                                       dglobal_q.data(), dglobal_k.data(), dglobal_v.data()};

  std::ofstream("/proc/self/clear_refs") << "5";  // the high-water mark begins here
  const int64_t before = StatusBytes("VmRSS:");
  ANYORDER_ASSIGN_OR_RETURN(const std::unique_ptr<WindowedAttention> attention,
                            MakeLaunchBackend(options, shape, *backend));
  double forward = 1e30;
  double backward = 1e30;
  for (int64_t round = 0; round < std::max<int64_t>(1, options.rounds); ++round) {
    const double begin = ProcessorSeconds();
    attention->Forward(in, out.data());
    const double middle = ProcessorSeconds();
    attention->Backward(in, out.data(), dout.data(), gradients);
    forward = std::min(forward, middle - begin);
    backward = std::min(backward, ProcessorSeconds() - middle);
  }
  std::cout
      << absl::StrFormat(
             R"({"way":"%s","length":%d,"window":%d,"globals":%d,"dim":%d,"forward":%.6f,"backward":%.6f,"bytes":%d})",
             options.way, options.length, options.window, options.globals, options.dim, forward,
             backward, StatusBytes("VmHWM:") - before)
      << std::endl;
  return absl::OkStatus();
}

}  // namespace
}  // namespace anyorder::bench

int main(int argc, char** argv) {
  return anyorder::ReportAndExitStatus("windowed_attention_bench",
                                       anyorder::bench::RunBench(argc, argv));
}
