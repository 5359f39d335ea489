#include "db/fleet/evidence.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "db/bundle/bundle_codec.h"
#include "proto/base/status_macros.h"

namespace convtune::db::fleet {
namespace {

// More than any GPU does: a B200 does half as many multiply-adds in a cycle of an SM, and none has
// such a clock.
constexpr double kMultiplyAddsOfBytes = 16384;
constexpr double kMultiplyAddsOfWider = 8192;
constexpr double kClockMhz = 4000;

// Rows that are removed in one transaction, so that nothing waits long for a lock.
constexpr int64_t kAtOnce = 10'000;

// The least time that the problem takes any GPU of so many SMs. Whatever the algorithm, each place
// of the output that the image reaches takes a product for each pair of channels (Winograd,
// Arithmetic Complexity of Computations, 1980).
double LeastMicros(const ConvProblem& problem, int sm_count) {
  const std::vector<int64_t>& x = problem.x_dims();
  const std::vector<int64_t>& y = problem.y_dims();
  double products = static_cast<double>(x[0]) * static_cast<double>(y[1]) *
                    static_cast<double>(problem.w_dims()[1]);
  for (size_t d = 2; d < x.size(); ++d) products *= static_cast<double>(std::min(x[d], y[d]));
  const bool bytes = SizeOf(problem.data_type()) == 1;
  return products / (std::max(1, sm_count) * kClockMhz *
                     (bytes ? kMultiplyAddsOfBytes : kMultiplyAddsOfWider));
}

// INVALID_ARGUMENT: a time is less than a GPU can do it in.
absl::Status CheckTimes(const Tuning& tuning, const Environment& environment) {
  ASSIGN_OR_RETURN(const ConvProblem problem, ConvProblem::Parse(tuning.key.problem_text));
  const double least = LeastMicros(problem, environment.sm_count);
  for (const Candidate& candidate : tuning.candidates) {
    if (!candidate.timed() || candidate.median_us >= least) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "median_us of ", ToText(candidate.id), ": must be at least ", least, ", which ",
        environment.sm_count, " SMs at ", kClockMhz, " MHz would take, is ", candidate.median_us));
  }
  return absl::OkStatus();
}

// The tuning, which is judged by no clock of a node, with its environment. INVALID_ARGUMENT names
// the rule that either breaks.
absl::StatusOr<TuningRecord> ReadTuning(const v1::Tuning& proto,
                                        const v1::BundleEnvironment& environment) {
  const bundle::BundleEnvironmentRow known = bundle::FromBundleEnvironment(environment);
  ASSIGN_OR_RETURN(Tuning tuning, bundle::FromBundleTuning(proto, known, absl::InfiniteFuture()));
  RETURN_IF_ERROR(CheckTimes(tuning, known.environment));
  return TuningRecord{std::move(tuning), known.environment};
}

absl::StatusOr<int64_t> TakeEpoch(postgres::Connection& postgres, int64_t node_id,
                                  const v1::OutboxId& id) {
  return postgres.QueryValue<int64_t>(
      "INSERT INTO node_epochs (node_id, epoch, ordinal, last_sequence) SELECT $1, $2, "
      "COALESCE(MAX(ordinal), 0) + 1, $3 FROM node_epochs WHERE node_id = $1 "
      "ON CONFLICT (node_id, epoch) DO UPDATE SET "
      "last_sequence = GREATEST(node_epochs.last_sequence, EXCLUDED.last_sequence) "
      "RETURNING ordinal",
      {node_id, id.epoch(), id.sequence()});
}

absl::StatusOr<int64_t> TakeProvenance(postgres::Connection& postgres, int64_t node_id,
                                       const Provenance& from) {
  constexpr char kColumns[] =
      "(node_id, driver_version, cuda_version, cublaslt_build, nvrtc_build, gpu_uuid, "
      "memory_bytes)";
  // The node's row is locked: nobody else makes it meanwhile.
  return postgres.QueryValue<int64_t>(
      absl::StrCat("WITH p AS (SELECT $1::integer AS node_id, $2::text AS driver_version, $3::text "
                   "AS cuda_version, $4::text AS cublaslt_build, $5::text AS nvrtc_build, $6::text "
                   "AS gpu_uuid, $7::bigint AS memory_bytes), here AS (SELECT provenance_id FROM "
                   "provenances "
                   "JOIN p USING ",
                   kColumns, "), made AS (INSERT INTO provenances ", kColumns,
                   " SELECT * FROM p WHERE NOT EXISTS (SELECT 1 FROM here) RETURNING "
                   "provenance_id) SELECT * FROM here UNION ALL SELECT * FROM made"),
      {node_id, from.driver_version, from.cuda_version, from.cublaslt_build, from.nvrtc_build,
       from.gpu_uuid, from.memory_bytes});
}

// A delivery as a row `d` of evidence. Its digest is computed once, not for each row that it is
// compared with. Where the environment or the problem has no row, the id is NULL, which no table
// takes: then the delivery fails.
constexpr char kDelivery[] =
    "WITH d AS MATERIALIZED (SELECT (SELECT environment_id FROM environments WHERE text = $1), "
    "(SELECT problem_id FROM problems WHERE text = $2), $3::integer AS node_id, "
    "$4::integer AS epoch_ordinal, $5::bigint AS sequence, $6::smallint AS evidence, $7::boolean "
    "AS full_listing, $8::boolean AS clean, $9::boolean AS relayed, substring(sha256($10) FROM 1 "
    "FOR 16) AS digest, $10::bytea AS payload)";

// The row that the delivery became, with the columns environment_id, problem_id and current; no row
// where it was here already.
absl::StatusOr<postgres::Result> Take(postgres::Connection& postgres, int64_t node_id,
                                      const v1::OutboxRow& row, const Tuning& tuning) {
  const TuningStanding standing = StandingOf(tuning);
  const std::string payload = WritePayload(tuning);
  ASSIGN_OR_RETURN(const int64_t ordinal, TakeEpoch(postgres, node_id, row.id()));
  postgres::Params params = {tuning.key.environment_text,
                             tuning.key.problem_text,
                             node_id,
                             ordinal,
                             row.id().sequence(),
                             standing.evidence,
                             standing.full_listing,
                             standing.clean,
                             row.relayed(),
                             postgres::Bytes{payload}};
  // Of relayed ones every node brings back the same: one is enough. Nothing worse ever takes the
  // place of something better, as on a node.
  ASSIGN_OR_RETURN(
      postgres::Result is_new,
      postgres.Query(
          absl::StrCat(kDelivery,
                       ", new AS (SELECT * FROM d WHERE NOT EXISTS (SELECT 1 FROM evidence e WHERE "
                       "e.node_id = d.node_id AND e.epoch_ordinal = d.epoch_ordinal AND e.sequence "
                       "= d.sequence) AND NOT EXISTS (SELECT 1 FROM evidence e WHERE "
                       "e.environment_id = d.environment_id AND e.problem_id = d.problem_id AND "
                       "e.node_id = d.node_id AND e.digest = d.digest) AND NOT (d.relayed AND "
                       "EXISTS (SELECT 1 FROM evidence e WHERE e.environment_id = d.environment_id "
                       "AND e.problem_id = d.problem_id AND e.current AND e.relayed AND e.digest = "
                       "d.digest))), worse AS (UPDATE evidence e SET current = false, payload = "
                       "NULL FROM new d WHERE e.environment_id = d.environment_id AND e.problem_id "
                       "= d.problem_id AND e.node_id = d.node_id AND e.current AND (e.evidence, "
                       "e.full_listing, e.clean, NOT e.relayed, e.epoch_ordinal, e.sequence) < "
                       "(d.evidence, d.full_listing, d.clean, NOT d.relayed, d.epoch_ordinal, "
                       "d.sequence)) SELECT 1 FROM new"),
          params));
  if (is_new.empty()) return is_new;
  ASSIGN_OR_RETURN(const int64_t provenance, TakeProvenance(postgres, node_id, tuning.provenance));
  params.emplace_back(provenance);
  return postgres.Query(
      absl::StrCat(kDelivery,
                   " INSERT INTO evidence (environment_id, problem_id, node_id, epoch_ordinal, "
                   "sequence, provenance_id, evidence, full_listing, clean, relayed, digest, "
                   "payload, current) SELECT d.environment_id, d.problem_id, d.node_id, "
                   "d.epoch_ordinal, d.sequence, $11, d.evidence, d.full_listing, d.clean, "
                   "d.relayed, d.digest, CASE WHEN c.best THEN d.payload END, c.best FROM d, "
                   "LATERAL (SELECT NOT EXISTS (SELECT 1 FROM evidence e WHERE e.environment_id = "
                   "d.environment_id AND e.problem_id = d.problem_id AND e.node_id = d.node_id AND "
                   "e.current) AS best) c RETURNING environment_id, problem_id, current"),
      params);
}

}  // namespace

absl::StatusOr<int64_t> Deliver(postgres::Connection& postgres, FleetNames& names, int64_t node_id,
                                const std::vector<v1::OutboxRow>& rows) {
  std::vector<Tuning> tunings;
  std::vector<Environment> environments;
  std::vector<std::string> problems;
  for (const v1::OutboxRow& row : rows) {
    ASSIGN_OR_RETURN(TuningRecord read, ReadTuning(row.tuning(), row.environment()));
    environments.push_back(std::move(read.environment));
    problems.push_back(read.tuning.key.problem_text);
    tunings.push_back(std::move(read.tuning));
  }
  RETURN_IF_ERROR(names.AddEnvironments(environments));
  RETURN_IF_ERROR(names.AddProblems(problems));
  ASSIGN_OR_RETURN(postgres::Transaction transaction, names.Begin());
  RETURN_IF_ERROR(postgres.Execute("SELECT 1 FROM nodes WHERE node_id = $1 FOR UPDATE", {node_id}));
  int64_t repeated = 0;
  std::vector<int64_t> pooled_environments, pooled_problems;
  for (size_t i = 0; i < rows.size(); ++i) {
    ASSIGN_OR_RETURN(const postgres::Result taken, Take(postgres, node_id, rows[i], tunings[i]));
    if (taken.empty()) ++repeated;
    if (taken.empty() || !taken[0][2]) continue;
    pooled_environments.push_back(taken[0][0]);
    pooled_problems.push_back(taken[0][1]);
  }
  RETURN_IF_ERROR(
      postgres.Execute("UPDATE nodes SET duplicate_count = duplicate_count + $2 WHERE node_id = $1",
                       {node_id, repeated}));
  RETURN_IF_ERROR(
      postgres.Execute("SELECT queue_pooling($1, $2)", {pooled_environments, pooled_problems}));
  RETURN_IF_ERROR(transaction.Commit());
  return repeated;
}

absl::StatusOr<std::optional<int64_t>> LastDelivered(postgres::Connection& postgres,
                                                     int64_t node_id, int64_t epoch) {
  ASSIGN_OR_RETURN(const postgres::Result found,
                   postgres.Query("SELECT MAX(last_sequence) FROM node_epochs WHERE node_id = $1 "
                                  "AND ($2::bigint = 0 OR epoch = $2::bigint)",
                                  {node_id, epoch}));
  return found[0][0].Maybe<int64_t>();
}

std::string WritePayload(const Tuning& tuning) {
  return bundle::ToBundleTuning(tuning, 1, /*with_samples=*/false).SerializeAsString();
}

absl::StatusOr<TuningRecord> ReadPayload(const std::string& payload,
                                         const std::string& environment_text,
                                         const std::string& gpu_model) {
  v1::BundleEnvironment environment;
  environment.set_number(1);
  environment.set_text(environment_text);
  environment.set_gpu_model(gpu_model);
  v1::Tuning proto;
  if (!proto.ParseFromString(payload)) {
    return absl::InvalidArgumentError("payload: must be a convtune.v1.Tuning");
  }
  return ReadTuning(proto, environment);
}

absl::StatusOr<Thinned> ThinFleet(postgres::Connection& postgres, absl::Duration keep) {
  Thinned thinned;
  while (true) {
    ASSIGN_OR_RETURN(const postgres::Result rows,
                     postgres.Query("SELECT evidence_count, task_count, payload_count FROM "
                                    "thin($1::float8 * interval '1 second', $2)",
                                    {keep, kAtOnce}));
    const int64_t evidence = rows[0][0];
    const int64_t tasks = rows[0][1];
    thinned.evidence += evidence;
    thinned.tasks += tasks;
    thinned.payloads += int64_t{rows[0][2]};
    if (evidence < kAtOnce && tasks < kAtOnce) return thinned;
  }
}

absl::StatusOr<std::optional<Thinned>> ThinFleetDaily(postgres::Connection& postgres,
                                                      absl::Duration keep) {
  ASSIGN_OR_RETURN(const bool ours, postgres.QueryValue<bool>("SELECT thin_is_due()"));
  if (!ours) return std::nullopt;
  return ThinFleet(postgres, keep);
}

}  // namespace convtune::db::fleet
