#include "data/prep/assembler.h"

#include <utility>

#include "absl/strings/string_view.h"

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/base/varint.h"
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
      num_sentences_ = 0;
      stats_ = DocumentStats();
    }
    num_sentences_ += part.num_sentences;
    // Only parts that are no whole documents come unjudged.
    was_judged_ = part.is_whole();
    stats_.Append(part.stats);
    hash_ = part.hash;
  }

  void Finish() {
    Decide();
    decisions_.corpus_digest = corpus_.Value().Hex();
  }

 private:
  void Decide() {
    if (!std::exchange(has_document_, false)) return;
    if (!was_judged_) hash_ = stats_.Hash();
    const bool is_empty = !was_judged_ && stats_.totals.lines == 0;
    const Verdict verdict = is_empty ? Verdict::kWithoutTokens : Judge();
    if (!is_empty) decisions_.totals.verdicts.Add(verdict, stats_);
    decisions_.keep.push_back(verdict == Verdict::kKeep);
    if (verdict != Verdict::kKeep) return;
    const uint64_t words[2] = {hash_.lo, hash_.hi};
    corpus_.Update({reinterpret_cast<const char*>(words), sizeof words});
    ++decisions_.num_documents;
    decisions_.num_sentences += num_sentences_;
  }

  Verdict Judge() {
    const Verdict verdict = was_judged_ ? Verdict::kKeep : stats_.Judge(options_.filter);
    if (verdict != Verdict::kKeep) return verdict;
    if (num_sentences_ == 0) return Verdict::kWithoutTokens;
    if (options_.drop_duplicates && !seen_.Insert(hash_)) return Verdict::kDuplicate;
    return Verdict::kKeep;
  }

  const UnitOptions& options_;
  AssemblyDecisions& decisions_;
  DocumentCounter counter_;
  // The document that is being joined:
  bool has_document_ = false;
  bool was_judged_ = false;
  uint64_t num_sentences_ = 0;
  DocumentStats stats_;  // only its bytes if it was judged
  Digest128 hash_;
  DigestSet seen_;
  StreamingDigest corpus_;
};

void AddCounts(const UnitCounts& counts, UnitCounts& totals) {
  totals.text.bytes += counts.text.bytes;
  totals.text.invalid_replaced += counts.text.invalid_replaced;
  totals.text.long_lines += counts.text.long_lines;
  for (size_t i = 0; i < std::size(kScripts); ++i) {
    totals.text.marks.letters[i] += counts.text.marks.letters[i];
    totals.text.marks.bare[i] += counts.text.marks.bare[i];
  }
  for (int i = 0; i < kNumVerdicts; ++i) {
    totals.verdicts.documents[i] += counts.verdicts.documents[i];
    totals.verdicts.bytes[i] += counts.verdicts.bytes[i];
  }
}

absl::Status CopySentences(absl::Span<const char> stored, uint64_t token_bytes,
                           ShardWriter& shards) {
  absl::string_view rest(stored.data(), stored.size());
  while (!rest.empty()) {
    const uint64_t bytes = TakeVarint(rest).value_or(0) * token_bytes;
    ANYORDER_CHECK(bytes > 0 && bytes <= rest.size()) << "sentence cut, bytes=" << bytes;
    RETURN_IF_ERROR(shards.AddSentence({rest.data(), bytes}));
    rest.remove_prefix(bytes);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<AssemblyDecisions> DecideDocuments(const std::vector<Digest128>& keys,
                                                  UnitFiles& units, const UnitOptions& options) {
  AssemblyDecisions decisions;
  Decider decider(options, decisions);
  for (const Digest128& key : keys) {
    ASSIGN_OR_RETURN(const UnitCounts counts,
                     units.Read(key, /*verify=*/true, [&](const DocumentPart& part) {
                       decider.Add(part);
                       return absl::OkStatus();
                     }));
    AddCounts(counts, decisions.totals);
  }
  decider.Finish();
  return decisions;
}

absl::StatusOr<DatasetIndex> WriteDataset(const std::vector<Digest128>& keys, UnitFiles& units,
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
  const auto write = [&](const DocumentPart& part) -> absl::Status {
    if (counter.Begins(part)) {
      if (std::exchange(needs_end, false)) RETURN_IF_ERROR(shards.EndDocument());
      is_kept = decisions.keep[next_document++];
      needs_end = is_kept;
    }
    return is_kept ? CopySentences(part.sentences, token_bytes, shards) : absl::OkStatus();
  };
  for (const Digest128& key : keys) {
    RETURN_IF_ERROR(units.Read(key, /*verify=*/false, write).status());
  }
  if (needs_end) RETURN_IF_ERROR(shards.EndDocument());
  return shards.Finish();
}

}  // namespace anyorder::data
