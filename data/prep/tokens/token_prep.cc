#include "data/prep/tokens/token_prep.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/digest.h"
#include "core/base/file_system.h"
#include "core/base/status.h"
#include "data/prep/shard_writer.h"
#include "data/prep/staging.h"
#include "data/prep/tokens/token_readers.h"

namespace anyorder::data {
namespace {

// Turns the pieces of files into sentences and documents, neither of which is ever empty; counts
// them, computes the corpus's digest (FORMAT.md) and writes them to `shards`, if there are any.
class Corpus {
 public:
  Corpus(int32_t eod, ShardWriter* shards) : eod_(eod), shards_(shards) {}

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
    if (!std::exchange(has_sentences_, false)) return absl::OkStatus();
    constexpr int32_t kEnd = -1;
    digest_.Update({reinterpret_cast<const char*>(&kEnd), sizeof kEnd});
    ++num_documents_;
    return shards_ == nullptr ? absl::OkStatus() : shards_->EndDocument();
  }

  uint64_t num_sentences() const { return num_sentences_; }
  uint64_t num_documents() const { return num_documents_; }
  std::string Digest() const { return digest_.Value().Hex(); }

 private:
  absl::Status EndSentence() {
    if (sentence_.empty()) return absl::OkStatus();
    has_sentences_ = true;
    digest_.Update(
        {reinterpret_cast<const char*>(sentence_.data()), sentence_.size() * sizeof(int32_t)});
    ++num_sentences_;
    if (shards_ != nullptr) RETURN_IF_ERROR(shards_->AddSentence(sentence_));
    sentence_.clear();
    return absl::OkStatus();
  }

  const int32_t eod_;
  ShardWriter* const shards_;
  std::vector<int32_t> sentence_;
  bool has_sentences_ = false;  // of the open document
  uint64_t num_sentences_ = 0;
  uint64_t num_documents_ = 0;
  StreamingDigest digest_;
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
    ASSIGN_OR_RETURN(const Corpus corpus, ReadFiles(nullptr));
    if (corpus.num_documents() == 0) {
      return DataLoss("--tokens: the files hold no id but that of the end of documents, ",
                      vocabulary_.ids.eod, "; name files with text in them");
    }
    PlanIdentity identity;
    identity.options = {{"tokens", "given"}, {"shard_tokens", absl::StrCat(options_.shard_tokens)}};
    identity.inputs = {vocabulary_.Digest(), corpus.Digest()};
    RETURN_IF_ERROR(PublishWhole(options_.output, identity,
                                 [&](const std::string& folder) { return Write(folder, corpus); }));
    TokenPrepSummary summary;
    summary.num_files = files_.size();
    ASSIGN_OR_RETURN(summary.index, ReadDatasetIndex(options_.output));
    return summary;
  }

 private:
  absl::StatusOr<Corpus> ReadFiles(ShardWriter* shards) const {
    const TokenOptions read{
        .vocab_size = vocabulary_.size, .pad = vocabulary_.ids.pad, .field = options_.field};
    Corpus corpus(vocabulary_.ids.eod, shards);
    for (const std::string& path : files_) {
      RETURN_IF_ERROR(
          ReadTokenFile(path, read, [&](TokenPiece& piece) { return corpus.Take(piece); }));
      RETURN_IF_ERROR(corpus.EndDocument());
    }
    return corpus;
  }

  absl::Status Write(const std::string& folder, const Corpus& corpus) const {
    ASSIGN_OR_RETURN(DatasetIndex index,
                     StartDataset(folder, vocabulary_, options_.shard_tokens, corpus.Digest()));
    index.num_documents = corpus.num_documents();
    index.num_sentences = corpus.num_sentences();
    ShardWriter shards(folder, std::move(index), vocabulary_.is_start_piece);
    ASSIGN_OR_RETURN(const Corpus written, ReadFiles(&shards));
    if (written.Digest() != corpus.Digest()) {
      return FailedPrecondition(
          "a file of --tokens changed while it was read; do not change the input, and start again");
    }
    ASSIGN_OR_RETURN(index, shards.Finish());
    index.settings = {{"vocabulary", options_.tokenizer.empty() ? "declared" : "given"},
                      {"tokens", "given"}};
    if (vocabulary_.is_sentence_piece()) index.settings["clean"] = vocabulary_.cleaning.name();
    index.counts.insert(
        {{"documents_read", index.num_documents}, {"documents_kept", index.num_documents}});
    return WriteFileAtomically(absl::StrCat(folder, "/", kIndexFile), SerializeDatasetIndex(index));
  }

  const TokenPrepOptions& options_;
  DatasetVocabulary vocabulary_;
  std::vector<std::string> files_;
};

}  // namespace

absl::StatusOr<TokenPrepSummary> RunTokenPrep(const TokenPrepOptions& options) {
  return TokenPreparation(options).Run();
}

}  // namespace anyorder::data
