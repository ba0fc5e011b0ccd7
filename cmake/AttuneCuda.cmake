# Decides whether the CUDA backend is built: ATTUNE_WITH_CUDA, and a word on why for the summary.
#
# No nvcc is no error unless ATTUNE_CUDA=ON asks for one.

set(ATTUNE_WITH_CUDA OFF)
if(ATTUNE_CUDA STREQUAL "OFF")
  set(ATTUNE_CUDA_SUMMARY "off (ATTUNE_CUDA=OFF)")
else()
  # Before check_language, which tries them: `native` fails where no GPU is, wgmma needs 90a.
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90a-real 90-virtual)
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    find_package(CUDAToolkit 13.0 REQUIRED)
    set(ATTUNE_WITH_CUDA ON)
    set(ATTUNE_CUDA_SUMMARY "on (${CMAKE_CUDA_COMPILER_VERSION}, ${CMAKE_CUDA_ARCHITECTURES})")
  elseif(ATTUNE_CUDA STREQUAL "ON")
    message(FATAL_ERROR "ATTUNE_CUDA=ON, but no CUDA compiler was found; set CMAKE_CUDA_COMPILER")
  else()
    set(ATTUNE_CUDA_SUMMARY "off (no nvcc)")
  endif()
endif()
