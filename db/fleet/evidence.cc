#include "db/fleet/evidence.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "db/bundle/bundle_codec.h"
#include "db/bundle/bundle_environment.h"
#include "db/fleet/floats.h"
#include "proto/base/status_macros.h"

namespace convtune::db::fleet {
namespace {

std::string Payload(const Tuning& tuning) {
  return bundle::ToBundleTuning(tuning, 1, /*with_samples=*/false).SerializeAsString();
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
  return bundle::FromBundleTuning(
             bundle::ToBundleTuning(delivery.tuning, 1, /*with_samples=*/false), environment,
             absl::InfiniteFuture())
      .status();
}

// Deliveries of one node, one after the other.
class Delivering {
 public:
  Delivering(postgres::Connection& postgres, FleetNames& names, int64_t node_id)
      : postgres_(postgres), names_(names), node_id_(node_id) {}

  // Every name first, outside the transaction.
  absl::Status MakeNames(const std::vector<FleetDelivery>& deliveries) {
    std::vector<std::string> problems, candidates;
    for (const FleetDelivery& delivery : deliveries) {
      RETURN_IF_ERROR(Check(delivery));
      RETURN_IF_ERROR(names_.Environment(delivery.environment).status());
      problems.push_back(delivery.tuning.key.problem_text);
      for (const Candidate& candidate : delivery.tuning.candidates) {
        candidates.push_back(ToText(candidate.id));
      }
    }
    RETURN_IF_ERROR(names_.AddProblems(problems));
    return names_.AddCandidates(candidates);
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
            "$6), NOT relayed "
            "FROM evidence WHERE environment_id = $1 AND problem_id = $2 AND node_id = $3",
            postgres::Params()
                .Int(environment)
                .Int(problem)
                .Int(node_id_)
                .Bytes(payload)
                .Int(ordinal)
                .Int(delivery.id.sequence)));
    if (delivery.relayed) {
      // Every node brings back the same: one is enough.
      ASSIGN_OR_RETURN(
          const postgres::Result again,
          postgres_.Query("SELECT EXISTS (SELECT 1 FROM evidence WHERE environment_id = $1 AND "
                          "problem_id = $2 AND current AND relayed AND digest = "
                          "substring(sha256($3) FROM 1 FOR 16))",
                          postgres::Params().Int(environment).Int(problem).Bytes(payload)));
      if (again.Bool(0, 0)) return false;
    }
    bool newest = true;
    int64_t replaced = 0;
    for (int row = 0; row < here.rows(); ++row) {
      if (here.Bool(row, 7)) return false;
      if (!here.Bool(row, 3)) continue;
      replaced = here.Int(row, 0);
      // Nothing worse ever takes the place of something better, as on a node.
      const TuningStanding standing{static_cast<Evidence>(here.Int(row, 4)), here.Bool(row, 5),
                                    here.Bool(row, 6)};
      newest =
          std::tuple(standing, here.Bool(row, 8), here.Int(row, 1), here.Int(row, 2)) <
          std::tuple(StandingOf(delivery.tuning), !delivery.relayed, ordinal, delivery.id.sequence);
    }
    if (newest && replaced != 0) RETURN_IF_ERROR(Supersede(replaced));
    ASSIGN_OR_RETURN(const int64_t id,
                     Insert(delivery, ordinal, environment, problem, payload, newest));
    if (id == 0) return false;
    if (!newest) return true;
    RETURN_IF_ERROR(InsertMeasurements(id, delivery.tuning));
    RETURN_IF_ERROR(postgres_.Execute("INSERT INTO evidence_payloads VALUES ($1, $2)",
                                      postgres::Params().Int(id).Bytes(payload)));
    changed_.emplace(environment, problem);
    return true;
  }

  // In one order, so that two who deliver cannot block each other.
  absl::Status QueuePooling() {
    for (const auto& [environment, problem] : changed_) {
      RETURN_IF_ERROR(
          postgres_.Execute("INSERT INTO pool_queue (environment_id, problem_id) VALUES "
                            "($1, $2) ON CONFLICT (environment_id, problem_id) DO UPDATE "
                            "SET queue_time = now()",
                            postgres::Params().Int(environment).Int(problem)));
    }
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<int64_t> Ordinal(const OutboxId& id) {
    ASSIGN_OR_RETURN(
        const postgres::Result made,
        postgres_.Query(
            "INSERT INTO node_epochs (node_id, epoch, ordinal, last_sequence) SELECT $1, $2, "
            "COALESCE(MAX(ordinal), 0) + 1, $3 FROM node_epochs WHERE node_id = $1 "
            "ON CONFLICT (node_id, epoch) DO UPDATE SET "
            "last_sequence = GREATEST(node_epochs.last_sequence, EXCLUDED.last_sequence) "
            "RETURNING ordinal",
            postgres::Params().Int(node_id_).Int(id.epoch).Int(id.sequence)));
    return made.Int(0, 0);
  }

  absl::StatusOr<int64_t> Provenance(const convtune::Provenance& provenance) {
    const postgres::Params params = postgres::Params()
                                        .Int(node_id_)
                                        .Text(provenance.driver_version)
                                        .Text(provenance.cuda_version)
                                        .Text(provenance.cublaslt_build)
                                        .Text(provenance.nvrtc_build)
                                        .Text(provenance.gpu_uuid)
                                        .Int(provenance.memory_bytes);
    const std::string columns =
        "(node_id, driver_version, cuda_version, cublaslt_build, nvrtc_build, gpu_uuid, "
        "memory_bytes)";
    const std::string read = absl::StrCat(
        "SELECT provenance_id FROM provenances WHERE ", columns,
        " = ($1::integer, $2::text, $3::text, $4::text, $5::text, $6::text, $7::bigint)");
    ASSIGN_OR_RETURN(postgres::Result found, postgres_.Query(read, params));
    if (found.rows() > 0) return found.Int(0, 0);
    // The node's row is locked: nobody else makes it meanwhile.
    ASSIGN_OR_RETURN(found, postgres_.Query(absl::StrCat("INSERT INTO provenances ", columns,
                                                         " VALUES ($1,$2,$3,$4,$5,$6,$7) RETURNING "
                                                         "provenance_id"),
                                            params));
    return found.Int(0, 0);
  }

  absl::Status Supersede(int64_t evidence_id) {
    const postgres::Params params = postgres::Params().Int(evidence_id);
    for (const char* const sql : {"UPDATE evidence SET current = false WHERE evidence_id = $1",
                                  "DELETE FROM evidence_payloads WHERE evidence_id = $1",
                                  "DELETE FROM measurements WHERE evidence_id = $1"}) {
      RETURN_IF_ERROR(postgres_.Execute(sql, params));
    }
    return absl::OkStatus();
  }

  // 0: it is here already.
  absl::StatusOr<int64_t> Insert(const FleetDelivery& delivery, int64_t ordinal,
                                 int64_t environment, int64_t problem, const std::string& payload,
                                 bool current) {
    const Tuning& tuning = delivery.tuning;
    const Conditions& card = tuning.conditions;
    ASSIGN_OR_RETURN(const int64_t provenance, Provenance(tuning.provenance));
    postgres::Params params;
    params.Int(node_id_).Int(ordinal).Int(environment).Int(delivery.id.sequence).Int(problem);
    params.Int(provenance);
    RETURN_IF_ERROR(AddChoice(tuning, delivery.winner, names_, &params));
    RETURN_IF_ERROR(AddChoice(tuning, delivery.stock, names_, &params));
    const Candidate* const winner =
        delivery.winner.has_value() ? &tuning.candidates[*delivery.winner] : nullptr;
    const bool timed = winner != nullptr && winner->timed();
    params.MaybeInt(timed ? std::optional<int64_t>(winner->sample_count) : std::nullopt);
    params.MaybeReal(timed && winner->sm_clock_mhz > 0 ? std::optional<double>(winner->sm_clock_mhz)
                                                       : std::nullopt);
    if (card.known) {
      params.Real(AsFloat(card.power_limit_watts))
          .Int(card.clock_reasons)
          .Int(card.other_processes);
      params.Int(card.temperature_celsius);
    } else {
      params.Null().Null().Null().Null();
    }
    params.Int(absl::ToInt64Milliseconds(tuning.elapsed))
        .Int(static_cast<int64_t>(std::min<size_t>(tuning.candidates.size(), 32'767)))
        .Int(static_cast<int64_t>(tuning.evidence))
        .Int(static_cast<int64_t>(tuning.stop_reason))
        .Bool(StandingOf(tuning).full_listing)
        .Bool(card.clean())
        .Bool(card.throttled())
        .Bool(current)
        .Bytes(payload)
        .Text(tuning.incomplete_message)
        .Int(absl::ToUnixMicros(tuning.tune_time))
        .Bool(delivery.relayed);
    ASSIGN_OR_RETURN(
        const postgres::Result made,
        postgres_.Query(
            "INSERT INTO evidence (node_id, epoch_ordinal, environment_id, sequence, problem_id, "
            "provenance_id, winner_id, winner_us, winner_low_us, winner_high_us, stock_id, "
            "stock_us, stock_low_us, stock_high_us, winner_samples, sm_clock_mhz, "
            "power_limit_watts, clock_reasons, other_processes, temperature_celsius, elapsed_ms, "
            "candidate_count, evidence, stop_reason, full_listing, clean, throttled, current, "
            "digest, "
            "incomplete_message, tune_time, relayed) VALUES "
            "($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,"
            "$14,$15,$16,$17,$18,$19,$20,$21,$22,$23,$24,$25,$26,$27,$28,"
            "substring(sha256($29) FROM 1 FOR 16),$30,to_timestamp($31::float8 / 1000000),$32) "
            "ON CONFLICT (node_id, epoch_ordinal, sequence) DO NOTHING RETURNING evidence_id",
            params));
    return made.rows() > 0 ? made.Int(0, 0) : 0;
  }

  absl::Status InsertMeasurements(int64_t evidence_id, const Tuning& tuning) {
    std::vector<int64_t> ids, positions, samples, workspaces;
    std::vector<double> medians, lows, highs;
    for (size_t i = 0; i < tuning.candidates.size() && i < 32'767; ++i) {
      const Candidate& candidate = tuning.candidates[i];
      if (!candidate.timed()) continue;
      ASSIGN_OR_RETURN(const int64_t id, names_.Candidate(ToText(candidate.id)));
      ids.push_back(id);
      positions.push_back(static_cast<int64_t>(i));
      samples.push_back(candidate.sample_count);
      workspaces.push_back(candidate.workspace_bytes);
      medians.push_back(AsFloat(candidate.median_us));
      lows.push_back(AsFloat(candidate.low_us));
      highs.push_back(AsFloat(candidate.high_us));
    }
    if (ids.empty()) return absl::OkStatus();
    return postgres_.Execute(
        "INSERT INTO measurements (evidence_id, candidate_id, position, sample_count, "
        "median_us, low_us, high_us, workspace_bytes) SELECT $1, * FROM "
        "unnest($2::integer[], $3::smallint[], $4::integer[], $5::real[], $6::real[], "
        "$7::real[], $8::bigint[])",
        postgres::Params()
            .Int(evidence_id)
            .Ints(ids)
            .Ints(positions)
            .Ints(samples)
            .Reals(medians)
            .Reals(lows)
            .Reals(highs)
            .Ints(workspaces));
  }

  postgres::Connection& postgres_;
  FleetNames& names_;
  const int64_t node_id_;
  std::set<std::pair<int64_t, int64_t>> changed_;
};

}  // namespace

absl::Status AddChoice(const Tuning& tuning, std::optional<size_t> place, FleetNames& names,
                       postgres::Params* params) {
  if (!place.has_value()) {
    params->Null().Null().Null().Null();
    return absl::OkStatus();
  }
  const Candidate& candidate = tuning.candidates.at(*place);
  ASSIGN_OR_RETURN(const int64_t id, names.Candidate(ToText(candidate.id)));
  params->Int(id);
  if (!candidate.timed()) {
    params->Null().Null().Null();
  } else {
    params->Real(AsFloat(candidate.median_us))
        .Real(AsFloat(candidate.low_us))
        .Real(AsFloat(candidate.high_us));
  }
  return absl::OkStatus();
}

absl::StatusOr<DeliveryCounts> Deliver(postgres::Connection& postgres, FleetNames& names,
                                       int64_t node_id,
                                       const std::vector<FleetDelivery>& deliveries) {
  Delivering delivering(postgres, names, node_id);
  RETURN_IF_ERROR(delivering.MakeNames(deliveries));
  ASSIGN_OR_RETURN(postgres::Transaction transaction, postgres::Transaction::Begin(postgres));
  RETURN_IF_ERROR(names.CheckFleet());
  RETURN_IF_ERROR(postgres.Execute("SELECT 1 FROM nodes WHERE node_id = $1 FOR UPDATE",
                                   postgres::Params().Int(node_id)));
  DeliveryCounts counts;
  for (const FleetDelivery& delivery : deliveries) {
    ASSIGN_OR_RETURN(const bool taken, delivering.Take(delivery));
    ++(taken ? counts.taken : counts.repeated);
  }
  RETURN_IF_ERROR(
      postgres.Execute("UPDATE nodes SET duplicate_count = duplicate_count + $2 WHERE "
                       "node_id = $1",
                       postgres::Params().Int(node_id).Int(counts.repeated)));
  RETURN_IF_ERROR(delivering.QueuePooling());
  RETURN_IF_ERROR(transaction.Commit());
  return counts;
}

absl::StatusOr<std::optional<int64_t>> LastDelivered(postgres::Connection& postgres,
                                                     int64_t node_id, int64_t epoch) {
  ASSIGN_OR_RETURN(const postgres::Result found,
                   postgres.Query("SELECT MAX(last_sequence) FROM node_epochs WHERE node_id = $1 "
                                  "AND ($2::bigint = 0 OR epoch = $2::bigint)",
                                  postgres::Params().Int(node_id).Int(epoch)));
  if (found.IsNull(0, 0)) return std::nullopt;
  return found.Int(0, 0);
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
  if (!tuning.ok()) return std::nullopt;
  return StoredEvidence{*std::move(tuning), known.environment};
}

}  // namespace convtune::db::fleet
