// The data sets of Zhang et al. 2015 (Character-level Convolutional Networks for Text
// Classification): train.csv and test.csv without header, each cell in quotes; the number of the
// class, from 1, then the texts.

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "core/base/counted.h"
#include "core/base/status.h"
#include "data/prep/examples/official_tasks.h"
#include "data/prep/table_reader.h"

namespace anyorder::data {
namespace {

// What a backslash stands for.
enum class Escapes {
  kOfLineEndsAndQuotes,  // \n is a line end, as the data's readme says, and \" a quote
  kLineEnds,             // a line end by itself: AG's news are stored so
};

std::string WithoutEscapes(std::string_view text, Escapes escapes) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const char next = i + 1 < text.size() ? text[i + 1] : '\0';
    if (text[i] != '\\') {
      plain.push_back(text[i]);
    } else if (escapes == Escapes::kLineEnds) {
      plain.push_back(' ');
    } else if (next == 'n' || next == '"') {
      plain.push_back(next == 'n' ? ' ' : '"');
      ++i;
    } else {
      plain.push_back('\\');
    }
  }
  return plain;
}

class TopicFile {
 public:
  TopicFile(const std::string& path, size_t num_texts, Escapes escapes, OfficialReading& reading)
      : path_(path),
        num_cells_(1 + num_texts),
        escapes_(escapes),
        reading_(reading),
        table_(path, ',', {.has_header = false, .has_quotes = true}) {}

  absl::Status OnLine(std::string_view text, uint64_t line) {
    ASSIGN_OR_RETURN(const bool is_row, table_.AddLine(text, line));
    if (!is_row) return absl::OkStatus();
    const std::string where = absl::StrCat(path_, ":", table_.line());
    WrittenExample example;
    RETURN_IF_ERROR(Annotate(ReadRow(example), where));
    return reading_.Take(where, std::move(example));
  }

  absl::Status Finish() const { return table_.Finish(); }

 private:
  absl::Status ReadRow(WrittenExample& example) const {
    const std::vector<std::string>& cells = table_.cells();
    const std::vector<std::string>& classes = reading_.task().classes;
    if (cells.size() != num_cells_) {
      return DataLoss("the row has ", Counted(std::ssize(cells), "cell"), ", but those of --task ",
                      reading_.task().name, " have ", num_cells_, "; name ", reading_.task().input);
    }
    uint64_t label = 0;
    if (!absl::SimpleAtoi(cells[0], &label) || label < 1 || label > classes.size()) {
      return DataLoss("the class '", cells[0], "' is not a number from 1 to ", classes.size(),
                      "; repair the row");
    }
    example.class_name = classes[label - 1];
    // Of a title and a text one may be empty.
    std::string text;
    for (size_t i = 1; i < cells.size(); ++i)
      absl::StrAppend(&text, i > 1 ? " " : "", WithoutEscapes(cells[i], escapes_));
    return reading_.cleaning().AddText(text, "text", example);
  }

  const std::string& path_;
  const size_t num_cells_;
  const Escapes escapes_;
  OfficialReading& reading_;
  TableReader table_;
};

OfficialTask TopicTask(const char* name, const char* description, const char* folder,
                       size_t num_texts, std::vector<std::string> classes,
                       Escapes escapes = Escapes::kOfLineEndsAndQuotes) {
  return {.name = name,
          .description = description,
          .input = absl::StrCat("train.csv or test.csv of ", folder),
          .kind = ExampleTask::kClassification,
          .classes = std::move(classes),
          .measures = LabelMeasures::kErrorRate,
          .read = [=](OfficialReading& reading) {
            return reading.ReadLines<TopicFile>(TextKind::kCsv, num_texts, escapes);
          }};
}

}  // namespace

std::vector<OfficialTask> TopicTasks() {
  const std::vector<std::string> two = {"1", "2"};  // negative, positive
  const std::vector<std::string> five = {"1", "2", "3", "4", "5"};
  return {TopicTask("yelp2", "Yelp reviews, polarity", "yelp_review_polarity_csv", 1, two),
          TopicTask("yelp5", "Yelp reviews, stars", "yelp_review_full_csv", 1, five),
          TopicTask("dbpedia", "DBpedia, kinds of things", "dbpedia_csv", 2,
                    {"Company", "EducationalInstitution", "Artist", "Athlete", "OfficeHolder",
                     "MeanOfTransportation", "Building", "NaturalPlace", "Village", "Animal",
                     "Plant", "Album", "Film", "WrittenWork"}),
          TopicTask("ag", "AG's news, topics", "ag_news_csv", 2,
                    {"World", "Sports", "Business", "Sci/Tech"}, Escapes::kLineEnds),
          TopicTask("amazon2", "Amazon reviews, polarity", "amazon_review_polarity_csv", 2, two),
          TopicTask("amazon5", "Amazon reviews, stars", "amazon_review_full_csv", 2, five)};
}

}  // namespace anyorder::data
