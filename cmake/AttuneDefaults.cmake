# What holds for every target, and what only a top-level build decides.

add_library(attune_warnings INTERFACE)
target_compile_options(attune_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wconversion -Wshadow
                            -Wnon-virtual-dtor -Woverloaded-virtual>)

set(CMAKE_CXX_EXTENSIONS OFF)

if(PROJECT_IS_TOP_LEVEL)
  if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug or Release" FORCE)
  endif()

  # The layout of an installed attune, so that the CLI finds the library and the data alike.
  set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
  set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
  set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)

  # Target all_verify_interface_header_sets compiles every public header alone.
  set(CMAKE_VERIFY_INTERFACE_HEADER_SETS ON)

  find_program(ATTUNE_CCACHE ccache)
  mark_as_advanced(ATTUNE_CCACHE)
  if(ATTUNE_CCACHE AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
    set(CMAKE_CXX_COMPILER_LAUNCHER ${ATTUNE_CCACHE})
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${ATTUNE_CCACHE})
  endif()
endif()

# ccache needs settings of its own for them, and does better than they do.
if(CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_DISABLE_PRECOMPILE_HEADERS ON)
endif()
