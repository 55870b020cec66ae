# Everything that comes from outside, found once. Required: liburing. The rest is optional, or needed
# only by tests and benchmarks. All of it is in Debian's archive.

find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
pkg_check_modules(LIBURING REQUIRED IMPORTED_TARGET liburing>=2.2)

# Sets HYDRANT_HAVE_<name> to 1 or 0 from HYDRANT_WITH_<name> (AUTO, ON, OFF) and pkg-config.
function(hydrant_find_optional name module)
  set(have 0)
  if(NOT HYDRANT_WITH_${name} STREQUAL "OFF")
    pkg_check_modules(${name} IMPORTED_TARGET ${module})
    if(${name}_FOUND)
      set(have 1)
    elseif(NOT HYDRANT_WITH_${name} STREQUAL "AUTO")
      message(FATAL_ERROR "HYDRANT_WITH_${name}=${HYDRANT_WITH_${name}}, but pkg-config does not know ${module}")
    endif()
  endif()
  message(STATUS "Hydrant: ${name} (${module}): ${have}")
  set(HYDRANT_HAVE_${name} ${have} PARENT_SCOPE)
endfunction()

hydrant_find_optional(IBV libibverbs)
if(HYDRANT_BUILD_BENCHES)
  hydrant_find_optional(UCX ucx-ucs)
  find_package(benchmark REQUIRED)
else()
  set(HYDRANT_HAVE_UCX 0)
endif()
if(HYDRANT_BUILD_TOOLS)
  find_package(CLI11 REQUIRED)
  find_package(nlohmann_json REQUIRED)
endif()
if(HYDRANT_BUILD_TESTS)
  find_package(GTest REQUIRED)
  # The distribution's interpreter first: its packages are the ones that scripts/dependencies.sh installs.
  find_program(HYDRANT_PYTHON python3 PATHS /usr/bin NO_DEFAULT_PATH)
  find_program(HYDRANT_PYTHON python3 REQUIRED)
endif()
