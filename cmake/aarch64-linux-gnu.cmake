# Cross-compiling for aarch64 with Debian's g++-aarch64-linux-gnu, and running what comes out under
# qemu-user. ATTUNE_AARCH64_ROOT is where the arm64 packages of scripts/setup are: / with multiarch, or
# a folder that they were unpacked to (scripts/test_aarch64 makes one).
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

set(ATTUNE_AARCH64_ROOT $ENV{ATTUNE_AARCH64_ROOT})
if(NOT ATTUNE_AARCH64_ROOT)
  set(ATTUNE_AARCH64_ROOT /)
endif()
set(CMAKE_FIND_ROOT_PATH ${ATTUNE_AARCH64_ROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_EXE_LINKER_FLAGS_INIT -Wl,-rpath-link,${ATTUNE_AARCH64_ROOT}/usr/lib/aarch64-linux-gnu)
set(CMAKE_SHARED_LINKER_FLAGS_INIT ${CMAKE_EXE_LINKER_FLAGS_INIT})

set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64;-L;${ATTUNE_AARCH64_ROOT})
