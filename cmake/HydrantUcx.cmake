# Checks that the installed UCX has the interface that bench/ calls: its registration cache has no stable
# interface. With another version the benchmarks omit UCX, with the reason; with HYDRANT_WITH_UCX=ON that is
# an error.
#
# Sets HYDRANT_HAVE_UCX to 0 if the check does not compile, and HYDRANT_UCX_ABSENT to the benchmarks' message.

string(MAKE_C_IDENTIFIER "HYDRANT_UCX_${UCX_VERSION}_COMPILES" compiles)
if(NOT DEFINED ${compiles})
  set(folder "${PROJECT_BINARY_DIR}/CMakeFiles/hydrant_ucx")
  file(WRITE "${folder}/cache.cpp" "#include \"bench/support/ucx_peer.hpp\"\n"
                                   "bool use(hydrant::bench::UcxCache& cache, void* addr);\n"
                                   "bool use(hydrant::bench::UcxCache& cache, void* addr) {\n"
                                   "  auto* region = cache.get(addr, 1);\n"
                                   "  if (region != nullptr) cache.invalidate(region);\n"
                                   "  return cache.works() && region != nullptr;\n"
                                   "}\n")
  set(type "${CMAKE_TRY_COMPILE_TARGET_TYPE}")
  set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
  try_compile(
    ${compiles} "${folder}/build"
    SOURCES "${folder}/cache.cpp" "${PROJECT_SOURCE_DIR}/bench/support/ucx_am.cpp"
            "${PROJECT_SOURCE_DIR}/bench/support/ucx_rma.cpp"
    CMAKE_FLAGS "-DINCLUDE_DIRECTORIES=${PROJECT_SOURCE_DIR};${PROJECT_SOURCE_DIR}/include;${UCX_INCLUDE_DIRS}"
    COMPILE_DEFINITIONS -DHYDRANT_HAVE_UCX=1
    OUTPUT_VARIABLE said
    CXX_STANDARD 20
    CXX_STANDARD_REQUIRED ON)
  set(CMAKE_TRY_COMPILE_TARGET_TYPE "${type}")
  if(NOT ${compiles})
    string(REGEX MATCH "[^\n]*error:[^\n]*" said "${said}")
    set(${compiles}_REASON "${said}" CACHE INTERNAL "The compiler's first error")
  endif()
endif()
if(NOT ${compiles})
  set(HYDRANT_UCX_ABSENT "its headers, ${UCX_VERSION}, are not those that bench/ is written for, 1.13 to 1.23")
  set(text "Hydrant: UCX is left out of the benchmarks: ${HYDRANT_UCX_ABSENT}. ${${compiles}_REASON}")
  if(NOT HYDRANT_WITH_UCX STREQUAL "AUTO")
    message(FATAL_ERROR "${text} Install another libucx-dev, or set HYDRANT_WITH_UCX to AUTO or OFF")
  endif()
  message(STATUS "${text}")
  set(HYDRANT_HAVE_UCX 0)
endif()
