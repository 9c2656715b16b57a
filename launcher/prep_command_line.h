// The command line of `anyorder prep`. `anyorder` declares it, too, for completion and man pages,
// without linking what it does.

#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "data/prep/prep.h"
#include "launcher/process/field_options.h"
#include "launcher/slurm/prep_job.h"

namespace anyorder::launcher {

struct PrepCommandLine {
  data::PrepOptions prep;
  std::string paragraphs = "split";
  bool no_filter = false;
  bool no_dedup = false;
  bool json = false;
  bool plan = false;
  bool whole_conversations = false;
  std::string slice;
  uint64_t merge = 0;
  PrepJob job;
  double vocab_sample_mb = 32;
  std::vector<std::string> examples;
  std::string task;
  std::string chat_template;
  FieldOptions fields;
  std::string labels_from;
  std::string label_kind;               // class, score; "": found
  std::vector<std::string> tokens;      // files of ready ids
  std::string ids_field = "input_ids";  // of their .jsonl
};

inline constexpr char kPrepSummary[] = "Turn text into a vocabulary and HDF5 shards for training.";

// `line` must live as long as `app`.
void DeclarePrep(CLI::App& app, PrepCommandLine& line);
// After parsing by `app`: what the words of `line` mean for `line.prep`.
void ReadPrepWords(const CLI::App& app, PrepCommandLine& line);

}  // namespace anyorder::launcher
