// An MPI communicator as an Exchange. For programs that use MPI: they compile this header and link
// MPI, attune does neither.
//
//   MPI_Init_thread(...);
//   attune::distributed::MpiExchange exchange(MPI_COMM_WORLD);
//   const auto agreement = attune::distributed::agree(exchange, context, device);
#pragma once

#include <mpi.h>

#include <cstddef>
#include <limits>
#include <string>

#include <attune/core/error.hpp>
#include <attune/core/exchange.hpp>

namespace attune::distributed {

/// Of host memory; of a device's too where the MPI can (then MPI orders nothing with `stream`,
/// which has to be waited for before). The communicator is the caller's and outlives this; its
/// collectives are called from the thread that calls all_gather, one at a time. Time limits are
/// MPI's: it has none. MPI programs that tune have candidates run in their own process, so that
/// attune starts none.
class MpiExchange final : public Exchange {
 public:
  /// Throws ExecutionError when MPI says no.
  explicit MpiExchange(MPI_Comm communicator) : communicator_(communicator) {
    check(MPI_Comm_rank(communicator, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(communicator, &size_), "MPI_Comm_size");
  }

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return size_; }

  /// Throws InvalidArgument for 2 GiB a rank and more: counts of MPI are ints.
  void all_gather(const void* send, void* recv, std::size_t bytes, void* /*stream*/) override {
    constexpr std::size_t kMost = std::numeric_limits<int>::max();
    if (bytes > kMost) {
      throw InvalidArgument(str("MpiExchange: ", bytes, " bytes a rank: expected at most ", kMost));
    }
    const int count = static_cast<int>(bytes);
    check(MPI_Allgather(send, count, MPI_BYTE, recv, count, MPI_BYTE, communicator_),
          "MPI_Allgather");
  }

 private:
  static void check(int result, const char* what) {
    if (result == MPI_SUCCESS) return;
    std::string text(MPI_MAX_ERROR_STRING, '\0');
    int length = 0;
    MPI_Error_string(result, text.data(), &length);
    text.resize(static_cast<std::size_t>(length));
    throw ExecutionError(str(what, ": ", text));
  }

  MPI_Comm communicator_;
  int rank_ = 0;
  int size_ = 1;
};

}  // namespace attune::distributed
