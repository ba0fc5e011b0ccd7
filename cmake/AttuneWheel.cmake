# What a Python wheel asks for (ATTUNE_WHEEL): SQLite and Boost are linked in, and hidden, and folders are
# those that attune_kernels/ has.
set(CMAKE_INSTALL_LIBDIR lib)
set(Boost_USE_STATIC_LIBS ON)
find_library(SQLite3_LIBRARY libsqlite3.a REQUIRED)
set(ATTUNE_SQLITE_NEEDS m)  # which the shared library would name itself
