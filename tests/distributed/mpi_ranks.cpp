// Ranks that are MPI processes: they tune together through the MPI adapter and check that all
// choose alike. Started by mpirun; exits with 0 when they do.
#include <cstdio>
#include <cstdlib>

#include <attune/distributed/mpi.hpp>

#include "distributed/simulated_rank.hpp"

namespace attune::test {
namespace {

/// Gathers a number of each rank.
bool gathers(distributed::Exchange& exchange) {
  const int ours = 100 + exchange.rank();
  std::vector<int> all(static_cast<std::size_t>(exchange.size()));
  exchange.all_gather(&ours, all.data(), sizeof ours, nullptr);
  for (int rank = 0; rank < exchange.size(); ++rank) {
    if (all[static_cast<std::size_t>(rank)] != 100 + rank) return false;
  }
  return true;
}

/// Whether the ranks differ before they tune together, and not afterwards.
bool tune_and_agree() {
  SimulatedRank::Settings settings;
  settings.script.cost_us = [](const TiledConfig& config) {
    return config.tile == 1 ? 1000.0 : 700.0;
  };
  SimulatedRank rank(std::make_unique<distributed::MpiExchange>(MPI_COMM_WORLD), settings);
  rank.world.noise = 0.02;
  if (!gathers(rank.exchange)) return false;
  std::vector<distributed::WantedProblem> wanted;
  for (const std::int64_t rows : {10, 40, 160, 640}) wanted.push_back(SimulatedRank::wanted(rows));
  const auto report = distributed::tune_together(rank.exchange, *rank.context, rank.device, wanted,
                                                 {}, rank.tuner());
  const auto agreement = distributed::agree(rank.exchange, *rank.context, rank.device);
  std::printf("rank %d of %d: tuned %zu, %s\n", rank.exchange.rank(), rank.exchange.size(),
              report.tuned, agreement.text().c_str());
  return report.agreement.equal() && report.missing.empty() && agreement.equal() &&
         rank.exchange.collectives == 4;
}

}  // namespace
}  // namespace attune::test

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const bool right = attune::test::tune_and_agree();
  MPI_Finalize();
  return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
