# Default link targets for other projects: a library with the hooks before it, or without them. For targets of
# the tree and for installed ones (HydrantConfig.cmake includes this file).

# True for programs that are linked without any shared library.
set(HYDRANT_IS_STATIC FALSE)
if(" ${CMAKE_EXE_LINKER_FLAGS} " MATCHES " -static(-pie)? ")
  set(HYDRANT_IS_STATIC TRUE)
endif()

# hydrant_add_default(NAME [GLOBAL]): Hydrant::NAME and Hydrant::NAME_nohooks over NAME_shared or NAME_static,
# depending on BUILD_SHARED_LIBS and on -static in
# CMAKE_EXE_LINKER_FLAGS.
function(hydrant_add_default name)
  set(kind shared)
  if((DEFINED BUILD_SHARED_LIBS AND NOT BUILD_SHARED_LIBS) OR HYDRANT_IS_STATIC)
    set(kind static)
  endif()
  # The hooks see calls only if the program itself links them before libc, so libraries do not get them. The
  # option is an item of the list of libraries: it keeps its position and follows a static library into the
  # program. It names the file, because the program may call none of its functions; the target adds the search
  # path. An archive of the hooks stands behind the library, whose calls they replace, too.
  set(hooks "")
  set(hooks_behind "")
  if(TARGET Hydrant::hooks)
    set(wanted "$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>")
    if(HYDRANT_IS_STATIC)
      set(hooks_behind "$<${wanted}:Hydrant::hooks_static>")
    else()
      set(word "-Wl,--push-state,--no-as-needed,$<TARGET_FILE:Hydrant::hooks>,--pop-state")
      set(hooks "$<${wanted}:${word}>" "$<${wanted}:Hydrant::hooks>")
    endif()
  endif()
  foreach(suffix IN ITEMS "" _nohooks)
    add_library(Hydrant::${name}${suffix} INTERFACE IMPORTED ${ARGN})
    set_property(TARGET Hydrant::${name}${suffix} PROPERTY INTERFACE_LINK_LIBRARIES ${hooks} Hydrant::${name}_${kind}
                                                                ${hooks_behind})
    set(hooks "")
    set(hooks_behind "")
  endforeach()
endfunction()

# hydrant_add_ibv_default([GLOBAL]): Hydrant::firehose_ibv and Hydrant::firehose_ibv_nohooks, behind the targets of
# hydrant_add_default(firehose). The linker keeps the shared library for programs that only name the registrar, too;
# firehose_ibv_static does so itself.
function(hydrant_add_ibv_default)
  set(kind shared)
  set(kept "-Wl,--push-state,--no-as-needed,$<TARGET_FILE:Hydrant::firehose_ibv_shared>,--pop-state")
  if((DEFINED BUILD_SHARED_LIBS AND NOT BUILD_SHARED_LIBS) OR HYDRANT_IS_STATIC)
    set(kind static)
    set(kept "")
  endif()
  foreach(suffix IN ITEMS "" _nohooks)
    add_library(Hydrant::firehose_ibv${suffix} INTERFACE IMPORTED ${ARGN})
    set_property(TARGET Hydrant::firehose_ibv${suffix} PROPERTY INTERFACE_LINK_LIBRARIES ${kept}
                                                                Hydrant::firehose_ibv_${kind} Hydrant::firehose${suffix})
  endforeach()
endfunction()
