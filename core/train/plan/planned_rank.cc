#include "core/train/plan/planned_rank.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "dist/nccl_transport.h"

namespace anyorder {
namespace {

// Heads read rows that the last layer computes, spread over each lane; all other values are zero.
Batch MakeBatch(const BatchShape& shape) {
  Batch batch(shape);
  const bool reads_queries = shape.query_rows > 0 && !shape.content_readout;
  const int64_t rows = reads_queries ? shape.query_rows : shape.content_rows;
  const int64_t first = reads_queries ? shape.batch_size * shape.content_rows : 0;
  for (std::vector<int32_t>* named :
       {&batch.readout_rows, &batch.summary_rows, &batch.task_rows, &batch.global_slots}) {
    const int64_t of_lane = std::ssize(*named) / shape.batch_size;
    for (int64_t i = 0; i < std::ssize(*named); ++i)
      (*named)[i] = static_cast<int32_t>(first + i / of_lane * rows + i % of_lane * rows / of_lane);
  }
  return batch;
}

}  // namespace

// Ranks that take what is sent and send nothing back.
class PlannedRank::Peers final : public dist::Communicator {
 public:
  Peers(PlannedRank& owner, int rank)
      : Communicator(rank, static_cast<int>(owner.cluster_.ranks), "a planned node"),
        owner_(owner) {
    std::vector<int> node_of_rank;
    const int64_t of_node = owner.cluster_.ranks_per_node;
    for (int64_t i = 0; i < owner.cluster_.ranks; ++i)
      node_of_rank.push_back(static_cast<int>(of_node > 0 ? i / of_node : 0));
    set_nodes(dist::RankGroups(node_of_rank));
  }

  // Seconds that a message or several at once take.
  double Send(const WireBytes& bytes) {
    owner_.sent_.node += bytes.node;
    owner_.sent_.net += bytes.net;
    const auto at = [](double all, double rate) { return rate > 0 ? all / rate : 0; };
    return std::max(at(bytes.node, owner_.cluster_.node_bytes_per_second),
                    at(bytes.net, owner_.cluster_.net_bytes_per_second));
  }
  WireBytes BytesOf(absl::Span<const dist::SendBlock> send) const {
    WireBytes bytes;
    for (const dist::SendBlock& block : send)
      (owner_.cluster_.IsNear(rank(), block.to) ? bytes.node : bytes.net) +=
          static_cast<double>(block.bytes.size());
    return bytes;
  }

 private:
  // The host waits, and so does what it asks for next.
  void DoExchange(absl::Span<const dist::SendBlock> send,
                  absl::Span<const dist::ReceiveBlock>) override {
    owner_.backend_.Clock({}) += Send(BytesOf(send));
  }

  PlannedRank& owner_;
};

// As NCCL moves device memory: on a stream of its own, and all-gathers in rings that enter and
// leave each node once.
class PlannedRank::Wire final : public dist::DeviceTransport {
 public:
  Wire(PlannedRank& owner, std::unique_ptr<kernels::Stream> stream)
      : owner_(owner), stream_(std::move(stream)) {}

  std::string name() const override { return "NCCL"; }
  StreamView messages() const override { return stream_->view(); }
  void FollowMain() override { Follow(messages(), {}); }
  void Exchange(absl::Span<const dist::SendBlock> send, absl::Span<const dist::ReceiveBlock>,
                StreamView stream) override {
    Take(owner_.peers_->Send(owner_.peers_->BytesOf(send)), stream);
  }
  void AllGatherInPlace(absl::Span<char>, absl::Span<const int64_t> offsets,
                        StreamView stream) override {
    const double ranks = static_cast<double>(owner_.cluster_.ranks);
    const double bytes = static_cast<double>(offsets.back()) * (ranks - 1) / ranks;
    const Cluster& cluster = owner_.cluster_;
    const bool is_one_node = cluster.ranks_on_node() >= cluster.ranks;
    const double net = is_one_node ? 0 : bytes / static_cast<double>(cluster.ranks_on_node());
    Take(owner_.peers_->Send({.node = bytes - net, .net = net}), stream);
  }

 private:
  void Follow(StreamView stream, StreamView other) {
    owner_.backend_.Clock(stream) =
        std::max(owner_.backend_.Clock(stream), owner_.backend_.Clock(other));
  }
  void Take(double seconds, StreamView stream) {
    const bool is_main = stream.handle == nullptr;
    if (is_main) FollowMain();
    owner_.backend_.Clock(messages()) += seconds;
    if (is_main) Follow({}, messages());
  }

  PlannedRank& owner_;
  const std::unique_ptr<kernels::Stream> stream_;
};

PlannedRank::PlannedRank(const RunConfig& config, const Cluster& cluster)
    : config_(config), cluster_(cluster), backend_(cluster.device) {}
PlannedRank::~PlannedRank() = default;

absl::StatusOr<std::unique_ptr<PlannedRank>> PlannedRank::Create(const RunConfig& config,
                                                                 int64_t vocab_size,
                                                                 const Cluster& cluster, int rank) {
  std::unique_ptr<PlannedRank> planned(new PlannedRank(config, cluster));
  RETURN_IF_ERROR(planned->SetUp(vocab_size, rank));
  return planned;
}

absl::Status PlannedRank::SetUp(int64_t vocab_size, int rank) {
  peers_ = std::make_unique<Peers>(*this, rank);
  backend_.set_purpose("messages");
  const bool by_library = cluster_.device.is_gpu && cluster_.ranks > 1 &&
                          config_.dist.transport != dist::TransportKind::kMpi;
  if (by_library) {
    ASSIGN_OR_RETURN(std::unique_ptr<kernels::Stream> stream,
                     backend_.MakeStream(kernels::StreamPurpose::kMessages));
    transport_ = std::make_unique<Wire>(*this, std::move(stream));
  } else {
    ASSIGN_OR_RETURN(transport_, dist::MakeCommunicatorTransport(*peers_, backend_));
  }
  ASSIGN_OR_RETURN(objective_, MakeObjective(config_));
  RETURN_IF_ERROR(parts_.SetUp({config_, *objective_, vocab_size, *peers_, backend_, *transport_},
                               [] { return true; }));
  if (config_.eval.every == 0) return absl::OkStatus();
  EvaluatorOptions options = PeriodicEvaluatorOptions(config_);
  options.rank = rank;
  options.world_size = static_cast<int>(cluster_.ranks);
  ASSIGN_OR_RETURN(evaluator_, Evaluator::CreateWithoutText(config_, options, vocab_size,
                                                            *parts_.network, backend_));
  return absl::OkStatus();
}

PlannedStep PlannedRank::Step() {
  const kernels::OperationCost before = backend_.cost();
  sent_ = {};
  const double started = backend_.Clock({});
  const Batch batch = MakeBatch(objective_->Shape(config_.train.micro_batch_size));
  parts_.finder->Clear();
  const std::vector<double> scalars(parts_.num_scalars());
  const std::vector<int64_t>& leaves = parts_.reducer->leaves();
  for (size_t index = 0; index < leaves.size(); ++index) {
    StepArgs args = parts_.MicrobatchArgs(config_.train.seed);
    args.batch = &batch;
    args.memory = parts_.state->memory(static_cast<int64_t>(index));
    parts_.network->Run(args, {});
    parts_.finder->EndLeaf(leaves[index], 0);
    parts_.reducer->CommitLeaf(leaves[index], scalars);
  }
  for (auto index = std::ssize(leaves); index < parts_.reducer->num_leaves(); ++index) {
    parts_.network->Skip(parts_.MicrobatchArgs(config_.train.seed));
    parts_.reducer->SkipLeaf();
  }
  std::vector<double> totals(scalars.size());
  const TensorView gradient = parts_.reducer->ReduceScatter(absl::MakeSpan(totals));
  const double reduced = backend_.cost().flat_bytes;
  // What ranks compare is equal here.
  if (parts_.replica_check->IsDue(1)) parts_.replica_check->Compare(1, *parts_.state).IgnoreError();
  parts_.state->optimizer().Step(gradient, {.grad_scale = 1}, parts_.state->weights());
  parts_.state->AdvanceMemory();
  parts_.state->optimizer().AwaitOutcome();
  return {.cost = backend_.cost() - before,
          .update_bytes = backend_.cost().flat_bytes - reduced,
          .sent = sent_,
          .seconds = backend_.Clock({}) - started};
}

}  // namespace anyorder
