# Warnings, sanitizers, linker: convtune_options, which every target of ours links.
# And two functions: convtune_library and convtune_write_source.
find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()

find_program(LLD ld.lld)
if(LLD AND NOT CONVTUNE_PORTABLE)
  add_link_options(-fuse-ld=lld)
endif()

if(CONVTUNE_SANITIZE)
  add_compile_options(-fsanitize=${CONVTUNE_SANITIZE} -fno-omit-frame-pointer -g1)
  if(CONVTUNE_SANITIZE MATCHES undefined)
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
  add_link_options(-fsanitize=${CONVTUNE_SANITIZE})
endif()

add_library(convtune_options INTERFACE)
target_include_directories(convtune_options INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_definitions(convtune_options INTERFACE CONVTUNE_VERSION="${PROJECT_VERSION}")
target_compile_options(convtune_options INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor)
# Other compilers warn of other things, in the headers of libraries too: a user's
# build must not fail for that.
set(convtune_werror)
if(CONVTUNE_WERROR)
  set(convtune_werror -Werror)
  target_compile_options(convtune_options INTERFACE ${convtune_werror})
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  target_compile_options(convtune_options INTERFACE -Wthread-safety)
elseif(CONVTUNE_SANITIZE)
  # gcc's flow analysis reports uninitialised values that the sanitizers'
  # instrumentation put there.
  target_compile_options(convtune_options INTERFACE -Wno-maybe-uninitialized)
endif()
# gcc 12 at -O3 sees overlaps in std::string's own code that cannot be (its bug
# 105651, mended in gcc 13).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(convtune_options INTERFACE $<$<CONFIG:Release>:-Wno-restrict>)
endif()
find_package(Threads REQUIRED)
target_link_libraries(convtune_options INTERFACE Threads::Threads)

# convtune_library(<name> <folder>...): a static library of the sources in these folders, but for
# main.cc, which is a program's.
function(convtune_library name)
  foreach(folder IN LISTS ARGN)
    file(GLOB found CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} ${folder}/*.cc)
    list(APPEND sources ${found})
  endforeach()
  list(REMOVE_ITEM sources main.cc)
  add_library(${name} STATIC ${sources})
endfunction()

# Writes a source of the caller's build folder, whose time changes only with its text.
function(convtune_write_source name text)
  set(file ${CMAKE_CURRENT_BINARY_DIR}/${name})
  file(WRITE ${file}.new "${text}")
  file(COPY_FILE ${file}.new ${file} ONLY_IF_DIFFERENT)
endfunction()
