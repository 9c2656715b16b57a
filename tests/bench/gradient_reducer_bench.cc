// Time of one step's gradient reduction, with all of a rank's leaves exchanged at once and with one
// after the other, and of the optimizer step that follows.
// Usage: mpiexec -n R gradient_reducer_bench [elements [leaves [repeats]]]
// One JSON line for each from rank 0: medians over the repeats of the slowest rank, bytes sent per
// rank.

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "absl/strings/str_format.h"

#include "core/base/status.h"
#include "dist/gradient_reducer.h"
#include "dist/mpi_communicator.h"
#include "dist/sharded_optimizer.h"
#include "tests/bench/options.h"

namespace anyorder::dist {
namespace {

struct Sizes {
  int64_t elements = 5500000;
  int64_t leaves = 8;
  int64_t repeats = 15;
};

// Seconds from the moment all ranks are there until the last one is done.
template <typename Work>
double SlowestRank(Communicator& comm, Work work) {
  comm.Barrier();
  double seconds = bench::SecondsOf(work);
  comm.AllReduceMax(absl::MakeSpan(&seconds, 1));
  return seconds;
}

void Measure(Communicator& comm, kernels::Backend& backend, const Sizes& sizes,
             int64_t leaves_per_exchange) {
  const auto transport = MakeCommunicatorTransport(comm, backend).value();
  const auto reducer =
      GradientReducer::Create(comm, backend, *transport,
                              {sizes.elements, sizes.leaves, 2, leaves_per_exchange})
          .value();
  const auto optimizer = ShardedOptimizer::Create(comm, backend, *transport, sizes.elements,
                                                  {{0, sizes.elements, true}}, OptimizerConfig())
                             .value();
  const auto weights = WeightWindows::Create(comm, backend, *transport, {sizes.elements}).value();
  ConstTensorView gradient;
  std::vector<double> scalars(2);
  std::vector<double> add_ms;
  std::vector<double> reduce_ms;
  std::vector<double> step_ms;
  int64_t bytes_sent = 0;
  for (int64_t repeat = 0; repeat < sizes.repeats; ++repeat) {
    double add = 0;
    for (const int64_t leaf : reducer->leaves()) {
      for (const GradientReducer::Place& place : reducer->LeafPlaces())
        std::fill_n(place.data, place.range.size(), 1e-3f * static_cast<float>(leaf + 1));
      add += 1e3 * bench::SecondsOf([&] { reducer->CommitLeaf(leaf, {1.0, 2.0}); });
    }
    add_ms.push_back(add);
    reduce_ms.push_back(1e3 * SlowestRank(comm, [&] {
                          const int64_t sent_before = comm.bytes_sent();
                          gradient = reducer->ReduceScatter(absl::MakeSpan(scalars));
                          bytes_sent = comm.bytes_sent() - sent_before;
                        }));
    step_ms.push_back(1e3 * SlowestRank(comm, [&] {
                        optimizer->Step(gradient, {1e-4, 1.0}, *weights);
                      }));
  }
  if (comm.rank() != 0) return;
  absl::PrintF(
      "{\"name\": \"gradient_reducer\", \"leaves_per_exchange\": %d, \"backend\": \"%s\", "
      "\"ranks\": %d, "
      "\"elements\": %d, \"leaves\": %d, \"local_add_ms\": %.2f, \"reduce_scatter_ms\": %.2f, "
      "\"optimizer_step_ms\": %.2f, \"bytes_sent\": %d}\n",
      leaves_per_exchange, backend.name(), comm.world_size(), sizes.elements, sizes.leaves,
      bench::Median(add_ms), bench::Median(reduce_ms), bench::Median(step_ms), bytes_sent);
}

absl::Status RunBench(int argc, char** argv) {
  ASSIGN_OR_RETURN(const auto environment, MpiEnvironment::Create(&argc, &argv));
  Sizes sizes;
  if (argc > 1) sizes.elements = std::atoll(argv[1]);
  if (argc > 2) sizes.leaves = std::atoll(argv[2]);
  if (argc > 3) sizes.repeats = std::atoll(argv[3]);
  const auto world = environment->World();
  ASSIGN_OR_RETURN(const auto backend, kernels::MakeCpuBackend({}));
  for (const int64_t leaves_per_exchange : {0, 1})
    Measure(*world, *backend, sizes, leaves_per_exchange);
  return absl::OkStatus();
}

}  // namespace
}  // namespace anyorder::dist

int main(int argc, char** argv) {
  return anyorder::ReportAndExitStatus("gradient_reducer_bench",
                                       anyorder::dist::RunBench(argc, argv));
}
