#include "proto/convert/ban_proto.h"

#include "proto/base/clock.h"
#include "proto/base/strings.h"
#include "proto/convert/field_rules.h"
#include "proto/convert/record_codec.h"
#include "proto/model/environment.h"

namespace convtune {
namespace {

template <typename Value, typename Enum>
void ReadCondition(std::string_view field, Enum in, std::optional<Value>* out, FieldRules* rules) {
  rules->KnownEnum(field, in);
  if (static_cast<int>(in) != 0) *out = static_cast<Value>(in);
}

}  // namespace

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

v1::CreateBanResponse ToProto(const Ban& ban, const BanEffects& effects) {
  v1::CreateBanResponse out;
  *out.mutable_ban() = ToProto(ban);
  for (const BanChange& change : effects.changes) {
    v1::BanChange& added = *out.add_changes();
    added.set_problem_text(change.key.problem_text);
    added.set_environment(
        Environment::Parse(change.key.environment_text).value_or(Environment()).Name());
    added.set_before(change.before);
    added.set_after(change.after);
    added.set_ratio(change.ratio);
    added.set_pinned(change.pinned);
  }
  out.set_change_count(effects.change_count);
  out.set_lost_count(effects.lost_count);
  out.set_listed_count(effects.listed_count);
  return out;
}

Ban BanFromProto(const v1::Ban& proto, std::string_view field, std::vector<Violation>* violations) {
  FieldRules rules(violations);
  const std::string below = Concat(field, ".");
  Ban ban;
  rules.Parsed(below + "candidate", &CandidatePattern::Parse, proto.candidate(), 1, &ban.candidate);
  rules.Parsed(below + "cudnn", &CudnnRange::Parse, proto.cudnn(), 0, &ban.cudnn);
  rules.Parsed(below + "gpu", &ReadGpuGlob, proto.gpu(), 0, &ban.gpu);
  ReadCondition(below + "operation", proto.operation(), &ban.operation, &rules);
  ReadCondition(below + "data_type", proto.data_type(), &ban.data_type, &rules);
  ReadCondition(below + "layout", proto.layout(), &ban.layout, &rules);
  rules.Range(below + "spatial_rank", proto.spatial_rank(), 0, 3);
  ban.spatial_rank = proto.spatial_rank();
  rules.Decision(below, proto.author(), proto.reason());
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
