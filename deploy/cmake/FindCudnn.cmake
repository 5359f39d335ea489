# Finds cuDNN and the CUDA runtime and defines
#   Cudnn::cudnn   headers and libcudnn, shared
#   Cudnn::cudart  the CUDA runtime, static if there is libcudart_static.a
# Looked for in CMake's own paths, then /usr/local/cuda, then the PyPI wheels
# (nvidia-cudnn-cu*, nvidia-cuda-runtime*) in CONVTUNE_PYTHON_PACKAGES and .venv.
# With CONVTUNE_CUDA=12 or 13: in the wheels for that CUDA alone, for 12 those of
# .venv-cuda12, since the wheels for both lie in the same folders.
set(cudnn_venv .venv)
set(cudnn_wheels_name wheels)
if(CONVTUNE_CUDA STREQUAL "12")
  set(cudnn_venv .venv-cuda12)
  set(cudnn_wheels_name wheels12)
elseif(NOT CONVTUNE_CUDA MATCHES "^(|13)$")
  message(FATAL_ERROR "CONVTUNE_CUDA: must be 12, 13 or empty, is ${CONVTUNE_CUDA}")
endif()
file(GLOB cudnn_site_packages ${CMAKE_SOURCE_DIR}/${cudnn_venv}/lib/python3*/site-packages)
list(PREPEND cudnn_site_packages ${CONVTUNE_PYTHON_PACKAGES})
set(cudnn_wheels)
set(cuda_wheels)
foreach(site ${cudnn_site_packages})
  file(GLOB found ${site}/nvidia/cu[0-9]* ${site}/nvidia/cuda_runtime)
  # From CUDA 13 on the folder has the number.
  if(CONVTUNE_CUDA STREQUAL "12")
    list(FILTER found INCLUDE REGEX "/cuda_runtime$")
  elseif(CONVTUNE_CUDA STREQUAL "13")
    list(FILTER found INCLUDE REGEX "/cu13$")
  endif()
  if(found)
    list(APPEND cudnn_wheels ${site}/nvidia/cudnn)
    list(APPEND cuda_wheels ${found})
  endif()
endforeach()

if(NOT CONVTUNE_CUDA)
  find_path(CUDNN_INCLUDE_DIR cudnn.h
    HINTS ${CUDNN_ROOT} ENV CUDNN_ROOT /usr/local/cuda PATH_SUFFIXES include)
  find_path(CUDART_INCLUDE_DIR cuda_runtime_api.h
    HINTS ${CUDA_ROOT} ENV CUDA_HOME /usr/local/cuda PATH_SUFFIXES include)
endif()
find_path(CUDNN_INCLUDE_DIR cudnn.h PATHS ${cudnn_wheels} PATH_SUFFIXES include NO_DEFAULT_PATH)
find_path(CUDART_INCLUDE_DIR cuda_runtime_api.h
  PATHS ${cuda_wheels} PATH_SUFFIXES include NO_DEFAULT_PATH)
if(CONVTUNE_CUDA AND NOT (CUDNN_INCLUDE_DIR AND CUDART_INCLUDE_DIR))
  message(FATAL_ERROR "CONVTUNE_CUDA=${CONVTUNE_CUDA}: ${cudnn_venv} has no wheels of cuDNN for it: "
    "run CONVTUNE_CUDA_FROM=${cudnn_wheels_name} deploy/install-deps")
endif()

# The library beside the headers, so that the two are of one version; wheels
# have no libcudnn.so without a number.
set(cudnn_near)
set(cudart_near)
if(CUDNN_INCLUDE_DIR)
  file(REAL_PATH ${CUDNN_INCLUDE_DIR}/cudnn.h cudnn_header)
  cmake_path(GET cudnn_header PARENT_PATH cudnn_near)
  set(cudnn_near ${cudnn_near}/.. ${CUDNN_INCLUDE_DIR}/..)
endif()
set(CUDART_INCLUDE_DIRS ${CUDART_INCLUDE_DIR} CACHE INTERNAL "")
if(CUDART_INCLUDE_DIR)
  set(cudart_near ${CUDART_INCLUDE_DIR}/..)
  # CUDA 12 has the headers' crt/ in the wheel of the compiler.
  if(NOT EXISTS ${CUDART_INCLUDE_DIR}/crt AND EXISTS ${CUDART_INCLUDE_DIR}/../../cuda_nvcc/include/crt)
    set(CUDART_INCLUDE_DIRS ${CUDART_INCLUDE_DIR} ${CUDART_INCLUDE_DIR}/../../cuda_nvcc/include CACHE INTERNAL "")
  endif()
endif()
find_library(CUDNN_LIBRARY NAMES libcudnn.so.9 libcudnn.so
  HINTS ${cudnn_near} /usr/local/cuda PATH_SUFFIXES lib lib64)
find_library(CUDART_LIBRARY NAMES libcudart_static.a libcudart.so libcudart.so.13 libcudart.so.12
  HINTS ${cudart_near} /usr/local/cuda PATH_SUFFIXES lib lib64)

# Headers that a compiler cannot use (the wheels split them) count as missing.
if(CUDNN_INCLUDE_DIR AND CUDART_INCLUDE_DIR)
  file(STRINGS ${CUDNN_INCLUDE_DIR}/cudnn_version.h cudnn_defines REGEX "^#define CUDNN_(MAJOR|MINOR|PATCHLEVEL) ")
  string(REGEX REPLACE "[^0-9;]" "" cudnn_numbers "${cudnn_defines}")
  list(JOIN cudnn_numbers . Cudnn_VERSION)
  include(CheckIncludeFileCXX)
  set(CMAKE_REQUIRED_INCLUDES ${CUDNN_INCLUDE_DIR} ${CUDART_INCLUDE_DIRS})
  set(CMAKE_REQUIRED_QUIET ON)
  check_include_file_cxx(cudnn.h CUDNN_HEADERS_COMPILE)
  unset(CMAKE_REQUIRED_INCLUDES)
  unset(CMAKE_REQUIRED_QUIET)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Cudnn
  REQUIRED_VARS CUDNN_LIBRARY CUDNN_INCLUDE_DIR CUDART_LIBRARY CUDART_INCLUDE_DIR
                CUDNN_HEADERS_COMPILE
  VERSION_VAR Cudnn_VERSION)
mark_as_advanced(CUDNN_INCLUDE_DIR CUDART_INCLUDE_DIR CUDNN_LIBRARY CUDART_LIBRARY)

if(Cudnn_FOUND AND NOT TARGET Cudnn::cudnn)
  if(CUDART_LIBRARY MATCHES "\\.a$")
    add_library(Cudnn::cudart STATIC IMPORTED)
  else()
    add_library(Cudnn::cudart SHARED IMPORTED)
  endif()
  set_target_properties(Cudnn::cudart PROPERTIES
    IMPORTED_LOCATION ${CUDART_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES "${CUDART_INCLUDE_DIRS}"
    INTERFACE_LINK_LIBRARIES "Threads::Threads;${CMAKE_DL_LIBS};rt")
  add_library(Cudnn::cudnn SHARED IMPORTED)
  set_target_properties(Cudnn::cudnn PROPERTIES
    IMPORTED_LOCATION ${CUDNN_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES "${CUDNN_INCLUDE_DIR};${CUDART_INCLUDE_DIRS}")
endif()
