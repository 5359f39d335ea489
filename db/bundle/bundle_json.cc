#include "db/bundle/bundle_json.h"

#include <google/protobuf/util/json_util.h>

#include <set>

#include "proto/base/status_macros.h"
#include "proto/base/strings.h"
#include "proto/convert/record_codec.h"

namespace convtune::db::bundle {
namespace {

absl::StatusOr<std::string> Json(const google::protobuf::Message& message) {
  std::string json;
  if (!google::protobuf::util::MessageToJsonString(message, &json).ok()) {
    return absl::InternalError("a record has no JSON form");
  }
  return json;
}

}  // namespace

absl::Status WriteBundleJson(BundleReader* reader, const std::vector<std::string>& trusted,
                             const std::function<absl::Status(const std::string&)>& sink) {
  std::set<int> said;
  BundleEntry entry;
  while (true) {
    ASSIGN_OR_RETURN(const bool more, reader->Next(&entry));
    if (!more) break;
    const BundleEnvironmentRow& place = *entry.environment;
    if (said.insert(entry.row->environment_number()).second) {
      v1::BundleEnvironment proto = ToBundleEnvironment(0, place.environment, place.provenance);
      proto.set_text(place.text);
      ASSIGN_OR_RETURN(const std::string json, Json(proto));
      RETURN_IF_ERROR(sink(Concat(kBundleJson, json, "}\n")));
    }
    v1::BundleEnvironment text_only;
    text_only.set_text(place.text);
    ASSIGN_OR_RETURN(const std::string environment, Json(text_only));
    entry.row->clear_environment_number();
    for (v1::Candidate& candidate : *entry.row->mutable_candidates()) {
      Candidate read;
      if (!Read(candidate, &read).ok()) continue;
      candidate.set_text(ToText(read.id));
      candidate.set_deterministic(read.deterministic());
      candidate.clear_kind();
    }
    ASSIGN_OR_RETURN(const std::string tuning, Json(*entry.row));
    // {"text":"..."} without its braces, under the name that people look for.
    RETURN_IF_ERROR(sink(Concat("{\"environment\":", environment.substr(8, environment.size() - 9),
                                ",\"tuning\":", tuning, "}\n")));
  }
  return CheckBundleSignature(reader->trailer(), trusted, reader->name());
}

}  // namespace convtune::db::bundle
