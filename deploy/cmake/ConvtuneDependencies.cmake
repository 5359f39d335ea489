# Everything that is not ours. Debian and Ubuntu packages, but for the
# google.rpc protos and, where the machine has none, cuDNN (PyPI).
if(CONVTUNE_PORTABLE)
  set(CMAKE_FIND_LIBRARY_SUFFIXES .a .so)
endif()

find_package(PkgConfig REQUIRED)
find_package(Protobuf REQUIRED)
find_package(absl REQUIRED)
find_package(gRPC CONFIG REQUIRED)
find_package(CLI11 REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json 3.10 REQUIRED)
find_package(SQLite3 3.37 REQUIRED)
find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED)

# Debian has no archives of prometheus-cpp: the portable build does without.
if(CONVTUNE_METRICS STREQUAL "ON")
  find_package(prometheus-cpp CONFIG REQUIRED)
elseif(CONVTUNE_METRICS STREQUAL "AUTO" AND NOT CONVTUNE_PORTABLE)
  find_package(prometheus-cpp CONFIG QUIET)
endif()

# libpq, for convtune-fleet alone; without it everything else builds. It has no
# static archive in Debian.
option(CONVTUNE_FLEET "Build convtune-fleet, if libpq is found" ON)
if(CONVTUNE_FLEET AND NOT CONVTUNE_PORTABLE)
  find_package(PostgreSQL)
endif()

# google/rpc/*.proto, which no Debian package holds.
file(GLOB convtune_site_packages ${CMAKE_SOURCE_DIR}/.venv/lib/python3*/site-packages)
find_path(GOOGLEAPIS_PROTO_DIR google/rpc/error_details.proto
  HINTS ${CONVTUNE_PYTHON_PACKAGES} ${convtune_site_packages} NO_DEFAULT_PATH)
if(NOT GOOGLEAPIS_PROTO_DIR)
  message(FATAL_ERROR "google/rpc/error_details.proto not found: run deploy/install-deps, or set "
    "CONVTUNE_PYTHON_PACKAGES to a folder with PyPI's googleapis-common-protos")
endif()

if(CONVTUNE_PORTABLE)
  include(ConvtunePortable)
endif()
