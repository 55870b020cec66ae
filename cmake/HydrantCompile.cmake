# Compile options of all targets: three INTERFACE targets. Only the sanitizer is global, because it has to
# reach every object of a program.
#
#   hydrant_warnings  the warnings that the code is kept free of; errors only if a preset requests it
#   hydrant_internal  project includes from the repository root, C++20, HYDRANT_DEBUG, HYDRANT_TICKETS
#   hydrant_library   the above, and options for library code only: no exceptions, hidden names

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
target_compile_definitions(hydrant_internal INTERFACE HYDRANT_DEBUG=$<BOOL:${HYDRANT_DEBUG}>
                                                      HYDRANT_TICKETS=$<BOOL:${HYDRANT_TICKETS}>)
target_link_libraries(hydrant_internal INTERFACE hydrant_warnings)
# Tests and benchmarks derive from abstract classes of the libraries, which have no type information.
target_compile_options(hydrant_internal INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fno-rtti>)

add_library(hydrant_library INTERFACE)
target_link_libraries(hydrant_library INTERFACE hydrant_internal)
target_compile_options(hydrant_library INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fno-exceptions>
                                                 -fvisibility=hidden)

# For C++ that includes C headers with casts in inlined functions. Link it after the others: the
# last option wins.
add_library(hydrant_c_casts INTERFACE)
target_compile_options(hydrant_c_casts INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-old-style-cast>)

set(CMAKE_CXX_EXTENSIONS OFF)

if(HYDRANT_SANITIZE)
  # GCC derives these warnings from its data-flow analysis, which the instrumentation misleads: a string
  # concatenation is reported as an access past the end. The other presets keep them as errors.
  target_compile_options(
    hydrant_warnings INTERFACE -Wno-array-bounds -Wno-null-dereference
                               "$<$<C_COMPILER_ID:GNU>:-Wno-restrict;-Wno-stringop-overflow>")
  # -fno-sanitize=vptr: that check needs type information, and the libraries are built without it.
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
