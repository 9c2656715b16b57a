#include "data/prep/assembler.h"

#include <cstring>
#include <utility>

#include "absl/container/flat_hash_set.h"

#include "core/base/check.h"
#include "core/base/digest.h"
#include "core/base/status.h"
#include "data/dataset/shard_format.h"
#include "data/prep/shard_writer.h"

namespace anyorder::data {
namespace {

// Tells where documents begin among the parts of all units. Both passes number documents with it,
// so they agree.
class DocumentCounter {
 public:
  // Whether `part` begins a new document. Call for every part, in order.
  bool Begins(const DocumentPart& part) {
    const bool begins = !(is_open_ && part.is_continuation);
    is_open_ = !part.is_closed;
    return begins;
  }

 private:
  bool is_open_ = false;
};

class Decider {
 public:
  Decider(const UnitOptions& options, AssemblyDecisions& decisions)
      : options_(options), decisions_(decisions) {}

  void Add(const DocumentPart& part) {
    if (counter_.Begins(part)) {
      Decide();
      has_document_ = true;
      document_ = part;
    } else {
      document_.num_tokens += part.num_tokens;
      document_.num_sentences += part.num_sentences;
      document_.stats.Append(part.stats);
      was_joined_ = true;
    }
    // Only parts that are no whole documents come unjudged.
    was_joined_ |= !part.is_closed || part.is_continuation;
  }

  void Finish() {
    Decide();
    decisions_.corpus_digest = corpus_.Value().Hex();
  }

 private:
  void Decide() {
    if (!std::exchange(has_document_, false)) return;
    const bool keep = Judge(std::exchange(was_joined_, false));
    decisions_.keep.push_back(keep);
    if (!keep) return;
    const Digest128 hash = document_.stats.Hash();
    const uint64_t words[2] = {hash.lo, hash.hi};
    corpus_.Update({reinterpret_cast<const char*>(words), sizeof words});
    ++decisions_.num_documents;
    decisions_.num_sentences += document_.num_sentences;
  }

  bool Judge(bool was_joined) {
    if (document_.stats.totals.lines == 0) return false;
    const Verdict verdict = was_joined ? document_.stats.Judge(options_.filter) : Verdict::kKeep;
    if (verdict != Verdict::kKeep) {
      ++decisions_.totals.verdicts[static_cast<int>(verdict)];
      return false;
    }
    if (document_.num_tokens == 0) {
      ++decisions_.num_empty;
      return false;
    }
    if (options_.drop_duplicates && !seen_.insert(document_.stats.Hash()).second) {
      ++decisions_.totals.duplicates;
      return false;
    }
    return true;
  }

  const UnitOptions& options_;
  AssemblyDecisions& decisions_;
  DocumentCounter counter_;
  DocumentPart document_;  // the one being joined
  bool has_document_ = false;
  bool was_joined_ = false;
  absl::flat_hash_set<Digest128> seen_;
  StreamingDigest corpus_;
};

void AddCounts(const UnitCounts& counts, UnitCounts& totals) {
  totals.text.bytes += counts.text.bytes;
  totals.text.invalid_replaced += counts.text.invalid_replaced;
  totals.text.long_lines += counts.text.long_lines;
  totals.duplicates += counts.duplicates;
  for (int i = 0; i < kNumVerdicts; ++i) totals.verdicts[i] += counts.verdicts[i];
}

absl::Status CopySentences(absl::Span<const char> stored, uint64_t token_bytes,
                           ShardWriter& shards) {
  while (!stored.empty()) {
    uint32_t count = 0;
    ANYORDER_CHECK(stored.size() >= sizeof count) << "sentence header cut";
    std::memcpy(&count, stored.data(), sizeof count);
    stored.remove_prefix(sizeof count);
    ANYORDER_CHECK(stored.size() >= count * token_bytes) << "sentence cut, count=" << count;
    RETURN_IF_ERROR(shards.AddSentence(stored.first(count * token_bytes)));
    stored.remove_prefix(count * token_bytes);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<AssemblyDecisions> DecideDocuments(const std::vector<std::string>& unit_paths,
                                                  const UnitOptions& options) {
  AssemblyDecisions decisions;
  Decider decider(options, decisions);
  for (const std::string& path : unit_paths) {
    ASSIGN_OR_RETURN(const WorkUnit unit, WorkUnit::Open(path, /*verify=*/true));
    AddCounts(unit.counts(), decisions.totals);
    for (const DocumentPart& part : unit.parts()) decider.Add(part);
  }
  decider.Finish();
  return decisions;
}

absl::StatusOr<DatasetIndex> WriteDataset(const std::vector<std::string>& unit_paths,
                                          const AssemblyDecisions& decisions,
                                          const std::string& directory, DatasetIndex index,
                                          const std::vector<bool>& is_start_piece) {
  index.num_documents = decisions.num_documents;
  index.num_sentences = decisions.num_sentences;
  const uint64_t token_bytes = index.token_bytes;
  ShardWriter shards(directory, std::move(index), is_start_piece);
  DocumentCounter counter;
  uint64_t next_document = 0;
  bool is_kept = false;
  bool needs_end = false;  // a kept document waits for its <eod>
  for (const std::string& path : unit_paths) {
    ASSIGN_OR_RETURN(const WorkUnit unit, WorkUnit::Open(path, /*verify=*/false));
    for (const DocumentPart& part : unit.parts()) {
      if (counter.Begins(part)) {
        if (std::exchange(needs_end, false)) RETURN_IF_ERROR(shards.EndDocument());
        is_kept = decisions.keep[next_document++];
        needs_end = is_kept;
      }
      if (!is_kept) continue;
      RETURN_IF_ERROR(CopySentences(unit.sentences(part), token_bytes, shards));
    }
  }
  if (needs_end) RETURN_IF_ERROR(shards.EndDocument());
  return shards.Finish();
}

}  // namespace anyorder::data
