// A text for pictures: few words, read in a circle by every lane, through the interface that
// datasets have.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "data/dataset/text_source.h"

namespace anyorder::launcher {

class ShownText : public data::TextSource {
 public:
  // The words of `text`, split at white space; a sentence ends after a word that ends in one of . !
  // ? (or with the text). InvalidArgument if there are none, or what no XML can hold.
  static absl::StatusOr<ShownText> FromWords(absl::string_view text, int64_t num_tokens);
  // x1, x2, ... in sentences of `sentence` tokens.
  static ShownText Numbered(int64_t num_tokens, int64_t sentence);

  // So many times as long: as many streams of even length each have what there was.
  void Lengthen(int64_t times) { num_tokens_ *= times; }
  // The first word comes at stream position `origin`, and the text repeats before and after.
  void SetOrigin(int64_t origin) { origin_ = origin; }
  // One labelled example of `task` (of `choices` choices), its texts consecutive words that leave
  // one of `seq_len` slots over.
  void MakeExample(ExampleTask task, int64_t choices, int64_t seq_len);
  // What a vocabulary would call this id.
  std::string Name(int32_t id) const;

  int64_t num_tokens() const override { return num_tokens_; }
  VocabularyIds vocabulary() const override;
  absl::Status ReadTokens(int64_t begin, int64_t end, int32_t* out) const override;
  absl::Status ReadSentenceFlags(int64_t begin, int64_t end, uint8_t* out) const override;
  absl::Status ReadWordStarts(int64_t begin, int64_t end, uint8_t* out) const override;
  const data::ExampleSource* examples() const override { return example_.get(); }

 private:
  // Words until `position`, counted from the origin: which copy of the text, which word of it.
  struct Place {
    int64_t copy = 0;
    int64_t word = 0;
  };
  Place At(int64_t position) const;

  std::vector<std::string> words_;
  std::vector<int64_t> sentence_;  // of each word: how many sentence ends are before it
  int64_t num_tokens_ = 0;
  int64_t origin_ = 0;
  std::shared_ptr<const data::ExampleSource> example_;  // by copies, none of which changes it
};

}  // namespace anyorder::launcher
