# SPDX-License-Identifier: MIT
# Installing: programs find the libraries, and other people's builds find both (find_package, pkg-config), wherever the copy lies.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# weft_install(TARGETS...): programs and shared libraries.
function(weft_install)
  file(RELATIVE_PATH to_lib "/${CMAKE_INSTALL_BINDIR}" "/${CMAKE_INSTALL_LIBDIR}")
  foreach(target ${ARGN})
    get_target_property(type ${target} TYPE)
    if(type STREQUAL EXECUTABLE)
      set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN/${to_lib}")
    else()
      set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN")
    endif()
  endforeach()
  install(TARGETS ${ARGN} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runtime
                          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime)
endfunction()

# weft_package(NAME DESCRIPTION [NEEDS]): find_package(NAME) gives NAME::NAME, `pkg-config NAME` its flags.
function(weft_package name description)
  set(needs ${ARGN})
  file(RELATIVE_PATH from_pc "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
  file(RELATIVE_PATH from_cmake "/${CMAKE_INSTALL_LIBDIR}/cmake/${name}" "/")
  set(files ${CMAKE_CURRENT_BINARY_DIR}/package)
  configure_file(${PROJECT_SOURCE_DIR}/userspace/package.pc.in ${files}/${name}.pc @ONLY)
  configure_file(${PROJECT_SOURCE_DIR}/userspace/package-config.cmake.in ${files}/${name}-config.cmake @ONLY)
  write_basic_package_version_file(${files}/${name}-config-version.cmake VERSION ${PROJECT_VERSION}
                                   COMPATIBILITY SameMinorVersion)
  install(FILES ${files}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT runtime)
  install(FILES ${files}/${name}-config.cmake ${files}/${name}-config-version.cmake
          DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/${name} COMPONENT runtime)
endfunction()
