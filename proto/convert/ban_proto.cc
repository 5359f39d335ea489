#include "proto/convert/ban_proto.h"

#include "proto/base/clock.h"
#include "proto/base/strings.h"
#include "proto/convert/field_rules.h"
#include "proto/convert/record_codec.h"

namespace convtune {

v1::Ban ToProto(const Ban& ban) {
  v1::Ban out;
  if (ban.number != 0) out.set_name(ban.Name());
  out.set_fleet_ban(ban.fleet_ban);
  out.set_candidate(ban.candidate.ToText());
  out.set_cudnn(ban.cudnn.ToText());
  out.set_gpu(ban.gpu);
  if (ban.operation) out.set_operation(static_cast<v1::Operation>(*ban.operation));
  if (ban.data_type) out.set_data_type(static_cast<v1::DataType>(*ban.data_type));
  if (ban.layout) out.set_layout(static_cast<v1::TensorLayout>(*ban.layout));
  out.set_spatial_rank(ban.spatial_rank);
  out.set_shipped(ban.shipped());
  out.set_author(ban.author);
  out.set_reason(ban.reason);
  *out.mutable_create_time() = ToProto(ban.create_time);
  if (ban.expire_time.has_value()) *out.mutable_expire_time() = ToProto(*ban.expire_time);
  return out;
}

v1::BannedCandidate ToProto(const CandidateId& candidate, const Ban& ban) {
  v1::BannedCandidate out;
  out.set_candidate(ToText(candidate));
  out.set_ban(ban.Name());
  out.set_reason(ban.reason);
  out.set_fleet_ban(ban.fleet_ban);
  return out;
}

Ban BanFromProto(const v1::Ban& proto, std::string_view field, std::vector<Violation>* violations) {
  FieldRules rules(violations);
  const std::string below = Concat(field, ".");
  Ban ban;
  rules.Parsed(below + "candidate", &CandidatePattern::Parse, proto.candidate(), 1, &ban.candidate);
  rules.Parsed(below + "cudnn", &CudnnRange::Parse, proto.cudnn(), 0, &ban.cudnn);
  rules.Parsed(below + "gpu", &ReadGpuGlob, proto.gpu(), 0, &ban.gpu);
  rules.Enum<Operation>(below + "operation", proto.operation(), &ban.operation);
  rules.Enum<DataType>(below + "data_type", proto.data_type(), &ban.data_type);
  rules.Enum<TensorLayout>(below + "layout", proto.layout(), &ban.layout);
  rules.Range(below + "spatial_rank", proto.spatial_rank(), 0, 3);
  ban.spatial_rank = proto.spatial_rank();
  rules.Author(below + "author", proto.author());
  rules.Reason(below + "reason", proto.reason());
  ban.author = proto.author();
  ban.reason = proto.reason();
  rules.Require(proto.fleet_ban() >= 0, below + "fleet_ban", "must not be negative");
  ban.fleet_ban = proto.fleet_ban();
  if (proto.has_expire_time()) {
    // A Timestamp ends in the year 9999.
    constexpr int64_t kMostSeconds = 253402300799;
    const google::protobuf::Timestamp& time = proto.expire_time();
    rules.Range(below + "expire_time.seconds", time.seconds(), 0, kMostSeconds);
    rules.Range(below + "expire_time.nanos", time.nanos(), 0, 999'999'999);
    ban.expire_time =
        ToMicros(absl::FromUnixSeconds(time.seconds()) + absl::Nanoseconds(time.nanos()));
  }
  return ban;
}

}  // namespace convtune
