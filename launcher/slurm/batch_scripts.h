// The batch scripts that `anyorder submit` and `anyorder prep --slurm` fill in, as they are in
// slurm/train.sbatch.in and slurm/prep.sbatch.in (CMakeLists.txt builds them into the programs).

#pragma once

namespace anyorder::launcher {

extern const char kTrainScript[];
extern const char kPrepScript[];

}  // namespace anyorder::launcher
