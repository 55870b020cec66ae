# How every target of the project is compiled: three INTERFACE targets and nothing global but the
# sanitizer, which has to reach every object of a program.
#
#   hydrant_warnings  the warnings we keep clean; errors only where a preset says so
#   hydrant_internal  project includes from the repository root, C++20, HYDRANT_DEBUG
#   hydrant_library   the above, and what holds for library code alone: no exceptions, hidden names

add_library(hydrant_warnings INTERFACE)
set(common_warnings -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wformat=2 -Wundef -Wvla
                    -Wdouble-promotion -Wnull-dereference)
set(cxx_warnings -Wold-style-cast -Wnon-virtual-dtor -Woverloaded-virtual -Wsuggest-override
                 -Wmissing-declarations)
set(gcc_warnings -Wcast-align=strict -Wimplicit-fallthrough=5 -Wduplicated-cond -Wlogical-op)
set(clang_warnings -Wcast-align -Wimplicit-fallthrough -Wthread-safety)
target_compile_options(
  hydrant_warnings
  INTERFACE ${common_warnings}
            "$<$<COMPILE_LANGUAGE:CXX>:${cxx_warnings}>"
            "$<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes>"
            "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:${gcc_warnings}>"
            "$<$<COMPILE_LANG_AND_ID:CXX,Clang>:${clang_warnings}>")
unset(common_warnings)
unset(cxx_warnings)
unset(gcc_warnings)
unset(clang_warnings)

add_library(hydrant_internal INTERFACE)
target_include_directories(hydrant_internal INTERFACE "${PROJECT_SOURCE_DIR}"
                                                      "${PROJECT_SOURCE_DIR}/include")
target_compile_features(hydrant_internal INTERFACE cxx_std_20 c_std_99)
target_compile_definitions(hydrant_internal INTERFACE HYDRANT_DEBUG=$<BOOL:${HYDRANT_DEBUG}>)
target_link_libraries(hydrant_internal INTERFACE hydrant_warnings)
# Tests and benchmarks derive from the libraries' abstract classes, and those have no type information.
target_compile_options(hydrant_internal INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fno-rtti>)

add_library(hydrant_library INTERFACE)
target_link_libraries(hydrant_library INTERFACE hydrant_internal)
target_compile_options(hydrant_library INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fno-exceptions>
                                                 -fvisibility=hidden)

# For C++ that includes C headers whose inlined functions cast. Named after the others: the last option counts.
add_library(hydrant_c_casts INTERFACE)
target_compile_options(hydrant_c_casts INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-old-style-cast>)

set(CMAKE_CXX_EXTENSIONS OFF)

if(HYDRANT_SANITIZE)
  # -fno-sanitize=vptr: that check needs the type information which libraries are built without.
  add_compile_options(-fsanitize=${HYDRANT_SANITIZE} -fno-sanitize-recover=all
                      -fno-sanitize=vptr -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${HYDRANT_SANITIZE})
endif()

# ccache serves a clone in another folder as well: paths below the source folder are made relative, in debug
# information too, so that what it serves is what the compiler would have made here.
if(HYDRANT_CCACHE)
  find_program(HYDRANT_CCACHE_PROGRAM ccache)
  if(HYDRANT_CCACHE_PROGRAM)
    foreach(language IN ITEMS C CXX)
      set(CMAKE_${language}_COMPILER_LAUNCHER env "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" CCACHE_NOHASHDIR=1
                                              "${HYDRANT_CCACHE_PROGRAM}")
    endforeach()
    add_compile_options("-ffile-prefix-map=${PROJECT_SOURCE_DIR}=.")
  endif()
endif()
