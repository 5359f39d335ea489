# cmake -DINPUT=<descriptor set> -DOUTPUT=<file.cc> -P embed_descriptors.cmake:
# writes the set into a translation unit that gives it as ApiDescriptors().
file(READ ${INPUT} hex HEX)
string(REGEX REPLACE "(................................................................)" "\\1\n" hex "${hex}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
file(WRITE ${OUTPUT} "// Generated.\n#include <string_view>\n\nnamespace convtune::rpc {\n
std::string_view ApiDescriptors();

static const unsigned char kBytes[] = {\n${bytes}};

std::string_view ApiDescriptors() {
  return {reinterpret_cast<const char*>(kBytes), sizeof(kBytes)};
}

}  // namespace convtune::rpc\n")
