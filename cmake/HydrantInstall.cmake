# `cmake --install`: the public headers, libfirehose and libhydrant with what goes with them, pkg-config files
# and the CMake package. All paths inside are relative, so that the tree may be moved or installed under another --prefix.
include(CMakePackageConfigHelpers)

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/Hydrant")

install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(TARGETS firehose_shared firehose_static EXPORT HydrantFirehose)
install(EXPORT HydrantFirehose FILE HydrantFirehoseTargets.cmake NAMESPACE Hydrant::
        DESTINATION "${package_dir}")
# The hooks are a component of their own, which may be left out: no other target needs them.
install(TARGETS firehose_hooks firehose_hooks_static EXPORT HydrantHooks COMPONENT hooks)
install(EXPORT HydrantHooks FILE HydrantHooksTargets.cmake NAMESPACE Hydrant::
        DESTINATION "${package_dir}" COMPONENT hooks)

# The allocator, another component that may be left out; jemalloc behind it where that was built.
install(TARGETS hydrant_alloc_shared hydrant_alloc_static EXPORT HydrantAlloc COMPONENT alloc)
if(TARGET hydrant_alloc_jemalloc)
  install(TARGETS hydrant_alloc_jemalloc EXPORT HydrantAlloc COMPONENT alloc)
endif()
install(EXPORT HydrantAlloc FILE HydrantAllocTargets.cmake NAMESPACE Hydrant::
        DESTINATION "${package_dir}" COMPONENT alloc)

# The GASNet tools alone, for programs that use gasnet_tools.h and nothing else of GASNet's API.
install(TARGETS hydrant_tools_shared hydrant_tools_static EXPORT HydrantTools COMPONENT tools)
install(EXPORT HydrantTools FILE HydrantToolsTargets.cmake NAMESPACE Hydrant::
        DESTINATION "${package_dir}" COMPONENT tools)

# libhydrant: GASNet's API.
install(TARGETS hydrant_shared hydrant_static EXPORT HydrantHydrant COMPONENT hydrant)
install(EXPORT HydrantHydrant FILE HydrantHydrantTargets.cmake NAMESPACE Hydrant::
        DESTINATION "${package_dir}" COMPONENT hydrant)

configure_package_config_file(
  "${CMAKE_CURRENT_LIST_DIR}/HydrantConfig.cmake.in" "${PROJECT_BINARY_DIR}/HydrantConfig.cmake"
  INSTALL_DESTINATION "${package_dir}" NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/HydrantConfigVersion.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/HydrantConfig.cmake"
              "${PROJECT_BINARY_DIR}/HydrantConfigVersion.cmake" DESTINATION "${package_dir}")

# pkg-config: ${pcfiledir} leads back to the prefix, whatever that is in the end.
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}" OR IS_ABSOLUTE "${CMAKE_INSTALL_INCLUDEDIR}")
  set(pc_prefix "${CMAKE_INSTALL_PREFIX}")
  set(pc_libdir "${CMAKE_INSTALL_FULL_LIBDIR}")
  set(pc_includedir "${CMAKE_INSTALL_FULL_INCLUDEDIR}")
else()
  file(RELATIVE_PATH up "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
  string(REGEX REPLACE "/$" "" up "${up}")
  set(pc_prefix "\${pcfiledir}/${up}")
  set(pc_libdir "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
  set(pc_includedir "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
endif()
configure_file("${CMAKE_CURRENT_LIST_DIR}/firehose.pc.in" "${PROJECT_BINARY_DIR}/firehose.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/firehose.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
get_target_property(hooks_wrap_flags firehose_hooks_static HYDRANT_WRAP_FLAGS)
configure_file("${CMAKE_CURRENT_LIST_DIR}/firehose_hooks.pc.in"
               "${PROJECT_BINARY_DIR}/firehose_hooks.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/firehose_hooks.pc"
        DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig" COMPONENT hooks)
# Programs name jemalloc's library although they use no symbol of it, so that it is loaded when they start.
set(pc_jemalloc "")
if(TARGET hydrant_alloc_jemalloc)
  set(pc_jemalloc "-Wl,--push-state,--no-as-needed,-lhydrant_alloc_jemalloc,--pop-state")
endif()
configure_file("${CMAKE_CURRENT_LIST_DIR}/hydrant_alloc.pc.in" "${PROJECT_BINARY_DIR}/hydrant_alloc.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/hydrant_alloc.pc"
        DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig" COMPONENT alloc)
configure_file("${CMAKE_CURRENT_LIST_DIR}/hydrant_tools.pc.in" "${PROJECT_BINARY_DIR}/hydrant_tools.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/hydrant_tools.pc"
        DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig" COMPONENT tools)
configure_file("${CMAKE_CURRENT_LIST_DIR}/hydrant.pc.in" "${PROJECT_BINARY_DIR}/hydrant.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/hydrant.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig"
        COMPONENT hydrant)

include(HydrantGasnetLayout)
