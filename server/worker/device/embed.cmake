# cmake -DINPUT=<file> -DOUTPUT=<file.cc> -DNAME=<name> -DTYPE=<of a byte> -P embed.cmake: writes
# the file's bytes, and a 0 behind them, into a translation unit.
file(READ ${INPUT} bytes HEX)
string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
file(WRITE ${OUTPUT} "#include <cstddef>

namespace convtune::worker::device {

extern const ${TYPE} ${NAME}[];
extern const size_t ${NAME}Bytes;
const ${TYPE} ${NAME}[] = {${bytes}0x00};
const size_t ${NAME}Bytes = sizeof(${NAME}) - 1;

}  // namespace convtune::worker::device
")
