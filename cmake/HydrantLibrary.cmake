# libhydrant: GASNet's API, assembled from the objects of its layers, as hydrant_static and hydrant_shared;
# Hydrant::hydrant is the one that BUILD_SHARED_LIBS selects. It contains the pin cache with its C functions,
# because build files for GASNet link a single library.

set(layers hydrant_base_objects hydrant_firehose_objects hydrant_bootstrap hydrant_shm hydrant_transports
           hydrant_am_objects hydrant_am_tools hydrant_extended)
set(verbs_of_build "")
set(verbs_installed "")
if(TARGET hydrant_ibv)
  list(APPEND layers hydrant_ibv hydrant_ibv_registrar)
  set(verbs_of_build PkgConfig::IBV)
  set(verbs_installed ibverbs)
endif()
set(objects "")
foreach(layer IN LISTS layers)
  list(APPEND objects $<TARGET_OBJECTS:${layer}>)
endforeach()

add_library(hydrant_static STATIC ${objects})
target_link_libraries(hydrant_static PUBLIC $<BUILD_INTERFACE:$<LINK_ONLY:PkgConfig::LIBURING>>
                                            "$<BUILD_INTERFACE:$<LINK_ONLY:${verbs_of_build}>>"
                                            "$<INSTALL_INTERFACE:uring;${verbs_installed}>" stdc++ m Threads::Threads ${CMAKE_DL_LIBS})

add_library(hydrant_shared SHARED ${objects})
target_link_libraries(hydrant_shared PRIVATE PkgConfig::LIBURING ${verbs_of_build} m Threads::Threads ${CMAKE_DL_LIBS})
set(export_list "${PROJECT_SOURCE_DIR}/am/libhydrant.map")
# nodelete: threads of the program keep state of the library until they end, and the library
# has a thread of its own.
target_link_options(
  hydrant_shared PRIVATE "LINKER:--version-script=${export_list}" LINKER:-z,nodelete
  LINKER:-Bsymbolic-functions LINKER:-z,now LINKER:--as-needed)
if(NOT HYDRANT_SANITIZE)  # with a sanitizer the program may define its symbols
  target_link_options(hydrant_shared PRIVATE LINKER:-z,defs)
endif()
set_target_properties(hydrant_shared PROPERTIES LINK_DEPENDS "${export_list}" VERSION ${PROJECT_VERSION}
                                                SOVERSION ${PROJECT_VERSION_MAJOR})

foreach(kind IN ITEMS static shared)
  set_target_properties(hydrant_${kind} PROPERTIES OUTPUT_NAME hydrant LINKER_LANGUAGE CXX)
  target_include_directories(
    hydrant_${kind} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                           $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  add_library(Hydrant::hydrant_${kind} ALIAS hydrant_${kind})
endforeach()
# Loaded by both when HYDRANT_INJECT is set.
add_dependencies(hydrant_static hydrant_injected)
add_dependencies(hydrant_shared hydrant_injected)
target_link_options(hydrant_static PUBLIC "$<BUILD_INTERFACE:LINKER:-rpath,$<TARGET_FILE_DIR:hydrant_injected>>")
hydrant_add_default(hydrant GLOBAL)
