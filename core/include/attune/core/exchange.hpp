// The ranks of a job, as far as attune needs them. The communicator behind an Exchange is the
// caller's: attune starts no processes, opens no connections and links no library for it. In
// attune/distributed:
//
//   ThreadExchange  thread_exchange.hpp  ranks that are threads of this process
//   StagedExchange  staged_exchange.hpp  a device's memory by way of an exchange of host memory
//   MpiExchange     mpi.hpp              an MPI_Comm; include it where <mpi.h> is
//   NcclExchange    nccl.hpp             an ncclComm_t; include it where <nccl.h> and CUDA are
#pragma once

#include <cstddef>

namespace attune::distributed {

class Exchange {
 public:
  virtual ~Exchange() = default;

  virtual int rank() const noexcept = 0;  // 0 to size() - 1
  virtual int size() const noexcept = 0;  // >= 1

  /// Puts `bytes` bytes of every rank, from `send`, one after the other in the order of ranks into
  /// `recv`, which has room for size() * bytes. All ranks call it as often, in the same order and
  /// with the same number of bytes, else some of them wait for ever or fail.
  ///
  /// Memory of a device: queued on `stream`, nothing waits; `recv` is there when the stream is.
  /// Memory of the host: is there on return, and `stream` may be null.
  /// Throws what the communicator fails with. A rank that waits for one that does not come waits
  /// for as long as the communicator lets it: time limits and aborts are the communicator's.
  virtual void all_gather(const void* send, void* recv, std::size_t bytes, void* stream) = 0;

 protected:
  Exchange() = default;
  Exchange(const Exchange&) = default;
  Exchange& operator=(const Exchange&) = default;
};

}  // namespace attune::distributed
