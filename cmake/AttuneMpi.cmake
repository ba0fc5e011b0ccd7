# MPI::MPI_CXX where there is all of MPI, else none. mpirun's package may bring a compiler's wrapper without
# the header, and find_package() would fail by it.
set(MPI_CXX_SKIP_MPICXX ON)  # the C interface is enough
find_program(MPI_CXX_COMPILER NAMES mpicxx mpic++)
set(mpi_lacks_header 0)
if(MPI_CXX_COMPILER)
  file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/mpi_header.cpp "#include <mpi.h>\n")
  execute_process(COMMAND ${MPI_CXX_COMPILER} -E ${CMAKE_CURRENT_BINARY_DIR}/mpi_header.cpp
    RESULT_VARIABLE mpi_lacks_header OUTPUT_QUIET ERROR_QUIET)
endif()
if(mpi_lacks_header)
  message(STATUS "MPI: ${MPI_CXX_COMPILER} finds no mpi.h")
else()
  find_package(MPI QUIET COMPONENTS CXX)
endif()
