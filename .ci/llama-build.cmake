# Read by CMake after llama.cpp's project() call (CMAKE_PROJECT_llama_cpp_INCLUDE). The Python package forces the cache
# entry LLAMA_BUILD_COMMON on; a normal variable of the same name wins over it (policy CMP0126). The common library is
# never loaded from Python and is about half of the compile time.
set(LLAMA_BUILD_COMMON OFF)
