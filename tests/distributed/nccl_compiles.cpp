// That the NCCL adapter compiles against the NCCL that is here. It is run on machines with several
// GPUs.
#include <type_traits>

#include <attune/distributed/nccl.hpp>

static_assert(!std::is_abstract_v<attune::distributed::NcclExchange>);
