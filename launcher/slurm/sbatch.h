// What `anyorder submit` and `anyorder prep --slurm` share: scripts that begin with #SBATCH lines,
// the user's own sbatch options, and sbatch.

#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace anyorder::launcher {

// An option of sbatch as it stands in a script.
struct SbatchOption {
  std::string name;  // "--nodes", also where it is written "-N"
  std::string text;  // "--nodes=2", "-N 2"; the words are quoted already
  std::string why;   // the comment before it; "": none
};

// `name` and `value` ("": a flag) as an option of ours.
SbatchOption OurOption(const std::string& name, const std::string& value, const std::string& why);

// The words that the user gave after `--`. InvalidArgument for a word that belongs to no option,
// and for options that cannot be: those that submit no job, several, or another script.
absl::StatusOr<std::vector<SbatchOption>> ParseSbatchWords(const std::vector<std::string>& words);

bool HasOption(const std::vector<SbatchOption>& options, absl::string_view name);

// Says "note: WORDS" on stderr.
void Note(absl::string_view words);

// #SBATCH lines: ours without those that the user gives, too, then the user's. Notes each that the
// user wins, and each SBATCH_* variable of the environment, which would win over both.
std::string ScriptHead(const std::vector<SbatchOption>& ours,
                       const std::vector<SbatchOption>& users);

// slurm/train.sbatch.in, prep.sbatch.in and check_environment.sh, which CMakeLists.txt builds into
// the programs.
extern const char kTrainScript[];
extern const char kPrepScript[];
extern const char kCheckEnvironment[];

// InvalidArgument, with what to do, if somebody else could write `path`, which the job is to
// source, or put another file in its place. OK if it is not there. The job asks again.
absl::Status CheckEnvironmentFile(const std::string& path);

// One of these templates with its values: `values` holds NAME for each @NAME@. Lines that
// begin with ## are for readers of the template alone.
std::string FillScript(absl::string_view script,
                       const std::vector<std::pair<std::string, std::string>>& values);

// InvalidArgument if `path` cannot stand in a line of a script.
absl::Status CheckPath(const std::string& option, const std::string& path);

// A file name pattern of Slurm that means exactly this path: "%" is special there.
std::string SlurmPath(absl::string_view path);

// "sbatch --parsable ARGUMENTS...".
std::vector<std::string> SbatchWords(const std::vector<std::string>& arguments);

// --partition and --account.
void AddAccounting(CLI::App* command, std::string& partition, std::string& account);

// The number of the new job. `arguments` go to sbatch after --parsable. NotFound if there is no
// sbatch; InvalidArgument, with Slurm's words, if it refuses the job; Unavailable if its controller
// does not answer.
absl::StatusOr<std::string> Sbatch(const std::vector<std::string>& arguments);

// NotFound, with what to do, unless there is an sbatch.
absl::Status CheckHasSbatch();

}  // namespace anyorder::launcher
