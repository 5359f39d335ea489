# cmake -DOUTPUT=<file.cc> -DINPUTS=<a.sql;b.sql> -DHEADER=<header>
# -DNAMESPACE=<namespace> -DFUNCTION=<name> -P embed.cmake: writes the migrations into a translation unit
# that defines the header's function. Their files are called NNNN_name.sql.
set(entries "")
set(expected 1)
foreach(input IN LISTS INPUTS)
  get_filename_component(name ${input} NAME_WE)
  if(NOT name MATCHES "^([0-9][0-9][0-9][0-9])_[a-z0-9_]+$")
    message(FATAL_ERROR "${input}: the name must be NNNN_name.sql")
  endif()
  string(REGEX REPLACE "^0+" "" version ${CMAKE_MATCH_1})
  if(NOT version EQUAL expected)
    message(FATAL_ERROR "${input}: migration ${expected} is missing")
  endif()
  math(EXPR expected "${expected} + 1")
  file(READ ${input} sql)
  string(APPEND entries "    {${version}, \"${name}\", R\"sql(${sql})sql\"},\n")
endforeach()
file(WRITE ${OUTPUT} "#include \"${HEADER}\"

namespace ${NAMESPACE} {
namespace {

constexpr db::sqlite::Migration kMigrations[] = {
${entries}};

}  // namespace

std::span<const db::sqlite::Migration> ${FUNCTION}() { return kMigrations; }

}  // namespace ${NAMESPACE}
")
