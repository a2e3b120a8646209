# What `make install` lays down: libraries, headers, pkg-config file, CMake package, manual, the
# documents, completion. Nothing of it knows where it was installed, so the tree can be moved.

include(GNUInstallDirs)

install(TARGETS cenote RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS cenote_static ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET cenote_shared)
  install(TARGETS cenote_shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
if(TARGET cenote_preload) # where `cenote run` looks for it: beside the folder of the program
  install(TARGETS cenote_preload LIBRARY DESTINATION lib/cenote)
endif()
install(DIRECTORY include/cenote DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")

set(pkgconfig_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH CENOTE_PC_PREFIX /prefix/${pkgconfig_dir} /prefix)
configure_file(cmake/cenote.pc.in cenote.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/cenote.pc DESTINATION ${pkgconfig_dir})

include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/cenote)
configure_package_config_file(cmake/cenoteConfig.cmake.in cenoteConfig.cmake
  INSTALL_DESTINATION ${package_dir} NO_CHECK_REQUIRED_COMPONENTS_MACRO
  PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR)
if(PROJECT_VERSION_MAJOR EQUAL 0)
  set(compatibility SameMinorVersion)
else()
  set(compatibility SameMajorVersion)
endif()
write_basic_package_version_file(cenoteConfigVersion.cmake COMPATIBILITY ${compatibility})
install(FILES ${CMAKE_BINARY_DIR}/cenoteConfig.cmake ${CMAKE_BINARY_DIR}/cenoteConfigVersion.cmake
  DESTINATION ${package_dir})

foreach(section 1 3 5 7)
  file(GLOB pages CONFIGURE_DEPENDS man/*.${section})
  if(pages)
    install(FILES ${pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section})
  endif()
endforeach()

# Units of the system's broker and of a user's. Where systemd looks for them is up to the prefix:
# /usr and /usr/local are right, others need a link.
install(DIRECTORY packaging/systemd/ DESTINATION lib/systemd)

# All that the README leads to: tests/checks/install.sh follows its links.
install(FILES README.md CHANGELOG.md CONTRIBUTING.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs examples DESTINATION ${CMAKE_INSTALL_DOCDIR}
  FILES_MATCHING PATTERN "*.md" PATTERN "*.svg" PATTERN "*.c" PATTERN "*.py")

# Completion comes from the command table itself, as the binary lists it.
set(completion ${CMAKE_BINARY_DIR}/completion/cenote)
add_custom_command(OUTPUT ${completion}
  COMMAND Python3::Interpreter ${CMAKE_SOURCE_DIR}/tools/make_completion.py $<TARGET_FILE:cenote> ${completion}
  DEPENDS cenote ${CMAKE_SOURCE_DIR}/tools/make_completion.py
  COMMENT "Writing the shell's completion")
add_custom_target(completion ALL DEPENDS ${completion})
install(FILES ${completion} DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
