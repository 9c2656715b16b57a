#include "launcher/ranking/pair_features.h"

#include <memory>
#include <string>

#include "core/base/status.h"

namespace anyorder::launcher {
namespace {

using Tokens = std::vector<int32_t>;

// Of the tokens that take part.
UnitVectors KeptVectors(const std::vector<float>& states, int64_t dim, const Tokens& tokens,
                        const RunVocabulary& vocabulary, const StopWords& stop_words) {
  std::vector<absl::string_view> pieces;
  for (size_t i = 0; i < states.size() / static_cast<size_t>(dim); ++i)
    pieces.push_back(vocabulary.pieces()[static_cast<size_t>(tokens[i])].text);
  std::vector<float> kept;
  for (const int64_t token : stop_words.KeptTokens(pieces)) {
    const auto begin = states.begin() + token * dim;
    kept.insert(kept.end(), begin, begin + dim);
  }
  return UnitVectors(kept, dim);
}

// A place in the topics' lists.
struct Place {
  size_t topic = 0;
  size_t document = 0;
};

}  // namespace

absl::StatusOr<PairFeatures> ComputePairFeatures(const RankingInput& input, const TextModel& model,
                                                 const PairFeatureOptions& options,
                                                 BatchProgress& progress) {
  const RunVocabulary& vocabulary = model.vocabulary;
  if (vocabulary.is_huggingface()) {
    return FailedPrecondition("'", vocabulary.path(), "' does not mark where a word begins, which ",
                              "this command must know; name a run with a SentencePiece vocabulary");
  }
  const VocabularyIds ids = SpecialTokens(vocabulary);
  ASSIGN_OR_RETURN(const std::unique_ptr<TokenEncoder> encoder,
                   TokenEncoder::Create(model.config, ids, options.states, model.weights.values,
                                        *model.backend));
  std::vector<std::string> queries;
  for (const RankedTopic& topic : input.topics) queries.push_back(topic.query);
  ASSIGN_OR_RETURN(const std::vector<Tokens> query_tokens,
                   vocabulary.Encode(queries, "encoding the queries"));
  ASSIGN_OR_RETURN(const std::vector<Tokens> document_tokens,
                   vocabulary.Encode(input.texts, "encoding the documents"));

  PairFeatures features{.max_length = encoder->max_slots()};
  std::vector<UnitVectors> query_vectors(queries.size(), UnitVectors({}, encoder->dim()));
  RETURN_IF_ERROR(
      encoder->Encode(query_tokens, [&](size_t topic, const std::vector<float>& states) {
        query_vectors[topic] = KeptVectors(states, encoder->dim(), query_tokens[topic], vocabulary,
                                           options.stop_words);
        return absl::OkStatus();
      }));

  std::vector<std::vector<Place>> places(input.documents.size());
  for (size_t t = 0; t < input.topics.size(); ++t) {
    const std::vector<size_t>& documents = input.topics[t].documents;
    features.topics.emplace_back(documents.size());
    for (size_t n = 0; n < documents.size(); ++n) places[documents[n]].push_back({t, n});
  }
  const auto count = static_cast<int64_t>(input.documents.size());
  int64_t done = 0;
  progress.GoesOn(0, count, "");
  RETURN_IF_ERROR(encoder->Encode(document_tokens, [&](size_t d, const std::vector<float>& states) {
    const Tokens& tokens = document_tokens[d];
    const UnitVectors document =
        KeptVectors(states, encoder->dim(), tokens, vocabulary, options.stop_words);
    for (const Place& place : places[d])
      features.topics[place.topic][place.document] =
          PoolKernels(query_vectors[place.topic], document);
    if (static_cast<int64_t>(tokens.size()) > encoder->max_tokens()) ++features.num_cut;
    if (progress.GoesOn(++done, count, "")) return absl::OkStatus();
    return absl::CancelledError(absl::StrCat("stopped by a signal after ", done, " of ", count,
                                             " documents; nothing was written"));
  }));
  return features;
}

}  // namespace anyorder::launcher
