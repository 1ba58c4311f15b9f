# cmake --install: the tools, the libraries with their headers, and a package that
# find_package(kneepoint) finds. Targets are kneepoint::engine, hw, traces, sim,
# calibrate; a consumer includes "sim/simulation.h" and so on, as we do.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/kneepoint)
set(header_dir ${CMAKE_INSTALL_INCLUDEDIR}/kneepoint)
get_property(proto_libraries GLOBAL PROPERTY kneepoint_proto_libraries)
foreach(library kneepoint_options kneepoint_engine kneepoint_hw kneepoint_traces kneepoint_sim kneepoint_calibrate
        ${proto_libraries})
  string(REPLACE "kneepoint_" "" name ${library})
  set_target_properties(${library} PROPERTIES EXPORT_NAME ${name})
  install(TARGETS ${library} EXPORT kneepoint ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
endforeach()
install(TARGETS simulate traces calibrate RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
foreach(folder engine hw traces sim calibrate)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/${folder} DESTINATION ${header_dir} FILES_MATCHING PATTERN "*.h"
          PATTERN gpus EXCLUDE PATTERN models EXCLUDE PATTERN rates EXCLUDE PATTERN server EXCLUDE)
  install(DIRECTORY ${PROJECT_BINARY_DIR}/${folder} DESTINATION ${header_dir} FILES_MATCHING PATTERN "*.pb.h"
          PATTERN CMakeFiles EXCLUDE)
endforeach()
install(EXPORT kneepoint NAMESPACE kneepoint:: FILE kneepointTargets.cmake DESTINATION ${package_dir})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/kneepointConfig.cmake.in
  ${PROJECT_BINARY_DIR}/kneepointConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/kneepointConfigVersion.cmake COMPATIBILITY ExactVersion)
install(FILES ${PROJECT_BINARY_DIR}/kneepointConfig.cmake ${PROJECT_BINARY_DIR}/kneepointConfigVersion.cmake
        DESTINATION ${package_dir})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/kneepoint)
