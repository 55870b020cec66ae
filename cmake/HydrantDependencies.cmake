# Finds all external dependencies. Required: liburing. The others are optional, or needed only by tests and
# benchmarks. All are in Debian's archive.

# Ends the configuration unless `found`, naming the missing Debian package and the alternatives.
function(hydrant_require found what package otherwise)
  if(NOT found)
    message(FATAL_ERROR "Hydrant: ${what} is missing. On Debian: apt-get install ${package}${otherwise}")
  endif()
endfunction()

find_package(PkgConfig QUIET)
hydrant_require("${PKG_CONFIG_FOUND}" pkg-config pkg-config "")
find_package(Threads REQUIRED)
pkg_check_modules(LIBURING IMPORTED_TARGET liburing>=2.2)
hydrant_require("${LIBURING_FOUND}" "liburing 2.2 or newer" liburing-dev
                " (elsewhere: let PKG_CONFIG_PATH name the folder of its liburing.pc)")

# Sets HYDRANT_HAVE_<name> to 1 or 0 from HYDRANT_WITH_<name> (AUTO, ON, OFF) and pkg-config.
function(hydrant_find_optional name module package)
  set(have 0)
  if(NOT HYDRANT_WITH_${name} STREQUAL "OFF")
    pkg_check_modules(${name} IMPORTED_TARGET ${module})
    if(${name}_FOUND)
      set(have 1)
    elseif(NOT HYDRANT_WITH_${name} STREQUAL "AUTO")
      hydrant_require("" "HYDRANT_WITH_${name} is ${HYDRANT_WITH_${name}}, but ${module}" ${package}
                      ", or set HYDRANT_WITH_${name} to AUTO or OFF")
    endif()
  endif()
  message(STATUS "Hydrant: ${name} (${module}): ${have}")
  set(HYDRANT_HAVE_${name} ${have} PARENT_SCOPE)
endfunction()

hydrant_find_optional(IBV libibverbs libibverbs-dev)
# Only the header: libpmix is loaded at run time under a launcher that provides PMIx.
hydrant_find_optional(PMIX pmix libpmix-dev)
# Uses jemalloc's archive: its shared library would replace malloc.
hydrant_find_optional(JEMALLOC jemalloc>=5.3 libjemalloc-dev)
if(HYDRANT_HAVE_JEMALLOC)
  pkg_get_variable(HYDRANT_JEMALLOC_INCLUDE jemalloc includedir)
  pkg_get_variable(jemalloc_libdir jemalloc libdir)
  find_library(HYDRANT_JEMALLOC_ARCHIVE libjemalloc_pic.a PATHS "${jemalloc_libdir}" NO_DEFAULT_PATH)
  if(NOT HYDRANT_JEMALLOC_ARCHIVE)
    message(STATUS "Hydrant: no libjemalloc_pic.a in ${jemalloc_libdir}: built without jemalloc")
    set(HYDRANT_HAVE_JEMALLOC 0)
  endif()
endif()
set(HYDRANT_UCX_ABSENT "built without libucx-dev")
if(HYDRANT_BUILD_BENCHES)
  hydrant_find_optional(UCX ucx-ucs libucx-dev)
  if(HYDRANT_HAVE_UCX)
    include(HydrantUcx)
  endif()
  find_package(benchmark QUIET)
  hydrant_require("${benchmark_FOUND}" "Google Benchmark" libbenchmark-dev
                  ", or leave the benchmarks out with -DHYDRANT_BUILD_BENCHES=OFF")
else()
  set(HYDRANT_HAVE_UCX 0)
endif()
if(HYDRANT_BUILD_TOOLS OR HYDRANT_BUILD_BENCHES)
  set(otherwise ", or leave tools and benchmarks out with -DHYDRANT_BUILD_TOOLS=OFF -DHYDRANT_BUILD_BENCHES=OFF")
  find_package(CLI11 QUIET)
  hydrant_require("${CLI11_FOUND}" CLI11 libcli11-dev "${otherwise}")
  find_package(nlohmann_json QUIET)
  hydrant_require("${nlohmann_json_FOUND}" "nlohmann's JSON library" nlohmann-json3-dev "${otherwise}")
endif()
if(HYDRANT_BUILD_TESTS)
  find_package(GTest QUIET)
  hydrant_require("${GTest_FOUND}" GoogleTest "libgtest-dev libgmock-dev"
                  ", or leave the tests out with -DHYDRANT_BUILD_TESTS=OFF")
  # Prefers the distribution's interpreter: scripts/dependencies.sh installs its packages.
  find_program(HYDRANT_PYTHON python3 PATHS /usr/bin NO_DEFAULT_PATH)
  find_program(HYDRANT_PYTHON python3 REQUIRED)
endif()
