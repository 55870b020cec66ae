# HYDRANT_UNITY: several sources in one compilation. A test that includes GoogleTest takes four seconds to
# compile, of which its headers are 3.3; a source of the libraries takes one second, mostly for headers.
# Sources have to compile alone as well: presets without this option compile each of them by itself, and those
# with TESTS each of the libraries.
#
# Include this before the first target, and call hydrant_finish_unity() behind the last.
set(hydrant_unity_libraries OFF)
if(HYDRANT_UNITY)
  if(NOT HYDRANT_UNITY STREQUAL TESTS)
    set(hydrant_unity_libraries ON)
  endif()
  set(CMAKE_UNITY_BUILD ON)
  set(CMAKE_UNITY_BUILD_BATCH_SIZE 8)
endif()

# Targets that stay as they are, beside those in C.
set(hydrant_unity_exceptions
    # Built with options of their own from C++ that replaces libc's functions.
    firehose_hooks firehose_hooks_static
    # Optimised: a call of another source would be inlined, and become a call with constants.
    rma_client_par rma_client_par_debug rma_client_par_everything
    # Programs with a monitor of their own link some of these sources; the others need the library's.
    hydrant_fakes
    # Sources define macros before they include a header.
    unit_am_tools
    # A program and a source of the library.
    barrier_client_AMDISSEM barrier_client_AMCENTRAL hydrant-info)

# Sources that compile alone: programs and libraries bring their own definitions of all functions in them, so
# nothing else may be in the object that an archive has of them; and the sources that may call cancellation points
# (tests/lint/check_library.py).
set(hydrant_unity_alone extended/barrier/barriers.cpp firehose/base/status.cpp
    firehose/base/uncancelled.cpp am/tools/locks.cpp am/tools/timers.cpp
    # The same names as in bootstrap_pmi2.cpp.
    rdma/bootstrap/bootstrap_pmix.cpp)

# Sources of libraries share a compilation only with others of their folder, because tests/lint reads object
# files: lint.upcalls has to know the folder of each (layers.txt).
function(hydrant_group_sources target)
  get_target_property(sources ${target} SOURCES)
  get_target_property(folder ${target} SOURCE_DIR)
  foreach(source IN LISTS sources)
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY "${folder}")
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY "${PROJECT_SOURCE_DIR}" OUTPUT_VARIABLE path)
    cmake_path(GET path STEM name)
    if(path IN_LIST hydrant_unity_alone OR name IN_LIST hydrant_writes)
      continue()
    endif()
    cmake_path(GET path PARENT_PATH layer)
    while(layer AND NOT layer IN_LIST hydrant_layers)
      cmake_path(GET layer PARENT_PATH layer)
    endwhile()
    string(MAKE_C_IDENTIFIER "${layer}" layer)
    list(APPEND ${layer}_sources "${source}")
    list(LENGTH ${layer}_sources count)
    math(EXPR group "(${count} - 1) / ${CMAKE_UNITY_BUILD_BATCH_SIZE}")
    set_source_files_properties("${source}" TARGET_DIRECTORY ${target}
                                PROPERTIES UNITY_GROUP ${layer}_${group})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP)
endfunction()

function(hydrant_finish_unity_of folder)
  get_property(targets DIRECTORY "${folder}" PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target IN LISTS targets)
    get_target_property(sources ${target} SOURCES)
    list(LENGTH sources count)
    # Not by a regular expression of the path: it may have characters such as +.
    file(RELATIVE_PATH place "${PROJECT_SOURCE_DIR}" "${folder}")
    # Clients in C compile in a tenth of a second, and define the same names in several files of a program.
    if(target IN_LIST hydrant_unity_exceptions OR count EQUAL 1 OR "${sources}" MATCHES "\\.c(;|$)")
      set_target_properties(${target} PROPERTIES UNITY_BUILD OFF)
    elseif("${place}" MATCHES "^(firehose|rdma|am|extended)(/|$)")
      if(NOT hydrant_unity_libraries)
        set_target_properties(${target} PROPERTIES UNITY_BUILD OFF)
        continue()
      endif()
      get_target_property(type ${target} TYPE)
      if(type MATCHES "^(STATIC|SHARED|OBJECT)_LIBRARY$")
        hydrant_group_sources(${target})
      endif()
    endif()
  endforeach()
  get_property(folders DIRECTORY "${folder}" PROPERTY SUBDIRECTORIES)
  foreach(below IN LISTS folders)
    hydrant_finish_unity_of("${below}")
  endforeach()
endfunction()

function(hydrant_finish_unity)
  if(NOT HYDRANT_UNITY)
    return()
  endif()
  foreach(list IN ITEMS layers writes)
    set(file "${PROJECT_SOURCE_DIR}/tests/lint/${list}.txt")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${file}")
    file(STRINGS "${file}" hydrant_${list} REGEX "^[a-z]")
    list(TRANSFORM hydrant_${list} REPLACE "[ \t].*" "")
  endforeach()
  hydrant_finish_unity_of("${PROJECT_SOURCE_DIR}")
endfunction()
