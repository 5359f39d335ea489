# cmake -DINPUT=<the stub's library> -DOUTPUT=<file.cc> -P embed_stub.cmake: writes
# the library's bytes into a translation unit.
file(READ ${INPUT} bytes HEX)
string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
file(WRITE ${OUTPUT} "#include <cstddef>

namespace convtune::worker::device {

extern const unsigned char kDriverStub[];
extern const size_t kDriverStubBytes;
const unsigned char kDriverStub[] = {${bytes}};
const size_t kDriverStubBytes = sizeof(kDriverStub);

}  // namespace convtune::worker::device
")
