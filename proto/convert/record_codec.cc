#include "proto/convert/record_codec.h"

namespace convtune {

v1::Provenance ToProto(const Provenance& provenance) {
  v1::Provenance proto;
  proto.set_driver_version(provenance.driver_version);
  proto.set_cuda_version(provenance.cuda_version);
  proto.set_gpu_uuid(provenance.gpu_uuid);
  proto.set_node(provenance.node);
  proto.set_memory_bytes(provenance.memory_bytes);
  proto.set_cublaslt_build(provenance.cublaslt_build);
  proto.set_nvrtc_build(provenance.nvrtc_build);
  return proto;
}

Provenance FromProto(const v1::Provenance& proto) {
  return {proto.driver_version(), proto.cuda_version(),   proto.gpu_uuid(),   proto.node(),
          proto.memory_bytes(),   proto.cublaslt_build(), proto.nvrtc_build()};
}

}  // namespace convtune
