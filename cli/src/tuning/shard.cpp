#include "tuning/shard.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>

#include <attune/core/error.hpp>
#include <attune/core/params.hpp>
#include <attune/distributed/partition.hpp>

#include "program/exit_code.hpp"

namespace attune::cli {
namespace {

/// How a launcher numbers the processes that it starts.
struct Launcher {
  std::string_view name;
  const char* rank;
  const char* size;
};
constexpr Launcher kOpenMpi{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"};
constexpr Launcher kSlurmStep{"Slurm step", "SLURM_PROCID", "SLURM_NTASKS"};
constexpr Launcher kKubernetes{"Kubernetes", "JOB_COMPLETION_INDEX", "ATTUNE_SHARDS"};
constexpr std::array kLaunchers{
    kOpenMpi,
    kSlurmStep,
    Launcher{"PMI", "PMI_RANK", "PMI_SIZE"},
    Launcher{"Flux", "FLUX_TASK_RANK", "FLUX_JOB_SIZE"},
    Launcher{"torchrun", "RANK", "WORLD_SIZE"},
    kKubernetes,
};

constexpr std::string_view kExpectedShard = "expected i/n with i from 0 to n - 1, as in 3/16";

/// A whole number of the environment, at least `least`.
std::int64_t number(std::string_view name, const std::string& text, std::int64_t least) {
  std::int64_t value = 0;
  if (parse_integer(text, value) && value >= least) return value;
  throw UsageError(str("environment variable ", name, ": '", text,
                       "': expected a whole number, at least ", least));
}

Shard checked(std::int64_t index, std::int64_t count, std::string source) {
  if (count > kMostShards)
    throw UsageError(str(source, ": ", count, " shards, more than ", kMostShards));
  if (index < count) return {static_cast<int>(index), static_cast<int>(count), std::move(source)};
  throw UsageError(str(source, ": number ", index, " of ", count, ": expected 0 to ", count - 1));
}

/// A batch script runs once, whatever number of tasks its job has room for.
bool is_batch_script(const Environment& environment) {
  return environment("ENVIRONMENT") == "BATCH" && !environment("SLURM_STEP_ID");
}

std::optional<Shard> shard_of(const Launcher& launcher, const Environment& environment) {
  const auto rank = environment(launcher.rank);
  const auto size = environment(launcher.size);
  if (!rank || !size) return std::nullopt;
  return checked(number(launcher.rank, *rank, 0), number(launcher.size, *size, 1),
                 std::string(launcher.name));
}

std::optional<Shard> shard_of_launcher(const Environment& environment) {
  for (const Launcher& launcher : kLaunchers) {
    if (launcher.name == kSlurmStep.name && is_batch_script(environment)) continue;
    if (auto shard = shard_of(launcher, environment)) return shard;
  }
  return std::nullopt;
}

std::optional<Shard> shard_of_array(const Environment& environment) {
  constexpr const char* kId = "SLURM_ARRAY_TASK_ID";
  constexpr const char* kMin = "SLURM_ARRAY_TASK_MIN";
  constexpr const char* kCount = "SLURM_ARRAY_TASK_COUNT";
  constexpr const char* kStep = "SLURM_ARRAY_TASK_STEP";
  const auto id = environment(kId);
  const auto count = environment(kCount);
  if (!id || !count) return std::nullopt;
  const std::int64_t first = number(kMin, environment(kMin).value_or("0"), 0);
  const std::int64_t step = number(kStep, environment(kStep).value_or("1"), 1);
  const std::int64_t from_first = number(kId, *id, 0) - first;
  if (from_first < 0 || from_first % step != 0) {
    throw UsageError(str("Slurm array: task ", *id, " is none of those from ", first, " by ", step,
                         "; --shard i/n says which shard this is"));
  }
  return checked(from_first / step, number(kCount, *count, 1), "Slurm array");
}

/// "i/n"; nothing where it is none.
std::optional<Shard> parse_shard(std::string_view source, std::string_view text) {
  const std::size_t slash = text.find('/');
  std::int64_t index = 0;
  std::int64_t count = 0;
  if (slash == std::string_view::npos || !parse_integer(text.substr(0, slash), index) ||
      !parse_integer(text.substr(slash + 1), count) || index < 0 || count < 1 || index >= count ||
      count > kMostShards) {
    return std::nullopt;
  }
  return Shard{static_cast<int>(index), static_cast<int>(count), std::string(source)};
}

}  // namespace

Environment process_environment() {
  return [](const char* name) -> std::optional<std::string> {
    const char* value = secure_getenv(name);
    if (value == nullptr || *value == '\0') return std::nullopt;
    return value;
  };
}

std::optional<Shard> shard_from_environment(const Environment& environment) {
  if (const auto given = environment("ATTUNE_SHARD")) {
    if (auto shard = parse_shard("ATTUNE_SHARD", *given)) return shard;
    throw UsageError(str("environment variable ATTUNE_SHARD: '", *given, "': ", kExpectedShard));
  }
  const std::optional<Shard> array = shard_of_array(environment);
  std::optional<Shard> ranks = shard_of_launcher(environment);
  if (!array) return ranks;
  if (!ranks || ranks->count == 1 || ranks->source == kKubernetes.name) return array;
  return checked(std::int64_t{array->index} * ranks->count + ranks->index,
                 std::int64_t{array->count} * ranks->count,
                 str(array->source, " and ", ranks->source));
}

Shard read_shard(std::string_view option, std::string_view text, const Environment& environment) {
  if (text != "auto") {
    if (auto shard = parse_shard(option, text)) return *std::move(shard);
    throw UsageError(str(option, " '", text, "': ", kExpectedShard, ", or auto"));
  }
  if (auto shard = shard_from_environment(environment)) return *std::move(shard);
  throw UsageError(str(option,
                       " auto: no launcher says which shard this is (Slurm, Open MPI, PMI, Flux, "
                       "torchrun, Kubernetes with ATTUNE_SHARDS); expected ATTUNE_SHARD=i/n, or ",
                       option, " i/n"));
}

std::optional<int> local_rank(const Environment& environment) {
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID", "MPI_LOCALRANKID",
                           "PMI_LOCAL_RANK", "FLUX_TASK_LOCAL_ID", "LOCAL_RANK"}) {
    if (const auto text = environment(name)) {
      return static_cast<int>(std::min<std::int64_t>(number(name, *text, 0), kMostShards));
    }
  }
  return std::nullopt;
}

std::vector<int> shards_of(const CommandContext& command, std::span<const ListedProblem> problems,
                           int shards) {
  std::vector<distributed::PartItem> items;
  items.reserve(problems.size());
  for (const ListedProblem& problem : problems) {
    const OpInfo& op = *problem.op;
    items.push_back({distributed::item_text(op, problem.problem, command.row_request(problem)),
                     command.names_backend() ? "" : problem.device_class,
                     distributed::tuning_cost_us(op, problem.problem)});
  }
  return distributed::partition(items, shards);
}

std::string shard_file_name(const Shard& shard) {
  const auto padded = [width = std::max<std::size_t>(3, str(shard.count).size())](int value) {
    std::string digits = str(value);
    return digits.insert(0, width - std::min(width, digits.size()), '0');
  };
  return str(padded(shard.index), "-of-", padded(shard.count), ".db");
}

std::string shard_text(const Shard& shard) {
  return str("shard ", shard.index, '/', shard.count, " (", shard.source, ')');
}

}  // namespace attune::cli
