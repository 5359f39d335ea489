#include "proto/convert/terms_proto.h"

#include <cmath>
#include <limits>

#include "proto/base/strings.h"

namespace convtune {

Constraints ReadConstraints(const v1::Constraints& in, FieldRules* rules) {
  Constraints out;
  if (in.has_max_workspace_bytes()) {
    rules->Range("constraints.max_workspace_bytes", in.max_workspace_bytes(), 0,
                 std::numeric_limits<int64_t>::max());
    out.max_workspace_bytes = in.max_workspace_bytes();
  }
  out.deterministic = in.deterministic();
  out.forbid_tf32 = in.forbid_tf32();
  out.forbid_down_convert = in.forbid_down_convert();
  out.forbid_winograd = in.forbid_winograd();
  out.forbid_fft = in.forbid_fft();
  out.forbid_reduced_precision_reduction = in.forbid_reduced_precision_reduction();
  rules->Enum<Api>("constraints.api", in.api(), &out.api);
  rules->Enum<LaunchMode>("constraints.launch", in.launch(), &out.launch);
  if (in.has_max_error()) {
    rules->Require(std::isfinite(in.max_error()) && in.max_error() >= 0, "constraints.max_error",
                   "must be a finite number of at least 0");
    out.max_error = in.max_error();
  }
  rules->Enum<CacheState>("constraints.cache_state", in.cache_state(), &out.cache_state);
  return out;
}

v1::Environment ToProto(const Environment& environment) {
  v1::Environment out;
  out.set_name(environment.Name());
  out.set_text(environment.ToText());
  out.set_profile(environment.profile);
  out.set_gpu_model(environment.gpu_model);
  out.set_compute_capability(Concat(environment.cc_major, ".", environment.cc_minor));
  out.set_sm_count(environment.sm_count);
  out.set_mig_profile(environment.mig_profile);
  out.set_cudnn_version(environment.cudnn.ToText());
  out.set_library_configuration(static_cast<v1::LibraryConfiguration>(environment.library));
  return out;
}

}  // namespace convtune
