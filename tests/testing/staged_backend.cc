#include "tests/testing/staged_backend.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "kernels/arguments.h"
#include "tests/testing/forwarding_backend.h"

namespace anyorder::testing {
namespace {

using namespace kernels;  // NOLINT: a list of all its argument structs

// The memory that one call's arguments point to.
class Transfer {
 public:
  explicit Transfer(Backend& backend) : backend_(backend) {}

  // With so many elements behind the tensor, which the operation may use, too.
  void In(ConstTensorView& view, int64_t behind = 0) { Add(view, behind, false); }
  void Out(TensorView& view, int64_t behind = 0) { Add(view, behind, true); }
  template <typename T>
  void Out(T*& object) {
    const T* read = object;
    In(read, 1);
    if (object == nullptr) return;
    places_.back().is_written = true;
    places_.back().set = [&object](char* device) { object = reinterpret_cast<T*>(device); };
  }
  // Device memory of the same size; nothing travels.
  void Workspace(TensorView& view) {
    if (view.is_null()) return;
    workspace_ = backend_.Allocate(view.num_bytes()).value();
    view = TensorView(workspace_->data(), view.dtype(), view.shape());
  }
  template <typename T>
  void In(const T*& array, int64_t count) {
    if (array == nullptr) return;
    places_.push_back({reinterpret_cast<const char*>(array),
                       count * static_cast<int64_t>(sizeof(T)), false,
                       [&array](char* device) { array = reinterpret_cast<const T*>(device); }});
  }

  // Everything to the device; the arguments now point there.
  void Send() {
    // The longer first: a place of no elements may lie at another's begin.
    std::stable_sort(places_.begin(), places_.end(), [](const Place& a, const Place& b) {
      return std::pair(a.host, -a.bytes) < std::pair(b.host, -b.bytes);
    });
    for (Place& place : places_)
      Join(place);
    for (Range& range : ranges_) {
      range.buffer = backend_.Allocate(range.bytes + kAlignment).value();
      // As aligned as the test made it.
      range.device = static_cast<char*>(range.buffer->data()) +
                     reinterpret_cast<uintptr_t>(range.host) % kAlignment;
      backend_.CopyToDevice(range.host, range.device, range.bytes, {});
    }
    for (const Place& place : places_) {
      const Range& range = ranges_[place.range];
      place.set(range.device + (place.host - range.host));
    }
  }

  // Results to the host.
  void Receive() {
    for (Range& range : ranges_) {
      range.after.resize(static_cast<size_t>(range.bytes));
      backend_.CopyToHost(range.device, range.after.data(), range.bytes, {});
    }
    backend_.Synchronize({});
    for (const Place& place : places_) {
      Range& range = ranges_[place.range];
      if (place.is_written) {
        std::memcpy(const_cast<char*>(place.host), range.after.data() + (place.host - range.host),
                    static_cast<size_t>(place.bytes));
      }
    }
    // Written places are alike by now; the others must be.
    for (const Range& range : ranges_)
      ANYORDER_CHECK(std::equal(range.after.begin(), range.after.end(), range.host))
          << "an operation wrote to what it may only read";
  }

 private:
  static constexpr int64_t kAlignment = 64;
  struct Place {
    const char* host;
    int64_t bytes;
    bool is_written;
    std::function<void(char*)> set;
    size_t range = 0;
  };
  // Places that overlap travel together.
  struct Range {
    const char* host;
    int64_t bytes;
    std::unique_ptr<Buffer> buffer;
    char* device = nullptr;
    std::vector<char> after;
  };

  template <typename View>
  void Add(View& view, int64_t behind, bool is_written) {
    if (view.is_null()) return;
    places_.push_back({static_cast<const char*>(view.raw()),
                       view.num_bytes() + behind * SizeOf(view.dtype()), is_written,
                       [&view](char* device) { view = View(device, view.dtype(), view.shape()); }});
  }

  void Join(Place& place) {
    if (ranges_.empty() || place.host >= ranges_.back().host + ranges_.back().bytes)
      ranges_.push_back({place.host, 0, nullptr, nullptr, {}});
    Range& range = ranges_.back();
    range.bytes = std::max(range.bytes, place.host + place.bytes - range.host);
    place.range = ranges_.size() - 1;
  }

  Backend& backend_;
  std::vector<Place> places_;
  std::vector<Range> ranges_;
  std::unique_ptr<Buffer> workspace_;
};

void Visit(GemmArgs& args, Transfer& t) {
  const GemmBatch& batch = args.batch;
  const int64_t others = std::max<int64_t>(0, batch.count - 1);
  t.In(args.a, others * batch.a);
  t.In(args.b, others * batch.b);
  t.In(args.bias, others * batch.bias);
  t.Out(args.c, others * batch.c);
  t.Out(args.a_sum, others * batch.sum);
  t.Out(args.b_sum, others * batch.sum);
}
void Visit(ColumnSumArgs& args, Transfer& t) {
  t.In(args.x);
  t.Out(args.y);
}
void Visit(AttentionInputs& in, Transfer& t) {
  const AttentionShape& shape = in.shape;
  for (ConstTensorView* view :
       {&in.q, &in.k, &in.v, &in.relative, &in.content_bias, &in.position_bias, &in.segment_bias,
        &in.segment_embedding, &in.distance_bias})
    t.In(*view);
  t.In(in.table_of_lane, shape.batch_size);
  t.In(in.bands, shape.num_heads);
  const int64_t rows = shape.num_rows();
  for (const int32_t** array :
       {&in.rows.pos, &in.rows.lim, &in.rows.grp, &in.rows.doc, &in.rows.seg, &in.row_ids})
    t.In(*array, rows);
  t.In(in.rows.glob, rows);
  const int64_t keys = shape.batch_size * shape.num_keys;
  for (const int32_t** array :
       {&in.keys.pos, &in.keys.key, &in.keys.grp, &in.keys.doc, &in.keys.seg})
    t.In(*array, keys);
  t.In(in.keys.glob, keys);
}
void Visit(AttentionForwardArgs& args, Transfer& t) {
  Visit(args.in, t);
  t.Out(args.out);
  t.Out(args.lse);
}
void Visit(AttentionBackwardArgs& args, Transfer& t) {
  Visit(args.in, t);
  t.In(args.out);
  t.In(args.lse);
  t.In(args.dout);
  for (TensorView* view :
       {&args.dq, &args.dk, &args.dv, &args.drelative, &args.dcontent_bias, &args.dposition_bias,
        &args.dsegment_bias, &args.dsegment_embedding, &args.ddistance_bias})
    t.Out(*view);
  t.Workspace(args.workspace);
}
void Visit(ActivationForwardArgs& args, Transfer& t) {
  t.In(args.x);
  t.In(args.row_ids, NumRows(args.x));
  t.Out(args.y);
}
void Visit(ActivationBackwardArgs& args, Transfer& t) {
  t.In(args.row_ids, NumRows(args.x));
  t.In(args.x);
  t.In(args.dy);
  t.Out(args.dx);
}
void Visit(DropoutArgs& args, Transfer& t) {
  t.In(args.row_ids, NumRows(args.x));
  t.In(args.x);
  t.Out(args.y);
}
void Visit(LayerNormForwardArgs& args, Transfer& t) {
  t.In(args.row_ids, NumRows(args.x));
  for (ConstTensorView* view : {&args.x, &args.residual, &args.gamma, &args.beta})
    t.In(*view);
  for (TensorView* view : {&args.sum, &args.mean, &args.rstd, &args.y})
    t.Out(*view);
}
void Visit(LayerNormBackwardArgs& args, Transfer& t) {
  t.In(args.row_ids, NumRows(args.dy));
  for (ConstTensorView* view : {&args.dy, &args.sum, &args.mean, &args.rstd, &args.gamma})
    t.In(*view);
  for (TensorView* view : {&args.dx, &args.dresidual, &args.dgamma, &args.dbeta})
    t.Out(*view);
}
void Visit(EmbeddingForwardArgs& args, Transfer& t) {
  t.In(args.ids, NumRows(args.y));
  t.In(args.row_ids, NumRows(args.y));
  t.In(args.table);
  t.Out(args.y);
}
void Visit(EmbeddingBackwardArgs& args, Transfer& t) {
  t.In(args.ids, NumRows(args.dy));
  t.In(args.row_ids, NumRows(args.dy));
  t.In(args.dy);
  t.Out(args.dtable);
}
void Visit(LinearCrossEntropyArgs& args, Transfer& t) {
  t.In(args.labels, NumRows(args.x));
  t.In(args.row_weights, NumRows(args.x));
  for (ConstTensorView* view : {&args.x, &args.weight, &args.bias})
    t.In(*view);
  for (TensorView* view : {&args.loss, &args.dx, &args.dweight, &args.dbias})
    t.Out(*view);
  t.Workspace(args.workspace);
}
void Visit(AdamWArgs& args, Transfer& t) {
  t.In(args.grad);
  for (TensorView* view : {&args.master, &args.m, &args.v, &args.weights})
    t.Out(*view);
  t.In(args.control, 1);
}
void Visit(ComputeGradientClipArgs& args, Transfer& t) {
  t.In(args.sums);
  t.Out(args.control);
}
void Visit(CopyRowsArgs& args, Transfer& t) {
  t.In(args.source);
  t.Out(args.destination);
}
void Visit(GatherRowsArgs& args, Transfer& t) {
  t.In(args.rows, args.num_rows);
  t.In(args.x);
  t.Out(args.y);
}
void Visit(RotaryArgs& args, Transfer& t) {
  t.In(args.x);
  t.In(args.angles);
  t.Out(args.y);
}

class StagedBackend final : public ForwardingBackend {
 public:
  explicit StagedBackend(std::unique_ptr<Backend> inner) : ForwardingBackend(std::move(inner)) {}

  void Gemm(const GemmArgs& args, StreamView stream) override {
    Staged(args, [&](const auto& moved) { ForwardingBackend::Gemm(moved, stream); });
  }
  void ColumnSum(const ColumnSumArgs& args, StreamView stream) override {
    Staged(args, [&](const auto& moved) { ForwardingBackend::ColumnSum(moved, stream); });
  }
  void AttentionForward(const AttentionForwardArgs& args, StreamView stream) override {
    Staged(args, [&](const auto& moved) { ForwardingBackend::AttentionForward(moved, stream); });
  }
  void AttentionBackward(const AttentionBackwardArgs& args, StreamView stream) override {
    Staged(args, [&](const auto& moved) { ForwardingBackend::AttentionBackward(moved, stream); });
  }
  void ActivationForward(const ActivationForwardArgs& args, StreamView stream) override {
    Staged(args, [&](const auto& moved) { ForwardingBackend::ActivationForward(moved, stream); });
  }
  void ActivationBackward(const ActivationBackwardArgs& args, StreamView stream) override {
    Staged(args, [&](const auto& moved) { ForwardingBackend::ActivationBackward(moved, stream); });
  }
  void DropoutApply(const DropoutArgs& args, StreamView stream) override {
    Staged(args, [&](const auto& moved) { ForwardingBackend::DropoutApply(moved, stream); });
  }
  void LayerNormForward(const LayerNormForwardArgs& args, StreamView stream) override {
    Staged(args, [&](const auto& moved) { ForwardingBackend::LayerNormForward(moved, stream); });
  }
  void LayerNormBackward(const LayerNormBackwardArgs& args, StreamView stream) override {
    Staged(args, [&](const auto& moved) { ForwardingBackend::LayerNormBackward(moved, stream); });
  }
  void EmbeddingForward(const EmbeddingForwardArgs& args, StreamView stream) override {
    Staged(args, [&](const auto& moved) { ForwardingBackend::EmbeddingForward(moved, stream); });
  }
  void EmbeddingBackward(const EmbeddingBackwardArgs& args, StreamView stream) override {
    Staged(args, [&](const auto& moved) { ForwardingBackend::EmbeddingBackward(moved, stream); });
  }
  void LinearCrossEntropy(const LinearCrossEntropyArgs& args, StreamView stream) override {
    Staged(args, [&](const auto& moved) { ForwardingBackend::LinearCrossEntropy(moved, stream); });
  }
  void AdamW(const AdamWArgs& args, StreamView stream) override {
    Staged(args, [&](const auto& moved) { ForwardingBackend::AdamW(moved, stream); });
  }
  void ComputeGradientClip(const ComputeGradientClipArgs& args, StreamView stream) override {
    Staged(args, [&](const auto& moved) { ForwardingBackend::ComputeGradientClip(moved, stream); });
  }
  void CopyRows(const CopyRowsArgs& args, StreamView stream) override {
    Staged(args, [&](const auto& moved) { ForwardingBackend::CopyRows(moved, stream); });
  }
  void GatherRows(const GatherRowsArgs& args, StreamView stream) override {
    Staged(args, [&](const auto& moved) { ForwardingBackend::GatherRows(moved, stream); });
  }
  void RotaryApply(const RotaryArgs& args, StreamView stream) override {
    Staged(args, [&](const auto& moved) { ForwardingBackend::RotaryApply(moved, stream); });
  }
  void SumOfSquares(ConstTensorView x, TensorView sums, StreamView stream) override {
    Flat({&x}, sums, [&] { ForwardingBackend::SumOfSquares(x, sums, stream); });
  }
  void Add(ConstTensorView a, ConstTensorView b, TensorView y, StreamView stream) override {
    Flat({&a, &b}, y, [&] { ForwardingBackend::Add(a, b, y, stream); });
  }
  void Cast(ConstTensorView x, TensorView y, StreamView stream) override {
    Flat({&x}, y, [&] { ForwardingBackend::Cast(x, y, stream); });
  }
  void Digest(ConstTensorView x, TensorView digest, StreamView stream) override {
    Flat({&x}, digest, [&] { ForwardingBackend::Digest(x, digest, stream); });
  }
  void FillZero(TensorView x, StreamView stream) override {
    Flat({}, x, [&] { ForwardingBackend::FillZero(x, stream); });
  }

 private:
  template <typename Args, typename Operation>
  void Staged(Args args, Operation&& operation) {
    Transfer transfer(*this);
    Visit(args, transfer);
    transfer.Send();
    operation(args);
    transfer.Receive();
  }
  template <typename Operation>
  void Flat(std::initializer_list<ConstTensorView*> in, TensorView& out, Operation&& operation) {
    Transfer transfer(*this);
    for (ConstTensorView* view : in)
      transfer.In(*view);
    transfer.Out(out);
    transfer.Send();
    operation();
    transfer.Receive();
  }
};

}  // namespace

std::unique_ptr<Backend> MakeStagedBackend(std::unique_ptr<Backend> inner) {
  return std::make_unique<StagedBackend>(std::move(inner));
}

}  // namespace anyorder::testing
