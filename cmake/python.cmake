# What the wheel carries of this build, in a component of its own: python/pyproject.toml installs that
# component below the package `cenote`. A wheel holds no symbolic links, so the library lies there
# once, under the name that programs ask for.

add_custom_target(python)
add_dependencies(python cenote)
install(PROGRAMS $<TARGET_FILE:cenote> DESTINATION bin COMPONENT python EXCLUDE_FROM_ALL)
install(DIRECTORY include/cenote DESTINATION include COMPONENT python EXCLUDE_FROM_ALL
  FILES_MATCHING PATTERN "*.h")
if(TARGET cenote_shared)
  add_dependencies(python cenote_shared)
  install(PROGRAMS $<TARGET_FILE:cenote_shared> RENAME libcenote.so.${CENOTE_SOVERSION}
    DESTINATION lib COMPONENT python EXCLUDE_FROM_ALL)
endif()
if(TARGET cenote_preload)
  add_dependencies(python cenote_preload)
  install(PROGRAMS $<TARGET_FILE:cenote_preload> DESTINATION lib COMPONENT python EXCLUDE_FROM_ALL)
endif()
