#include "data/prep/tokens/token_prep.h"

#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"

#include "core/base/digest.h"
#include "core/base/file_system.h"
#include "core/base/status.h"
#include "data/prep/shard_writer.h"
#include "data/prep/staging.h"
#include "data/prep/tokens/token_file.h"

namespace anyorder::data {
namespace {

// Takes the documents of all files.
class DocumentSink {
 public:
  virtual ~DocumentSink() = default;
  virtual absl::Status OnSentence(absl::Span<const int32_t> ids) = 0;
  virtual absl::Status OnDocumentEnd() = 0;
};

// Turns the pieces of files into sentences and documents; neither is ever empty.
class DocumentCutter {
 public:
  DocumentCutter(int32_t eod, DocumentSink& sink) : eod_(eod), sink_(sink) {}

  absl::Status Take(const TokenPiece& piece) {
    for (const int32_t id : piece.ids) {
      if (id == eod_) {
        RETURN_IF_ERROR(EndDocument());
        continue;
      }
      sentence_.push_back(id);
      if (sentence_.size() == kMostPieceTokens) RETURN_IF_ERROR(EndSentence());
    }
    if (piece.ends_document) return EndDocument();
    return piece.ends_sentence ? EndSentence() : absl::OkStatus();
  }

  absl::Status EndDocument() {
    RETURN_IF_ERROR(EndSentence());
    return std::exchange(has_sentences_, false) ? sink_.OnDocumentEnd() : absl::OkStatus();
  }

 private:
  absl::Status EndSentence() {
    if (sentence_.empty()) return absl::OkStatus();
    has_sentences_ = true;
    const absl::Status status = sink_.OnSentence(sentence_);
    sentence_.clear();
    return status;
  }

  const int32_t eod_;
  DocumentSink& sink_;
  std::vector<int32_t> sentence_;
  bool has_sentences_ = false;  // of the open document
};

// Counts, and computes the corpus's digest (FORMAT.md).
class CorpusCounter : public DocumentSink {
 public:
  absl::Status OnSentence(absl::Span<const int32_t> ids) override {
    digest_.Update({reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(int32_t)});
    ++num_sentences_;
    return absl::OkStatus();
  }
  absl::Status OnDocumentEnd() override {
    constexpr int32_t kEnd = -1;
    digest_.Update({reinterpret_cast<const char*>(&kEnd), sizeof kEnd});
    ++num_documents_;
    return absl::OkStatus();
  }

  uint64_t num_sentences() const { return num_sentences_; }
  uint64_t num_documents() const { return num_documents_; }
  std::string Digest() const { return digest_.Value().Hex(); }

 private:
  uint64_t num_sentences_ = 0;
  uint64_t num_documents_ = 0;
  StreamingDigest digest_;
};

// Writes shards, and counts again what it writes.
class ShardSink : public DocumentSink {
 public:
  ShardSink(ShardWriter& shards, uint64_t token_bytes)
      : shards_(shards), token_bytes_(token_bytes) {}

  absl::Status OnSentence(absl::Span<const int32_t> ids) override {
    packed_.resize(ids.size() * token_bytes_);
    // Little-endian hosts only (Debian amd64, arm64): the low bytes come first.
    for (size_t i = 0; i < ids.size(); ++i)
      std::memcpy(packed_.data() + i * token_bytes_, &ids[i], token_bytes_);
    RETURN_IF_ERROR(counter_.OnSentence(ids));
    return shards_.AddSentence(packed_);
  }
  absl::Status OnDocumentEnd() override {
    RETURN_IF_ERROR(counter_.OnDocumentEnd());
    return shards_.EndDocument();
  }
  const CorpusCounter& counter() const { return counter_; }

 private:
  ShardWriter& shards_;
  const uint64_t token_bytes_;
  std::string packed_;
  CorpusCounter counter_;
};

class TokenPreparation {
 public:
  explicit TokenPreparation(const TokenPrepOptions& options) : options_(options) {}

  absl::StatusOr<TokenPrepSummary> Run() {
    RETURN_IF_ERROR(CheckShardTokens(options_.shard_tokens));
    ASSIGN_OR_RETURN(vocabulary_, options_.tokenizer.empty()
                                      ? VocabularyOf(options_.declared)
                                      : ReadVocabulary(options_.tokenizer, options_.declared));
    ASSIGN_OR_RETURN(files_, FindTokenFiles(options_.files));
    RETURN_IF_ERROR(Staging::Check(options_.output));
    RETURN_IF_ERROR(ReadFiles(corpus_));
    if (corpus_.num_documents() == 0) {
      return DataLoss("--tokens: the files hold no id but that of the end of documents, ",
                      vocabulary_.ids.eod, "; name files with text in them");
    }
    PlanIdentity identity;
    identity.options = {{"tokens", "given"}, {"shard_tokens", absl::StrCat(options_.shard_tokens)}};
    identity.inputs = {vocabulary_.Digest(), corpus_.Digest()};
    RETURN_IF_ERROR(PublishWhole(options_.output, identity,
                                 [this](const std::string& folder) { return Write(folder); }));
    TokenPrepSummary summary;
    summary.num_files = files_.size();
    ASSIGN_OR_RETURN(summary.index, ReadDatasetIndex(options_.output));
    return summary;
  }

 private:
  absl::Status ReadFiles(DocumentSink& sink) const {
    const TokenOptions read{
        .vocab_size = vocabulary_.size, .pad = vocabulary_.ids.pad, .field = options_.field};
    DocumentCutter cutter(vocabulary_.ids.eod, sink);
    for (const std::string& path : files_) {
      ASSIGN_OR_RETURN(const std::unique_ptr<TokenFile> file, OpenTokenFile(path, read));
      TokenPiece piece;
      while (true) {
        ASSIGN_OR_RETURN(const bool has_piece, file->Next(piece));
        if (!has_piece) break;
        RETURN_IF_ERROR(cutter.Take(piece));
      }
      RETURN_IF_ERROR(cutter.EndDocument());
    }
    return absl::OkStatus();
  }

  absl::Status Write(const std::string& folder) const {
    RETURN_IF_ERROR(StoreFile(folder, vocabulary_.file, vocabulary_.bytes).status());
    DatasetIndex index = StartIndex(vocabulary_, options_.shard_tokens, corpus_.Digest());
    index.num_documents = corpus_.num_documents();
    index.num_sentences = corpus_.num_sentences();
    const uint64_t token_bytes = index.token_bytes;
    ShardWriter shards(folder, std::move(index), vocabulary_.is_start_piece);
    ShardSink sink(shards, token_bytes);
    RETURN_IF_ERROR(ReadFiles(sink));
    if (sink.counter().Digest() != corpus_.Digest()) {
      return FailedPrecondition(
          "a file of --tokens changed while it was read; do not change the input, and start again");
    }
    ASSIGN_OR_RETURN(index, shards.Finish());
    index.settings = {{"vocabulary", options_.tokenizer.empty() ? "declared" : "given"},
                      {"tokens", "given"}};
    if (vocabulary_.is_sentence_piece()) index.settings["clean"] = vocabulary_.cleaning.name();
    index.counts = {{"documents_read", index.num_documents},
                    {"documents_kept", index.num_documents}};
    return WriteFileAtomically(absl::StrCat(folder, "/", kIndexFile), SerializeDatasetIndex(index));
  }

  const TokenPrepOptions& options_;
  DatasetVocabulary vocabulary_;
  std::vector<std::string> files_;
  CorpusCounter corpus_;
};

}  // namespace

absl::StatusOr<TokenPrepSummary> RunTokenPrep(const TokenPrepOptions& options) {
  return TokenPreparation(options).Run();
}

}  // namespace anyorder::data
