// Small files of official tasks (data/prep/EXAMPLES.md), and where their readers look for them.

#pragma once

#include <filesystem>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

#include "data/prep/examples/official_tasks.h"
#include "tests/fuzz/fuzz_target.h"

namespace anyorder::fuzz {

// Of tasks whose readers differ: name, and the text of a file.
inline constexpr std::pair<const char*, const char*> kOfficialFiles[] = {
    {"cola", "gj04\t1\t\tHe sang.\ngj04\t0\t*\tHe sing.\n"},
    {"sst2", "sentence\tlabel\ngood\t1\r\nbad\t0\n"},
    {"stsb",
     "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n"
     "0\tc\tf\t2012\t1\tn\tn\ta\tb\t2.5\n"},
    {"qqp", "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n1\t1\t2\tWhy?\tHow?\t0\n2\t3\n"},
    {"mnli",
     "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\t"
     "sentence1_parse\tsentence2_parse\tsentence1\tsentence2\tlabel1\tgold_label\n"
     "0\t1\t1e\tf\t(a)\t(b)\t(R a)\t(R b)\ta\tb\tneutral\t-\n"},
    {"qnli-rank",
     "index\tquestion\tsentence\tlabel\n0\tWho?\tIt rains.\tnot_entailment\n"
     "2\tWho?\tHe did.\tentailment\n3\tWhy?\tHim.\tentailment\n"},
    {"race",
     R"({"article": "It  rained.\nThey left.", "questions": ["They _ and _ .", "How many?"],
         "options": [["one", "two", "", "four"], ["a", "b", "c", "d"]], "answers": ["B", "D"],
         "id": "high7.txt"})"},
    {"squad1",
     R"({"version": "1.1", "data": [{"title": "t", "paragraphs": [{"context": "Café  of day",
         "qas": [{"id": "a", "question": "which?", "answers": [{"text": "day", "answer_start": 9},
         {"text": "x", "answer_start": 18446744073709551615}]}]}]}]})"},
    {"squad2",
     R"({"data": [{"paragraphs": [{"context": "one day", "qas": [{"id": "a", "question": "why?",
         "answers": [], "is_impossible": true}, {"id": "b", "question": "when?", "answers":
         [{"text": "day", "answer_start": 4}], "is_impossible": false}]}]}]})"},
    {"imdb", "A film.<br /><br />Good \xC3\xA9.\n"},
    {"yelp5", "\"5\",\"Good, \"\"very\"\"\\n good\"\n\"1\",\"\\\\bad\\\"\"\n"},
    {"ag", "\"3\",\"A title\",\"A\\text\"\n"},
    {"conll2003", "-DOCSTART- -X- -X- O\n\nEU NNP I-NP I-ORG\nsaid VBZ I-VP O\n\nRome N N B-LOC\n"},
    {"conll2000", "He PRP B-NP\nleft VBD B-VP\n. . O\n"},
};

// Stores `text` as a file of the task; returns what --input names.
inline std::string StoreOfficial(const ScratchDirectory& scratch, const data::OfficialTask& task,
                                 absl::string_view text) {
  const auto in_folder = [&](const std::string& folder, const std::string& name) {
    std::filesystem::create_directories(scratch.path() + "/" + folder);
    scratch.Store(folder + "/" + name, text);
  };
  if (task.name == "race") in_folder("race/high", "7.txt");
  if (task.name == "imdb") in_folder("imdb/neg", "1_2.txt"), in_folder("imdb/pos", "1_9.txt");
  if (task.name == "race" || task.name == "imdb") return scratch.path() + "/" + task.name;
  for (const char* ending : {".tsv", ".csv", ".json"})
    if (absl::StrContains(task.input, ending))
      return scratch.Store(absl::StrCat("f", ending), text);
  return scratch.Store("f.txt", text);
}

}  // namespace anyorder::fuzz
