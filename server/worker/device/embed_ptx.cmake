# cmake -DINPUT=<kernels.ptx> -DOUTPUT=<file.cc> -P embed_ptx.cmake: writes the
# kernels' text into a translation unit.
file(READ ${INPUT} ptx)
file(WRITE ${OUTPUT} "#include \"server/worker/device/kernels.h\"

namespace convtune::worker::device {

const char kKernelsPtx[] = R\"ptx(${ptx})ptx\";

}  // namespace convtune::worker::device
")
