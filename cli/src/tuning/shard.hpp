// Which shard of a list this process is to tune: as it was told, or as its launcher counts.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "problems/command_context.hpp"

namespace attune::cli {

inline constexpr int kMostShards = 10'000;

struct Shard {
  int index = 0;  // 0 to count - 1
  int count = 1;
  std::string source;  // what said so: "--shard", "ATTUNE_SHARD", "Slurm array", ...
  friend bool operator==(const Shard&, const Shard&) = default;
};

/// The value of an environment variable; nothing when it is unset or empty.
using Environment = std::function<std::optional<std::string>(const char* name)>;
/// The process's own.
Environment process_environment();

/// "3/16": shard 3 of those from 0 to 15; "auto": as the environment says. Throws UsageError, which
/// begins with `option`, also where "auto" finds nothing.
Shard read_shard(std::string_view option, std::string_view text, const Environment& environment);

/// The first of these that is there; nothing where none is:
///
///   ATTUNE_SHARD=i/n
///   Slurm array            task (ID - MIN) / STEP of COUNT, of SLURM_ARRAY_TASK_*; where a launcher
///                          below runs several processes in the task, they share its part
///   Open MPI               OMPI_COMM_WORLD_RANK of OMPI_COMM_WORLD_SIZE
///   Slurm step (srun)      SLURM_PROCID of SLURM_NTASKS, but for the batch script itself
///   PMI (MPICH, Intel MPI) PMI_RANK of PMI_SIZE
///   Flux                   FLUX_TASK_RANK of FLUX_JOB_SIZE
///   torchrun               RANK of WORLD_SIZE
///   Kubernetes             JOB_COMPLETION_INDEX of ATTUNE_SHARDS: a pod does not see its Job's number
///                          of completions
///
/// Throws UsageError for values that are no rank and number of ranks.
std::optional<Shard> shard_from_environment(const Environment& environment);

/// Which process of its machine the launcher says this is, from 0; nothing where it does not.
std::optional<int> local_rank(const Environment& environment);

/// For each of the problems that a command lists the shard that it belongs to, of `shards`. Which
/// device it was recorded on counts unless --backend says where all are tuned.
std::vector<int> shards_of(const CommandContext& command, std::span<const ListedProblem> problems,
                           int shards);

/// "003-of-016.db".
std::string shard_file_name(const Shard& shard);

/// "shard 3/16 (Slurm array)".
std::string shard_text(const Shard& shard);

}  // namespace attune::cli
