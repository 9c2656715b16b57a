// Checks, the choice of an instruction set, threads, and sums over lanes. The arithmetic is in
// attention_*.h.

#include "kernels/cpu/attention/attention.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <new>
#include <vector>

#include "core/base/check.h"
#include "kernels/cpu/attention/attention_problem.h"

namespace anyorder::kernels::cpu {
namespace {

constexpr int64_t kAlignment = 64;
constexpr float kLn2 = 0.6931471805599453f;

// What this machine runs, best first.
const std::vector<const AttentionIsa*>& AvailableIsas() {
  static const std::vector<const AttentionIsa*>* const isas = [] {
    auto* list = new std::vector<const AttentionIsa*>;
#ifdef ANYORDER_X86_VARIANTS
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (avx512 && __builtin_cpu_supports("avx512bf16"))
      list->push_back(&attention_avx512_bf16::kIsa);
    if (avx512) list->push_back(&attention_avx512::kIsa);
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
      list->push_back(&attention_avx2::kIsa);
#endif
    list->push_back(&attention_base::kIsa);
    return list;
  }();
  return *isas;
}

// Null if there is none of this name.
const AttentionIsa* FindIsa(const std::string& name) {
  for (const AttentionIsa* isa : AvailableIsas())
    if (isa->name == name) return isa;
  return nullptr;
}

std::atomic<const AttentionIsa*> g_forced_isa{nullptr};

const AttentionIsa& ChosenIsa() {
  const AttentionIsa* forced = g_forced_isa.load();
  return forced != nullptr ? *forced : *AvailableIsas().front();
}

// Scratch of a thread: grows to the largest task it has met and stays. (Backing it by huge pages
// changed nothing at XLNet-Base shapes, Zen 5.)
class ThreadScratch {
 public:
  void* Get(int64_t bytes) {
    if (bytes > bytes_) {
      data_.reset(static_cast<char*>(
          ::operator new (static_cast<size_t>(bytes), std::align_val_t{kAlignment})));
      bytes_ = bytes;
    }
    return data_.get();
  }

 private:
  struct Free {
    void operator()(char* p) const { ::operator delete (p, std::align_val_t{kAlignment}); }
  };
  std::unique_ptr<char, Free> data_;
  int64_t bytes_ = 0;
};

AttentionProblem MakeProblem(const AttentionInputs& in) {
  const DType dtype = in.q.dtype();
  ANYORDER_CHECK(dtype == DType::kFloat32 || dtype == DType::kBFloat16)
      << "attention on the CPU takes F32 or BF16, not " << Name(dtype);
  AttentionProblem p;
  p.batch_size = in.shape.batch_size;
  p.content_rows = in.shape.content_rows;
  p.query_rows = in.shape.query_rows;
  p.num_keys = in.shape.num_keys;
  p.num_heads = in.shape.num_heads;
  p.num_kv_heads = in.shape.kv_heads();
  p.heads_per_kv = in.shape.heads_per_kv();
  p.head_dim = in.shape.head_dim;
  p.num_distances = in.relative.is_null() ? 0 : in.shape.num_distances;
  p.num_bias_distances = in.distance_bias.is_null() ? 0 : in.shape.num_bias_distances;
  p.row_stride = in.shape.model_dim();
  p.key_stride = in.shape.keys_dim();
  p.q = in.q.raw();
  p.k = in.k.raw();
  p.v = in.v.raw();
  p.relative = in.relative.raw();
  p.content_bias = in.content_bias.raw();
  p.position_bias = in.position_bias.raw();
  p.segment_bias = in.segment_bias.raw();
  p.segment_embedding = in.segment_embedding.raw();
  p.distance_bias = in.distance_bias.raw();
  p.min_distance = in.min_distance;
  p.min_bias_distance = in.min_bias_distance;
  p.table_of_lane = in.table_of_lane;
  p.scale = in.scale;
  p.rows = in.rows;
  p.keys = in.keys;
  p.bands = in.bands;
  p.dropout_key0 = in.dropout.key0;
  p.dropout_key1 = in.dropout.key1;
  p.dropout_site = in.dropout.site;
  p.dropout_threshold = in.dropout.threshold;
  p.dropout_scale = in.dropout.scale();
  p.row_ids = in.row_ids;
  return p;
}

// One task a (lane, head), backward a (lane, key/value head); which thread runs it does not matter.
void RunTasks(const AttentionProblem& p, const AttentionIsa& isa, bool bf16, bool backward,
              int num_threads) {
  const auto function = backward ? isa.backward : isa.forward;
  const int64_t scratch_bytes = isa.scratch_bytes(p, bf16, backward);
  const int64_t heads = backward ? p.num_kv_heads : p.num_heads;
  const int64_t num_tasks = p.batch_size * heads;
#pragma omp parallel num_threads(num_threads) if (num_threads > 1)
  {
    thread_local ThreadScratch scratch;
    void* const memory = scratch.Get(scratch_bytes);
#pragma omp for schedule(dynamic, 1)
    for (int64_t task = 0; task < num_tasks; ++task)
      function(p, bf16, task / heads, task % heads, memory);
  }
}

SlabLayout Slabs(const AttentionShape& shape) {
  const bool tables = shape.num_tables > 0;
  return SlabLayout(shape.head_dim, tables ? shape.num_distances : 0,
                    tables ? shape.num_bias_distances : 0);
}

// Sums what the tasks left in their slabs, lanes in increasing order.
class SlabSums {
 public:
  SlabSums(const AttentionBackwardArgs& args, const AttentionIsa& isa, const float* slabs)
      : args_(args), shape_(args.in.shape), layout_(Slabs(shape_)), isa_(isa), slabs_(slabs) {}

  void Write(int num_threads) const {
    if (!args_.drelative.is_null()) WriteTables(num_threads);
    WriteBias(args_.dcontent_bias, layout_.content_bias());
    WriteBias(args_.dposition_bias, layout_.position_bias());
    WriteBias(args_.dsegment_bias, layout_.segment_bias());
    if (!args_.ddistance_bias.is_null()) WriteDistanceBias();
    if (args_.dsegment_embedding.is_null()) return;
    // "different" is what was summed; "same" is its negative because each row's ds sums to zero.
    const int64_t width = shape_.model_dim();
    float* const same = args_.dsegment_embedding.data<float>();
    WriteBias(args_.dsegment_embedding.Slice(width, {width}), layout_.segment_embedding());
    for (int64_t i = 0; i < width; ++i) same[i] = -same[width + i];
  }

 private:
  const float* Row(int64_t lane, int64_t head, int64_t offset) const {
    return slabs_ + (lane * shape_.num_heads + head) * layout_.num_floats() + offset;
  }

  void WriteTables(int num_threads) const {
    const int64_t num_distances = shape_.num_distances;
    const bool bf16 = args_.drelative.dtype() == DType::kBFloat16;
    char* const out = static_cast<char*>(args_.drelative.raw());
    const int64_t row_bytes = shape_.head_dim * SizeOf(args_.drelative.dtype());
#pragma omp parallel num_threads(num_threads) if (num_threads > 1)
    {
      std::vector<const float*> rows(static_cast<size_t>(shape_.batch_size));
      // Slabs hold the table reversed, and in units of the packed queries (log2(e)).
      RowSum sum{rows.data(), 0, shape_.head_dim, kLn2};
#pragma omp for schedule(static)
      for (int64_t row = 0; row < shape_.num_tables * num_distances; ++row) {
        const int64_t reversed = num_distances - 1 - row % num_distances;
        for (int64_t head = 0; head < shape_.num_heads; ++head) {
          sum.num_rows = 0;
          for (int64_t lane = 0; lane < shape_.batch_size; ++lane) {
            if (args_.in.table_of_lane[lane] == row / num_distances)
              rows[static_cast<size_t>(sum.num_rows++)] =
                  Row(lane, head, reversed * layout_.padded_dim);
          }
          isa_.sum_rows(sum, bf16, out + (row * shape_.num_heads + head) * row_bytes);
        }
      }
    }
  }

  void WriteBias(TensorView bias, int64_t offset) const {
    if (bias.is_null()) return;
    std::vector<const float*> rows(static_cast<size_t>(shape_.batch_size));
    const RowSum sum{rows.data(), shape_.batch_size, shape_.head_dim, 1.0f};
    for (int64_t head = 0; head < shape_.num_heads; ++head) {
      for (int64_t lane = 0; lane < shape_.batch_size; ++lane)
        rows[static_cast<size_t>(lane)] = Row(lane, head, offset);
      isa_.sum_rows(sum, /*bf16=*/false, bias.data<float>() + head * shape_.head_dim);
    }
  }

  // Slabs hold the table reversed, between what the copies of its ends have gathered.
  void WriteDistanceBias() const {
    const int64_t num_distances = shape_.num_bias_distances;
    float* const out = args_.ddistance_bias.data<float>();
    for (int64_t table = 0; table < shape_.num_tables; ++table) {
      for (int64_t head = 0; head < shape_.num_heads; ++head) {
        std::vector<double> sums(static_cast<size_t>(num_distances), 0.0);
        for (int64_t lane = 0; lane < shape_.batch_size; ++lane) {
          if (args_.in.table_of_lane[lane] != table) continue;
          const float* const columns = Row(lane, head, layout_.distance_bias());
          for (int64_t c = 0; c < layout_.bias_columns(); ++c) {
            const int64_t x = std::clamp<int64_t>(c - kBiasPad, 0, num_distances - 1);
            sums[static_cast<size_t>(num_distances - 1 - x)] += columns[c];
          }
        }
        for (int64_t r = 0; r < num_distances; ++r)
          out[(table * num_distances + r) * shape_.num_heads + head] =
              static_cast<float>(sums[static_cast<size_t>(r)]);
      }
    }
  }

  const AttentionBackwardArgs& args_;
  const AttentionShape& shape_;
  SlabLayout layout_;
  const AttentionIsa& isa_;
  const float* slabs_;
};

}  // namespace

int64_t CpuAttentionBackwardWorkspaceBytes(const AttentionShape& shape) {
  return shape.batch_size * shape.num_heads * Slabs(shape).num_floats() * 4 + kAlignment;
}

void CpuAttentionForward(const AttentionForwardArgs& args, int num_threads) {
  AttentionProblem p = MakeProblem(args.in);
  p.out = args.out.raw();
  p.lse = static_cast<float*>(args.lse.raw());
  const bool bf16 = args.in.q.dtype() == DType::kBFloat16;
  RunTasks(p, ChosenIsa(), bf16, /*backward=*/false, num_threads);
}

void CpuAttentionBackward(const AttentionBackwardArgs& args, int num_threads) {
  AttentionProblem p = MakeProblem(args.in);
  const uintptr_t base = reinterpret_cast<uintptr_t>(args.workspace.raw());
  p.slabs = reinterpret_cast<float*>((base + kAlignment - 1) / kAlignment * kAlignment);
  p.out = const_cast<void*>(args.out.raw());  // backward only reads these two
  p.lse = const_cast<float*>(static_cast<const float*>(args.lse.raw()));
  p.dout = args.dout.raw();
  p.dq = args.dq.raw();
  p.dk = args.dk.raw();
  p.dv = args.dv.raw();
  const AttentionIsa& isa = ChosenIsa();
  const bool bf16 = args.in.q.dtype() == DType::kBFloat16;
  RunTasks(p, isa, bf16, /*backward=*/true, num_threads);
  SlabSums(args, isa, p.slabs).Write(num_threads);
}

bool AttentionIsaAvailable(const std::string& name) { return FindIsa(name) != nullptr; }

void ForceAttentionIsa(const std::string& name) {
  const AttentionIsa* const forced = FindIsa(name);
  ANYORDER_CHECK(forced != nullptr || name.empty()) << "no instruction set " << name;
  g_forced_isa.store(forced);
}

}  // namespace anyorder::kernels::cpu
