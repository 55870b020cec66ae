# `cmake --install`: the public headers, libfirehose and libhydrant with their parts, pkg-config files and the
# CMake package. All paths inside are relative, so that the tree may be moved or installed under another
# --prefix.
include(CMakePackageConfigHelpers)

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/Hydrant")

install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(TARGETS firehose_shared firehose_static EXPORT HydrantFirehose)
install(EXPORT HydrantFirehose FILE HydrantFirehoseTargets.cmake NAMESPACE Hydrant::
        DESTINATION "${package_dir}")
# The hooks are part of the component: programs that link either library link the hooks, too, by default.
install(TARGETS firehose_hooks firehose_hooks_static EXPORT HydrantHooks)
install(EXPORT HydrantHooks FILE HydrantHooksTargets.cmake NAMESPACE Hydrant::
        DESTINATION "${package_dir}")

# The registrar over libibverbs, an optional component.
if(TARGET firehose_ibv_shared)
  install(TARGETS firehose_ibv_shared firehose_ibv_static EXPORT HydrantFirehoseIbv COMPONENT firehose_ibv)
  install(EXPORT HydrantFirehoseIbv FILE HydrantFirehoseIbvTargets.cmake NAMESPACE Hydrant::
          DESTINATION "${package_dir}" COMPONENT firehose_ibv)
endif()

# The allocator, an optional component, with jemalloc behind it if that was built.
install(TARGETS hydrant_alloc_shared hydrant_alloc_static EXPORT HydrantAlloc COMPONENT alloc)
if(TARGET hydrant_alloc_jemalloc)
  install(TARGETS hydrant_alloc_jemalloc EXPORT HydrantAlloc COMPONENT alloc)
endif()
install(EXPORT HydrantAlloc FILE HydrantAllocTargets.cmake NAMESPACE Hydrant::
        DESTINATION "${package_dir}" COMPONENT alloc)

# The GASNet tools alone, for programs that use only gasnet_tools.h of GASNet's API.
install(TARGETS hydrant_tools_shared hydrant_tools_static EXPORT HydrantTools COMPONENT tools)
install(EXPORT HydrantTools FILE HydrantToolsTargets.cmake NAMESPACE Hydrant::
        DESTINATION "${package_dir}" COMPONENT tools)

# libhydrant: GASNet's API.
install(TARGETS hydrant_shared hydrant_static EXPORT HydrantHydrant COMPONENT hydrant)
install(TARGETS hydrant_injected LIBRARY COMPONENT hydrant NAMELINK_SKIP)
install(PROGRAMS "${PROJECT_SOURCE_DIR}/scripts/hydrant-trace" DESTINATION "${CMAKE_INSTALL_BINDIR}"
        COMPONENT hydrant)
install(EXPORT HydrantHydrant FILE HydrantHydrantTargets.cmake NAMESPACE Hydrant::
        DESTINATION "${package_dir}" COMPONENT hydrant)

# hydrant_pc_libraries(OUT NAME): the link options for static links of the package found as
# NAME, from pkg-config.
function(hydrant_pc_libraries out name)
  set(libraries "")
  foreach(word IN LISTS ${name}_STATIC_LDFLAGS)
    string(REGEX REPLACE "^-L" "" folder "${word}")
    if(NOT folder IN_LIST CMAKE_C_IMPLICIT_LINK_DIRECTORIES)
      string(APPEND libraries " ${word}")
    endif()
  endforeach()
  set(${out} "${libraries}" PARENT_SCOPE)
endfunction()
# Not Requires.private: with it --cflags would need these packages, which only static links use.
hydrant_pc_libraries(uring_private LIBURING)
set(verbs_private "")
if(TARGET hydrant_ibv)
  hydrant_pc_libraries(verbs_private IBV)
endif()

separate_arguments(verbs_static UNIX_COMMAND "${verbs_private}")

configure_package_config_file(
  "${CMAKE_CURRENT_LIST_DIR}/HydrantConfig.cmake.in" "${PROJECT_BINARY_DIR}/HydrantConfig.cmake"
  INSTALL_DESTINATION "${package_dir}" NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/HydrantConfigVersion.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/HydrantConfig.cmake"
              "${PROJECT_BINARY_DIR}/HydrantConfigVersion.cmake"
              "${CMAKE_CURRENT_LIST_DIR}/HydrantDefault.cmake" DESTINATION "${package_dir}")

# pkg-config: ${pcfiledir} leads back to the prefix, wherever it is moved.
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
# The hooks as a single link option, which neither libtool nor CMake splits, before the library, and marked as
# needed although the program may call none of its functions by name. For -static the linker's --wrap
# redirects the calls; the archive is repeated after libraries that may call dlopen().
# hydrant_kept_library(OUT NAME LIBDIR): the option for the library NAME, with its folder: build systems that take a
# package's -L apart, such as CMake's pkg_check_modules(... IMPORTED_TARGET), do not pass it on.
function(hydrant_kept_library out name libdir)
  set(${out} "-Wl,-L${libdir},--push-state,--no-as-needed,-l${name},--pop-state" PARENT_SCOPE)
endfunction()
hydrant_kept_library(hooks_link firehose_hooks "\${libdir}")
get_target_property(hooks_wrap_flags firehose_hooks_static HYDRANT_WRAP_FLAGS)
set(hooks_static_link "-Wl,-u,hydrant_hooks_1 ${hooks_wrap_flags}")

# hydrant_install_pc(TEMPLATE PACKAGE...): installs TEMPLATE.pc, and TEMPLATE_nohooks.pc for programs and
# libraries without the hooks. Further arguments go to install().
function(hydrant_install_pc template)
  foreach(suffix IN ITEMS "" _nohooks)
    set(pc_name ${template}${suffix})
    set(pc_without "")
    set(pc_hooks "${hooks_link} ")
    set(pc_hooks_private "${hooks_static_link}")
    set(pc_hooks_last " -lfirehose_hooks")
    if(suffix)
      set(pc_without ", without the hooks: each hit asks the kernel")
      set(pc_hooks "")
      set(pc_hooks_private "")
      set(pc_hooks_last "")
    endif()
    configure_file("${PROJECT_SOURCE_DIR}/cmake/${template}.pc.in" "${PROJECT_BINARY_DIR}/${pc_name}.pc" @ONLY)
    install(FILES "${PROJECT_BINARY_DIR}/${pc_name}.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig" ${ARGN})
  endforeach()
endfunction()
hydrant_install_pc(firehose)
hydrant_install_pc(hydrant COMPONENT hydrant)
if(TARGET firehose_ibv_shared)
  hydrant_kept_library(ibv_link firehose_ibv "\${libdir}")
  hydrant_install_pc(firehose_ibv COMPONENT firehose_ibv)
endif()
configure_file("${CMAKE_CURRENT_LIST_DIR}/firehose_hooks.pc.in"
               "${PROJECT_BINARY_DIR}/firehose_hooks.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/firehose_hooks.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
# Programs link jemalloc's library although they use no symbol of it, so that it is loaded at program start.
set(pc_jemalloc "")
if(TARGET hydrant_alloc_jemalloc)
  hydrant_kept_library(pc_jemalloc hydrant_alloc_jemalloc "\${libdir}")
endif()
configure_file("${CMAKE_CURRENT_LIST_DIR}/hydrant_alloc.pc.in" "${PROJECT_BINARY_DIR}/hydrant_alloc.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/hydrant_alloc.pc"
        DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig" COMPONENT alloc)
configure_file("${CMAKE_CURRENT_LIST_DIR}/hydrant_tools.pc.in" "${PROJECT_BINARY_DIR}/hydrant_tools.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/hydrant_tools.pc"
        DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig" COMPONENT tools)

# Documentation for users and for build systems that expect share/doc.
install(FILES "${PROJECT_SOURCE_DIR}/README.md" "${PROJECT_SOURCE_DIR}/CONTRIBUTING.md"
              "${PROJECT_SOURCE_DIR}/LICENSE" "${PROJECT_SOURCE_DIR}/CHANGELOG.md"
        DESTINATION "${CMAKE_INSTALL_DOCDIR}")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/docs" DESTINATION "${CMAKE_INSTALL_DOCDIR}"
        PATTERN CMakeLists.txt EXCLUDE)
# The pages above link to these.
foreach(folder tests bench)
  install(FILES "${PROJECT_SOURCE_DIR}/${folder}/README.md" DESTINATION "${CMAKE_INSTALL_DOCDIR}/${folder}")
endforeach()

include(HydrantGasnetLayout)
