# Links all but glibc, CUDA and cuDNN statically. The distributions' CMake files
# name shared libraries only, but most have an archive beside them: it takes the
# shared one's place, and what CMake knows of the dependencies still holds.
# libgcc_s is wherever glibc is; its archive would need glibc 2.35.
add_link_options(-static-libstdc++)
# Carried programs name no folder of the machine that built them: cuDNN is that
# of LD_LIBRARY_PATH or of the loader.
set(CMAKE_SKIP_RPATH ON)

# Sets the archive that `target` is linked from.
function(convtune_link_archive target archive)
  get_target_property(configurations ${target} IMPORTED_CONFIGURATIONS)
  set_target_properties(${target} PROPERTIES IMPORTED_LOCATION ${archive})
  if(configurations)
    foreach(configuration IN LISTS configurations)
      set_target_properties(${target} PROPERTIES IMPORTED_LOCATION_${configuration} ${archive})
    endforeach()
  endif()
endfunction()

get_property(convtune_imported DIRECTORY ${CMAKE_SOURCE_DIR} PROPERTY IMPORTED_TARGETS)
foreach(target IN LISTS convtune_imported)
  get_target_property(type ${target} TYPE)
  if(NOT type MATCHES "^(SHARED|UNKNOWN)_LIBRARY$")
    continue()
  endif()
  get_target_property(location ${target} LOCATION)
  if(NOT location MATCHES "\\.so[0-9.]*$")
    continue()
  endif()
  string(REGEX REPLACE "\\.so[0-9.]*$" ".a" archive ${location})
  if(EXISTS ${archive})
    convtune_link_archive(${target} ${archive})
  endif()
endforeach()

# Where re2 has no CMake files, gRPC finds it by pkg-config: flags, not a file.
get_target_property(convtune_re2_type re2::re2 TYPE)
if(convtune_re2_type STREQUAL "INTERFACE_LIBRARY")
  find_library(CONVTUNE_RE2_ARCHIVE libre2.a REQUIRED)
  set_target_properties(re2::re2 PROPERTIES INTERFACE_LINK_LIBRARIES
    "${CONVTUNE_RE2_ARCHIVE};Threads::Threads")
endif()

# Debian has no archives of spdlog and fmt: their headers are compiled in. A
# shared target must name a file, hence the empty archive.
set(convtune_empty_archive ${CMAKE_BINARY_DIR}/libempty.a)
file(WRITE ${convtune_empty_archive} "!<arch>\n")
foreach(pair spdlog::spdlog=spdlog::spdlog_header_only fmt::fmt=fmt::fmt-header-only)
  string(REPLACE "=" ";" pair ${pair})
  list(GET pair 0 target)
  list(GET pair 1 header_only)
  if(TARGET ${target} AND TARGET ${header_only})
    get_target_property(type ${target} TYPE)
    if(type STREQUAL "SHARED_LIBRARY")
      convtune_link_archive(${target} ${convtune_empty_archive})
      set_target_properties(${target} PROPERTIES
        INTERFACE_COMPILE_DEFINITIONS ""
        INTERFACE_LINK_LIBRARIES ${header_only})
    endif()
  endif()
endforeach()
