#include "db/fleet/evidence.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "db/bundle/bundle_codec.h"
#include "proto/base/status_macros.h"

namespace convtune::db::fleet {
namespace {

std::string Payload(const Tuning& tuning) {
  return bundle::ToBundleTuning(tuning, 1, /*with_samples=*/false).SerializeAsString();
}

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

// INVALID_ARGUMENT names the rule that it breaks: what is kept can be read again.
absl::Status Check(const FleetDelivery& delivery) {
  if (delivery.environment.ToText() != delivery.tuning.key.environment_text) {
    return absl::InvalidArgumentError(absl::StrCat("environment: must be the key's, ",
                                                   delivery.tuning.key.environment_text, ", is ",
                                                   delivery.environment.ToText()));
  }
  bundle::BundleEnvironmentRow environment;
  environment.text = delivery.tuning.key.environment_text;
  environment.environment = delivery.environment;
  RETURN_IF_ERROR(
      bundle::FromBundleTuning(bundle::ToBundleTuning(delivery.tuning, 1, /*with_samples=*/false),
                               environment, absl::InfiniteFuture())
          .status());
  return CheckTimes(delivery.tuning, delivery.environment);
}

// Deliveries of one node, one after the other.
class Delivering {
 public:
  Delivering(postgres::Connection& postgres, FleetNames& names, int64_t node_id)
      : postgres_(postgres), names_(names), node_id_(node_id) {}

  // Every name first, outside the transaction.
  absl::Status MakeNames(const std::vector<FleetDelivery>& deliveries) {
    std::vector<std::string> problems;
    for (const FleetDelivery& delivery : deliveries) {
      RETURN_IF_ERROR(Check(delivery));
      RETURN_IF_ERROR(names_.Environment(delivery.environment).status());
      problems.push_back(delivery.tuning.key.problem_text);
    }
    return names_.AddProblems(problems);
  }

  absl::StatusOr<bool> Take(const FleetDelivery& delivery) {
    ASSIGN_OR_RETURN(const int64_t ordinal, Ordinal(delivery.id));
    ASSIGN_OR_RETURN(const int64_t environment, names_.Environment(delivery.environment));
    ASSIGN_OR_RETURN(const int64_t problem, names_.Problem(delivery.tuning.key.problem_text));
    const std::string payload = Payload(delivery.tuning);
    ASSIGN_OR_RETURN(
        const postgres::Result here,
        postgres_.Query(
            "SELECT evidence_id, epoch_ordinal, sequence, current, evidence, full_listing, clean, "
            "digest = substring(sha256($4) FROM 1 FOR 16) OR (epoch_ordinal = $5 AND sequence = "
            "$6), NOT relayed FROM evidence WHERE environment_id = $1 AND problem_id = $2 AND "
            "node_id = $3",
            {environment, problem, node_id_, postgres::Bytes{payload}, ordinal,
             delivery.id.sequence()}));
    if (delivery.relayed) {
      // Every node brings back the same: one is enough.
      ASSIGN_OR_RETURN(
          const bool again,
          postgres_.QueryValue<bool>(
              "SELECT EXISTS (SELECT 1 FROM evidence WHERE environment_id = $1 AND problem_id = $2 "
              "AND current AND relayed AND digest = substring(sha256($3) FROM 1 FOR 16))",
              {environment, problem, postgres::Bytes{payload}}));
      if (again) return false;
    }
    bool newest = true;
    int64_t replaced = 0;
    for (const postgres::Row row : here) {
      if (row[7]) return false;
      if (!row[3]) continue;
      replaced = row[0];
      // Nothing worse ever takes the place of something better, as on a node.
      const TuningStanding standing{row[4], row[5], row[6]};
      newest = std::tuple(standing, bool{row[8]}, int64_t{row[1]}, int64_t{row[2]}) <
               std::tuple(StandingOf(delivery.tuning), !delivery.relayed, ordinal,
                          delivery.id.sequence());
    }
    if (newest && replaced != 0) RETURN_IF_ERROR(Supersede(replaced));
    ASSIGN_OR_RETURN(const bool made,
                     Insert(delivery, ordinal, environment, problem, payload, newest));
    if (!made || !newest) return made;
    changed_.emplace(environment, problem);
    return true;
  }

  absl::Status QueuePooling() {
    std::vector<int64_t> environments, problems;
    for (const auto& [environment, problem] : changed_) {
      environments.push_back(environment);
      problems.push_back(problem);
    }
    return postgres_.Execute("SELECT queue_pooling($1, $2)", {environments, problems});
  }

 private:
  absl::StatusOr<int64_t> Ordinal(const v1::OutboxId& id) {
    return postgres_.QueryValue<int64_t>(
        "INSERT INTO node_epochs (node_id, epoch, ordinal, last_sequence) SELECT $1, $2, "
        "COALESCE(MAX(ordinal), 0) + 1, $3 FROM node_epochs WHERE node_id = $1 "
        "ON CONFLICT (node_id, epoch) DO UPDATE SET "
        "last_sequence = GREATEST(node_epochs.last_sequence, EXCLUDED.last_sequence) "
        "RETURNING ordinal",
        {node_id_, id.epoch(), id.sequence()});
  }

  absl::StatusOr<int64_t> Provenance(const convtune::Provenance& from) {
    const postgres::Params params = {
        node_id_,         from.driver_version, from.cuda_version, from.cublaslt_build,
        from.nvrtc_build, from.gpu_uuid,       from.memory_bytes};
    const std::string columns =
        "(node_id, driver_version, cuda_version, cublaslt_build, nvrtc_build, gpu_uuid, "
        "memory_bytes)";
    ASSIGN_OR_RETURN(
        const postgres::Result found,
        postgres_.Query(
            absl::StrCat(
                "SELECT provenance_id FROM provenances WHERE ", columns,
                " = ($1::integer, $2::text, $3::text, $4::text, $5::text, $6::text, $7::bigint)"),
            params));
    if (!found.empty()) return found[0][0];
    // The node's row is locked: nobody else makes it meanwhile.
    return postgres_.QueryValue<int64_t>(
        absl::StrCat("INSERT INTO provenances ", columns,
                     " VALUES ($1,$2,$3,$4,$5,$6,$7) RETURNING provenance_id"),
        params);
  }

  absl::Status Supersede(int64_t evidence_id) {
    return postgres_.Execute(
        "UPDATE evidence SET current = false, payload = NULL WHERE evidence_id = $1",
        {evidence_id});
  }

  // False: it is here already.
  absl::StatusOr<bool> Insert(const FleetDelivery& delivery, int64_t ordinal, int64_t environment,
                              int64_t problem, const std::string& payload, bool current) {
    const TuningStanding standing = StandingOf(delivery.tuning);
    ASSIGN_OR_RETURN(const int64_t provenance, Provenance(delivery.tuning.provenance));
    ASSIGN_OR_RETURN(
        const int64_t made,
        postgres_.Change(
            "INSERT INTO evidence (node_id, epoch_ordinal, sequence, environment_id, problem_id, "
            "provenance_id, evidence, full_listing, clean, current, relayed, digest, payload) "
            "VALUES ($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,substring(sha256($12) FROM 1 FOR 16),"
            "CASE WHEN $10 THEN $12::bytea END) ON CONFLICT (node_id, epoch_ordinal, sequence) DO "
            "NOTHING",
            {node_id_, ordinal, delivery.id.sequence(), environment, problem, provenance,
             standing.evidence, standing.full_listing, standing.clean, current, delivery.relayed,
             postgres::Bytes{payload}}));
    return made > 0;
  }

  postgres::Connection& postgres_;
  FleetNames& names_;
  const int64_t node_id_;
  std::set<std::pair<int64_t, int64_t>> changed_;
};

}  // namespace

absl::StatusOr<DeliveryCounts> Deliver(postgres::Connection& postgres, FleetNames& names,
                                       int64_t node_id,
                                       const std::vector<FleetDelivery>& deliveries) {
  Delivering delivering(postgres, names, node_id);
  RETURN_IF_ERROR(delivering.MakeNames(deliveries));
  ASSIGN_OR_RETURN(postgres::Transaction transaction, names.Begin());
  RETURN_IF_ERROR(postgres.Execute("SELECT 1 FROM nodes WHERE node_id = $1 FOR UPDATE", {node_id}));
  DeliveryCounts counts;
  for (const FleetDelivery& delivery : deliveries) {
    ASSIGN_OR_RETURN(const bool taken, delivering.Take(delivery));
    ++(taken ? counts.taken : counts.repeated);
  }
  RETURN_IF_ERROR(
      postgres.Execute("UPDATE nodes SET duplicate_count = duplicate_count + $2 WHERE node_id = $1",
                       {node_id, counts.repeated}));
  RETURN_IF_ERROR(delivering.QueuePooling());
  RETURN_IF_ERROR(transaction.Commit());
  return counts;
}

absl::StatusOr<std::optional<int64_t>> LastDelivered(postgres::Connection& postgres,
                                                     int64_t node_id, int64_t epoch) {
  ASSIGN_OR_RETURN(const postgres::Result found,
                   postgres.Query("SELECT MAX(last_sequence) FROM node_epochs WHERE node_id = $1 "
                                  "AND ($2::bigint = 0 OR epoch = $2::bigint)",
                                  {node_id, epoch}));
  return found[0][0].Maybe<int64_t>();
}

std::optional<StoredEvidence> ParseEvidence(const std::string& payload,
                                            const std::string& environment_text,
                                            const std::string& gpu_model) {
  v1::BundleEnvironment environment;
  environment.set_number(1);
  environment.set_text(environment_text);
  environment.set_gpu_model(gpu_model);
  const bundle::BundleEnvironmentRow known = bundle::FromBundleEnvironment(environment);
  v1::Tuning proto;
  if (!proto.ParseFromString(payload)) return std::nullopt;
  absl::StatusOr<Tuning> tuning = bundle::FromBundleTuning(proto, known, absl::InfiniteFuture());
  if (!tuning.ok() || !CheckTimes(*tuning, known.environment).ok()) return std::nullopt;
  return StoredEvidence{*std::move(tuning), known.environment};
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
