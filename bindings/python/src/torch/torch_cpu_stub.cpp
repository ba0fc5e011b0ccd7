// An empty library with the name of libtorch_cpu.so. See CMakeLists.txt; never installed.
