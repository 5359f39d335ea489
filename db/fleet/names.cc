#include "db/fleet/names.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/convert/problem_order.h"
#include "proto/model/problem/conv_problem.h"
#include "proto/model/tuning/candidate.h"

namespace convtune::db::fleet {
namespace {

// "environments" has environment_id, and so on.
std::string IdColumn(const std::string& table) {
  return absl::StrCat(table.substr(0, table.size() - 1), "_id");
}

// What a report groups by: the engine, or the algorithm.
int64_t EngineOf(const CandidateId& id) {
  if (const auto* graph = std::get_if<EngineConfig>(&id)) return graph->engine_index;
  return std::get<LegacyAlgorithm>(id).algorithm;
}

}  // namespace

absl::Status FleetNames::CheckFleet() {
  ASSIGN_OR_RETURN(const postgres::Result row,
                   postgres_->Query(absl::StrCat("SELECT ", kFleetIdSql, " FROM fleet")));
  const std::string id = row.rows() > 0 ? row.Text(0, 0) : "";
  if (fleet_id_.empty()) fleet_id_ = id;
  if (id == fleet_id_ && !id.empty()) return absl::OkStatus();
  return absl::AbortedError("the fleet's tables were made anew");
}

absl::Status FleetNames::Read(const std::vector<std::string>& texts, const std::string& table,
                              Ids* ids) {
  ASSIGN_OR_RETURN(const postgres::Result result,
                   postgres_->Query(absl::StrCat("SELECT text, ", IdColumn(table), " FROM ", table,
                                                 " WHERE text = ANY($1::text[])"),
                                    postgres::Params().Texts(texts)));
  for (int row = 0; row < result.rows(); ++row) {
    (*ids)[result.Text(row, 0)] = result.Int(row, 1);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> FleetNames::Unknown(const std::vector<std::string>& texts,
                                                             const std::string& table, Ids* ids) {
  std::set<std::string> missing;
  for (const std::string& text : texts) {
    if (!ids->contains(text)) missing.insert(text);
  }
  if (missing.empty()) return std::vector<std::string>();
  if (fleet_id_.empty()) RETURN_IF_ERROR(CheckFleet());
  RETURN_IF_ERROR(Read({missing.begin(), missing.end()}, table, ids));
  std::erase_if(missing, [ids](const std::string& text) { return ids->contains(text); });
  return std::vector<std::string>(missing.begin(), missing.end());
}

absl::StatusOr<int64_t> FleetNames::Environment(const convtune::Environment& environment) {
  const std::string text = environment.ToText();
  ASSIGN_OR_RETURN(const auto unknown, Unknown({text}, "environments", &environments_));
  if (!unknown.empty()) {
    RETURN_IF_ERROR(postgres_->Execute(
        "INSERT INTO environments (text, name, profile, gpu_model, cc_major, "
        "cc_minor, sm_count, mig_profile, cudnn_major, cudnn_minor, cudnn_patch, "
        "library) VALUES ($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12) "
        "ON CONFLICT DO NOTHING",
        postgres::Params()
            .Text(text)
            .Text(environment.Name())
            .Bool(environment.profile)
            .Text(environment.gpu_model)
            .Int(environment.cc_major)
            .Int(environment.cc_minor)
            .Int(environment.sm_count)
            .Text(environment.mig_profile)
            .Int(environment.cudnn.major)
            .Int(environment.cudnn.minor)
            .Int(environment.cudnn.patch)
            .Int(static_cast<int64_t>(environment.library))));
    RETURN_IF_ERROR(Read(unknown, "environments", &environments_));
  }
  return environments_.at(text);
}

absl::Status FleetNames::AddProblems(const std::vector<std::string>& texts) {
  ASSIGN_OR_RETURN(const auto unknown, Unknown(texts, "problems", &problems_));
  if (unknown.empty()) return absl::OkStatus();
  std::vector<int64_t> operations, types, layouts, bytes;
  std::vector<double> flops;
  for (const std::string& text : unknown) {
    ASSIGN_OR_RETURN(const ConvProblem problem, ConvProblem::Parse(text));
    operations.push_back(static_cast<int64_t>(problem.operation()));
    types.push_back(static_cast<int64_t>(problem.data_type()));
    layouts.push_back(static_cast<int64_t>(problem.layout()));
    flops.push_back(EstimatedFlops(problem));
    bytes.push_back(problem.TensorBytes());
  }
  RETURN_IF_ERROR(postgres_->Execute(
      "INSERT INTO problems (text, operation, data_type, layout, flops, tensor_bytes) "
      "SELECT * FROM unnest($1::text[], $2::smallint[], $3::smallint[], "
      "$4::smallint[], $5::float8[], $6::bigint[]) ON CONFLICT DO NOTHING",
      postgres::Params()
          .Texts(unknown)
          .Ints(operations)
          .Ints(types)
          .Ints(layouts)
          .Reals(flops)
          .Ints(bytes)));
  return Read(unknown, "problems", &problems_);
}

absl::Status FleetNames::AddCandidates(const std::vector<std::string>& texts) {
  ASSIGN_OR_RETURN(const auto unknown, Unknown(texts, "candidates", &candidates_));
  if (unknown.empty()) return absl::OkStatus();
  std::vector<int64_t> apis, engines;
  for (const std::string& text : unknown) {
    ASSIGN_OR_RETURN(const CandidateId id, ParseCandidateId(text));
    apis.push_back(static_cast<int64_t>(ApiOf(id)));
    engines.push_back(EngineOf(id));
  }
  RETURN_IF_ERROR(
      postgres_->Execute("INSERT INTO candidates (text, api, engine) SELECT * FROM "
                         "unnest($1::text[], $2::smallint[], $3::integer[]) "
                         "ON CONFLICT DO NOTHING",
                         postgres::Params().Texts(unknown).Ints(apis).Ints(engines)));
  return Read(unknown, "candidates", &candidates_);
}

absl::StatusOr<int64_t> FleetNames::Problem(const std::string& text) {
  RETURN_IF_ERROR(AddProblems({text}));
  return problems_.at(text);
}

absl::StatusOr<int64_t> FleetNames::Candidate(const std::string& text) {
  RETURN_IF_ERROR(AddCandidates({text}));
  return candidates_.at(text);
}

}  // namespace convtune::db::fleet
