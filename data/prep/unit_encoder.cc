#include "data/prep/unit_encoder.h"

#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"

#include "core/base/file_system.h"
#include "core/base/philox.h"
#include "core/base/status.h"
#include "data/dataset/shard_format.h"
#include "data/prep/byte_source.h"
#include "data/prep/work_unit.h"

namespace anyorder::data {
namespace {

// Collects one document at a time and stores its tokens.
class EncodingSink : public SentenceSink {
 public:
  EncodingSink(const UnitOptions& options, const Tokenizer& tokenizer, WorkUnitWriter& writer,
               UnitCounts& counts)
      : options_(options), tokenizer_(tokenizer), writer_(writer), counts_(counts) {}

  void Begin(bool is_continuation) { part_.is_continuation = is_continuation; }

  absl::Status OnSentence(std::string_view sentence) override {
    part_.stats.AddLine(sentence);
    if (!is_streaming_ && text_.size() + sentence.size() <= kMaxBufferedDocumentBytes) {
      text_.append(sentence);
      text_.push_back('\n');
      return absl::OkStatus();
    }
    ANYORDER_RETURN_IF_ERROR(EncodeBuffered());
    is_streaming_ = true;
    return EncodeSentence(sentence);
  }

  absl::Status OnDocumentEnd() override { return EndPart(/*is_closed=*/true); }

  // Ends the current part. Parts that are whole documents are judged here, others by assembly.
  absl::Status EndPart(bool is_closed) {
    part_.is_closed = is_closed;
    ANYORDER_ASSIGN_OR_RETURN(const bool keep, Decide());
    if (keep) {
      ANYORDER_RETURN_IF_ERROR(EncodeBuffered());
      writer_.ClosePart(std::exchange(part_, DocumentPart()));
    } else {
      writer_.DropPart();
      part_ = DocumentPart();
    }
    text_.clear();
    is_streaming_ = false;
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<bool> Decide() {
    const bool is_empty = part_.stats.totals.lines == 0;
    // An empty part matters only where it closes a document that a unit before left open.
    if (!part_.is_closed || part_.is_continuation) {
      return !is_empty || (part_.is_continuation && part_.is_closed);
    }
    if (is_empty) return false;
    const Verdict verdict = part_.stats.Judge(options_.filter);
    if (verdict != Verdict::kKeep) {
      ++counts_.verdicts[static_cast<int>(verdict)];
      return false;
    }
    if (options_.drop_duplicates && !seen_.insert(part_.stats.Hash()).second) {
      ++counts_.duplicates;
      return false;
    }
    return true;
  }

  absl::Status EncodeBuffered() {
    std::string_view rest = text_;
    while (!rest.empty()) {
      const size_t end = rest.find('\n');
      ANYORDER_RETURN_IF_ERROR(EncodeSentence(rest.substr(0, end)));
      rest.remove_prefix(end + 1);
    }
    text_.clear();
    return absl::OkStatus();
  }

  absl::Status EncodeSentence(std::string_view sentence) {
    ids_.clear();
    ANYORDER_RETURN_IF_ERROR(tokenizer_.Encode(sentence, ids_));
    return writer_.AddSentence(ids_);
  }

  const UnitOptions& options_;
  const Tokenizer& tokenizer_;
  WorkUnitWriter& writer_;
  UnitCounts& counts_;
  DocumentPart part_;
  std::string text_;           // the document's sentences so far, each with a line end
  bool is_streaming_ = false;  // the document outgrew the buffer
  std::vector<int32_t> ids_;
  absl::flat_hash_set<Digest128> seen_;
};

class SamplingSink : public SentenceSink {
 public:
  SamplingSink(double fraction, AtomicFile& file) : fraction_(fraction), file_(file) {}

  absl::Status OnSentence(std::string_view sentence) override {
    if (!IsTaken(sentence)) return absl::OkStatus();
    while (sentence.size() > kMaxTrainingBytes) {
      size_t cut = sentence.rfind(' ', kMaxTrainingBytes);
      if (cut == std::string_view::npos || cut == 0) {
        for (cut = kMaxTrainingBytes; (static_cast<unsigned char>(sentence[cut]) & 0xC0) == 0x80;) {
          --cut;
        }
      }
      ANYORDER_RETURN_IF_ERROR(Write(sentence.substr(0, cut)));
      sentence.remove_prefix(sentence[cut] == ' ' ? cut + 1 : cut);
    }
    return sentence.empty() ? absl::OkStatus() : Write(sentence);
  }
  absl::Status OnDocumentEnd() override { return absl::OkStatus(); }

 private:
  bool IsTaken(std::string_view sentence) const {
    if (fraction_ >= 1.0) return true;
    const Digest128 hash = DigestOf({sentence.data(), sentence.size()});
    return RandomStream(0, RandomPurpose::kPrep, hash.lo, hash.hi).Uniform() < fraction_;
  }
  absl::Status Write(std::string_view line) {
    ANYORDER_RETURN_IF_ERROR(file_.Append({line.data(), line.size()}));
    return file_.Append("\n");
  }

  double fraction_;
  AtomicFile& file_;
};

absl::Status ReadUnit(const InputFile& file, const UnitRange& unit, const UnitOptions& options,
                      SentenceSink& sink, TextReadCounts& counts, uint64_t* progress) {
  ANYORDER_ASSIGN_OR_RETURN(auto source,
                            OpenByteSource(file.path, file.compression, unit.begin, unit.end));
  const TextReadOptions read{.path = file.path,
                             .kind = file.kind,
                             .letter_case = options.letter_case,
                             .invalid_utf8 = options.invalid_utf8,
                             .first_byte = unit.begin,
                             .first_line = unit.first_line};
  ANYORDER_RETURN_IF_ERROR(ReadText(*source, read, sink, counts, progress));
  if (source->StoredDigest().Hex() != unit.digest) {
    return absl::FailedPreconditionError(absl::StrCat(
        "'", file.path, "' changed while it was read; do not change the input, and start again"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status EncodeUnit(const InputFile& file, const UnitRange& unit, const UnitOptions& options,
                        const Tokenizer& tokenizer, const std::string& out_path,
                        uint64_t* progress) {
  ANYORDER_ASSIGN_OR_RETURN(WorkUnitWriter writer,
                            WorkUnitWriter::Create(out_path, TokenBytes(tokenizer.vocab_size())));
  UnitCounts counts;
  TextReadCounts read_counts;
  EncodingSink sink(options, tokenizer, writer, counts);
  // A line of .jsonl is a whole document; only documents of .txt reach over a cut.
  sink.Begin(/*is_continuation=*/!unit.is_file_start && file.kind == TextKind::kTxt);
  ANYORDER_RETURN_IF_ERROR(ReadUnit(file, unit, options, sink, read_counts, progress));
  ANYORDER_RETURN_IF_ERROR(sink.EndPart(/*is_closed=*/unit.is_file_end));
  counts.bytes = read_counts.bytes;
  counts.invalid_replaced = read_counts.invalid_replaced;
  counts.long_lines = read_counts.long_lines;
  return writer.Commit(counts);
}

absl::Status SampleUnit(const InputFile& file, const UnitRange& unit, const UnitOptions& options,
                        double fraction, const std::string& out_path, uint64_t* progress) {
  ANYORDER_ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> out,
                            AtomicFile::Create(FileSystem::Posix(), out_path));
  SamplingSink sink(fraction, *out);
  TextReadCounts counts;
  ANYORDER_RETURN_IF_ERROR(ReadUnit(file, unit, options, sink, counts, progress));
  return out->Commit();
}

}  // namespace anyorder::data
