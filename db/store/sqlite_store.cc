#include "db/store/sqlite_store.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <system_error>
#include <type_traits>
#include <utility>

#include "db/bundle/bundle_codec.h"
#include "db/sqlite/database_file.h"
#include "db/sqlite/row_table.h"
#include "db/store/rows.h"
#include "proto/base/mutex.h"
#include "proto/base/replace_file.h"
#include "proto/base/status_macros.h"
#include "proto/base/strings.h"
#include "proto/base/unique_fd.h"
#include "proto/convert/record_arena.h"
#include "proto/convert/record_codec.h"
#include "proto/model/violation.h"

namespace convtune::db::store {
namespace {

using sqlite::Damaged;
using sqlite::ReadRow;
using sqlite::TableOf;

// 4 MiB of pages: enough to write a page that changes often only once, little
// enough to keep reading fast.
constexpr int kCheckpointFrames = 1024;
// From so many tunings in one transaction on, their pages need more room than SQLite's default of
// 2 MB: their times are in no order, and a page of the index of times that leaves the cache is
// written to the log, and read again, each time.
constexpr int64_t kManyTunings = 1000;
constexpr int64_t kCacheForMany = int64_t{96} << 20;
constexpr int64_t kCacheBytes = 2'000 << 10;
constexpr absl::Duration kThinningDelay = absl::Hours(1);  // so that a start stays quick
constexpr absl::Duration kThinningPeriod = absl::Hours(24);

constexpr mode_t kStateFolderMode = 0750;
constexpr int kMostFindings = 100;
// Tunings that lose their samples in one transaction.
constexpr int kCapBatch = 16;
// Candidates from this place in the ranking on lose their samples when their tuning gets old.
constexpr int kCandidatesThatKeepSamples = 3;

// Of the meta table.
constexpr char kSequence[] = "outbox_sequence";
constexpr char kDepth[] = "outbox_depth";
constexpr char kDropped[] = "outbox_dropped";
constexpr char kSuperseded[] = "outbox_superseded";
constexpr char kFleetRelease[] = "fleet_release";
constexpr char kAcknowledgedEpoch[] = "outbox_acknowledged_epoch";

// The end of the error message of a sound row that was found by another row's key. The damage is
// then in an index.
constexpr char kWrongRow[] = "an index leads to it for another key";
constexpr char kLostEnvironment[] = "its environment is damaged";

// Every table whose rows have checksums.
std::vector<const sqlite::Table*> ChecksummedTables() {
  return {&TableOf<EnvironmentRow>(), &TableOf<TuningRow>(), &TableOf<SamplesRow>(),
          &TableOf<PinRow>(),         &TableOf<BanRow>(),    &TableOf<QuarantineRow>(),
          &TableOf<ReleaseRow>(),     &TableOf<ChoiceRow>(), &TableOf<WantedRow>(),
          &TableOf<OutboxRow>()};
}

// Without samples.
TuningRow ToRow(const Tuning& tuning, int64_t id, int64_t environment_id) {
  v1::Tuning* const record = RecordArena::OfThread().New();
  Fill(tuning, /*with_samples=*/false, record);
  return {id,
          environment_id,
          tuning.key.problem_text,
          tuning.origin,
          tuning.tune_time,
          record->SerializeAsString()};
}

// Without key.environment_text and samples. May be called on any thread.
absl::StatusOr<Tuning> ToTuning(const TuningRow& row) {
  Tuning tuning;
  const v1::Tuning* const record = RecordArena::OfThread().Parse(row.record);
  if (record == nullptr) return Damaged(row, "its record is no message");
  if (const absl::Status read = Read(*record, &tuning); !read.ok()) {
    return Damaged(row, Concat("its record means nothing to this program: ", read.message()));
  }
  tuning.key.problem_text = row.problem_text;
  return tuning;
}

StoredTuning ToStored(TuningRow row, const std::string& environment_text) {
  StoredTuning stored;
  stored.key = {row.problem_text, environment_text};
  stored.decode = [row = std::move(row), environment_text]() -> absl::StatusOr<Tuning> {
    ASSIGN_OR_RETURN(Tuning tuning, ToTuning(row));
    tuning.key.environment_text = environment_text;
    return tuning;
  };
  return stored;
}

// The candidates' samples; candidate_count is 0 if they have none.
SamplesRow ToSamplesRow(int64_t tuning_id, const std::vector<Candidate>& candidates) {
  size_t count = candidates.size();
  while (count > 0 && candidates[count - 1].samples_ns.empty()) --count;
  v1::Tuning* const record = RecordArena::OfThread().New();
  for (size_t i = 0; i < count; ++i) {
    const std::vector<int64_t>& samples = candidates[i].samples_ns;
    record->add_candidates()->mutable_samples_ns()->Add(samples.begin(), samples.end());
  }
  return {tuning_id, count, record->SerializeAsString()};
}

// Into the candidates of their tuning. DATA_LOSS if there are fewer.
absl::Status GetSamples(const SamplesRow& row, std::vector<Candidate>* candidates) {
  const v1::Tuning* const record = RecordArena::OfThread().Parse(row.record);
  if (record == nullptr || record->candidates_size() > static_cast<int>(candidates->size())) {
    return Damaged(row, "its samples mean nothing to this program");
  }
  for (int i = 0; i < record->candidates_size(); ++i) {
    const auto& samples = record->candidates(i).samples_ns();
    (*candidates)[static_cast<size_t>(i)].samples_ns.assign(samples.begin(), samples.end());
  }
  return absl::OkStatus();
}

// A number about the file, of the meta table. DATA_LOSS if it is not there.
absl::StatusOr<int64_t> GetMeta(const sqlite::Database& database, std::string_view name) {
  absl::StatusOr<int64_t> value = database.QueryInt("SELECT value FROM meta WHERE key = ?", name);
  if (!absl::IsNotFound(value.status())) return value;
  return absl::DataLossError(Concat(database.path(), ": meta has no ", name));
}

absl::Status SetMeta(const sqlite::Database& database, std::string_view name, int64_t value) {
  return database.Run(
      "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = "
      "excluded.value",
      name, value);
}

// Returns the sum.
absl::StatusOr<int64_t> AddToMeta(const sqlite::Database& database, std::string_view name,
                                  int64_t amount) {
  ASSIGN_OR_RETURN(const int64_t value, GetMeta(database, name));
  RETURN_IF_ERROR(SetMeta(database, name, value + amount));
  return value + amount;
}

// Returns the id of the environment's row, which it makes if need be, in a transaction of the
// caller, who rolls it back on any error. With `environment` it makes the row say that, which also
// mends a damaged one, and gives INVALID_ARGUMENT if the text is another environment's. Without, a
// damaged row keeps its id and stays as it is, and a row that is made from the text has the model's
// short form until a tuning brings the full name; INVALID_ARGUMENT if the text is no environment.
// DATA_LOSS: the text leads to the row of another environment, which must not be replaced. `last`
// may be the row of the transaction's last call, which spares reading it again.
absl::StatusOr<int64_t> EnvironmentId(const sqlite::Database& database, const std::string& text,
                                      const Environment* environment = nullptr,
                                      EnvironmentRow* last = nullptr) {
  EnvironmentRow row;
  if (last == nullptr) last = &row;
  if (last->text == text && (environment == nullptr || last->environment == *environment)) {
    return last->id;
  }
  if (environment != nullptr && environment->ToText() != text) {
    return absl::InvalidArgumentError(
        Concat("environment: must be the key's, ", text, ", is ", environment->ToText()));
  }
  bool holds = false;
  {
    static const std::string* const sql = new std::string(
        Concat("SELECT ", TableOf<EnvironmentRow>().list, " FROM environments WHERE text = ?"));
    ASSIGN_OR_RETURN(sqlite::Statement statement, database.Prepare(*sql));
    ASSIGN_OR_RETURN(const bool found, statement.Bind(text).Step());
    if (found) {
      row.id = statement.Int(0);
      const absl::StatusOr<EnvironmentRow> stored = ReadRow<EnvironmentRow>(statement);
      if (stored.ok() && stored->text != text) return Damaged(*stored, kWrongRow);
      if (stored.ok()) row.environment = stored->environment;
      // One that is the same is left alone: SQLite looks at every tuning that refers to a row
      // whose key an upsert names.
      holds = environment == nullptr || (stored.ok() && stored->environment == *environment);
    }
  }
  row.text = text;
  if (!holds) {
    if (row.id == 0) {
      // Rows number themselves before they are written, since the number is part of the checksum.
      ASSIGN_OR_RETURN(row.id, database.QueryInt("SELECT COALESCE(MAX(environment_id), 0) + 1 "
                                                 "FROM environments"));
    }
    if (environment != nullptr) {
      row.environment = *environment;
    } else {
      ASSIGN_OR_RETURN(row.environment, Environment::Parse(text));
    }
    row.name = row.environment.Name();
    RETURN_IF_ERROR(sqlite::PutRow(database, row));
  }
  *last = row;
  return row.id;
}

// Texts of the environments by id; damaged ones are left out.
absl::StatusOr<std::map<int64_t, std::string>> ReadEnvironmentTexts(
    const sqlite::Database& database, const sqlite::CorruptRowSink& corrupt) {
  std::map<int64_t, std::string> texts;
  RETURN_IF_ERROR(sqlite::ReadRows<EnvironmentRow>(database, "", corrupt, [&](EnvironmentRow row) {
    texts.emplace(row.id, std::move(row.text));
  }));
  return texts;
}

// Values of the rows of a table whose key begins with an environment, in the order of the
// environments' texts and the rest of the key. In one read transaction.
template <typename Row>
auto ReadKeyed(sqlite::Database& database, const sqlite::CorruptRowSink& corrupt)
    -> absl::StatusOr<std::vector<decltype(Row::value)>> {
  ASSIGN_OR_RETURN(const sqlite::Transaction transaction, sqlite::Transaction::BeginRead(database));
  ASSIGN_OR_RETURN(const auto texts, ReadEnvironmentTexts(database, corrupt));
  std::vector<decltype(Row::value)> values;
  const std::string order =
      Concat("JOIN environments USING (environment_id) ORDER BY environments.text, ", Row::kKey);
  RETURN_IF_ERROR(sqlite::ReadRows<Row>(database, order, corrupt, [&](Row row) {
    const auto text = texts.find(row.environment_id);
    if (text == texts.end()) {
      return corrupt(std::string(sqlite::Damaged(row, kLostEnvironment).message()));
    }
    row.value.key.environment_text = text->second;
    values.push_back(std::move(row.value));
  }));
  return values;
}

// Deletes the key's row of such a table; returns how many there were.
template <typename Row>
absl::StatusOr<int64_t> EraseKeyed(const sqlite::Database& database, const TuningKey& key) {
  RETURN_IF_ERROR(database.Run(Concat("DELETE FROM ", Row::kTable,
                                      " WHERE problem_text = ? AND environment_id IN "
                                      "(SELECT environment_id FROM environments WHERE text = ?)"),
                               key.problem_text, key.environment_text));
  return database.Changes();
}

// Returns the environments that any row of another table refers to, in the order of their texts.
absl::StatusOr<std::vector<Environment>> ReadEnvironmentsInUse(
    const sqlite::Database& database, const sqlite::CorruptRowSink& corrupt) {
  std::string in_use;
  for (const char* table : {"tunings", "pins", "quarantine", "choices", "wanted"}) {
    AppendTo(&in_use, in_use.empty() ? "WHERE " : " OR ", "EXISTS (SELECT 1 FROM ", table,
             " t WHERE t.environment_id = environments.environment_id)");
  }
  std::vector<Environment> environments;
  RETURN_IF_ERROR(sqlite::ReadRows<EnvironmentRow>(
      database, in_use + " ORDER BY text", corrupt,
      [&](EnvironmentRow row) { environments.push_back(std::move(row.environment)); }));
  return environments;
}

// Reads the key's tuning with its samples. NOT_FOUND if the database has no such tuning; DATA_LOSS
// if a row of the tuning, of its environment or of its samples is damaged.
absl::StatusOr<Tuning> ReadStoredTuning(const sqlite::Database& database, const TuningKey& key) {
  // All of it in one statement: it sees one state of the file by itself.
  static const std::string* const sql =
      new std::string(Concat("SELECT ", TableOf<EnvironmentRow>().list, ", ",
                             TableOf<TuningRow>().list, ", ", TableOf<SamplesRow>().list,
                             " FROM environments JOIN tunings USING (environment_id) "
                             "LEFT JOIN tuning_samples USING (tuning_id) "
                             "WHERE environments.text = ? AND tunings.problem_text = ?"));
  ASSIGN_OR_RETURN(sqlite::Statement statement, database.Prepare(*sql));
  statement.Bind(key.environment_text, key.problem_text);
  ASSIGN_OR_RETURN(const bool found, statement.Step());
  if (!found) {
    return MissingError({"tuning", key.problem_text},
                        Concat("no tuning of ", key.problem_text, " in ", key.environment_text));
  }
  ASSIGN_OR_RETURN(const EnvironmentRow environment, ReadRow<EnvironmentRow>(statement));
  if (environment.text != key.environment_text) return Damaged(environment, kWrongRow);
  const int tuning_place = TableOf<EnvironmentRow>().width();
  ASSIGN_OR_RETURN(const TuningRow row, ReadRow<TuningRow>(statement, tuning_place));
  if (row.environment_id != environment.id || row.problem_text != key.problem_text) {
    return Damaged(row, kWrongRow);
  }
  ASSIGN_OR_RETURN(Tuning tuning, ToTuning(row));
  tuning.key.environment_text = key.environment_text;
  const int samples_place = tuning_place + TableOf<TuningRow>().width();
  if (!statement.IsNull(samples_place)) {
    ASSIGN_OR_RETURN(const SamplesRow samples, ReadRow<SamplesRow>(statement, samples_place));
    RETURN_IF_ERROR(GetSamples(samples, &tuning.candidates));
  }
  return tuning;
}

// As TuningStore::ForEachStored, in one read transaction.
absl::Status ForEachStoredTuning(sqlite::Database& database,
                                 const std::function<bool(StoredTuning)>& visit,
                                 const sqlite::CorruptRowSink& corrupt) {
  ASSIGN_OR_RETURN(const sqlite::Transaction transaction, sqlite::Transaction::BeginRead(database));
  ASSIGN_OR_RETURN(const auto environments, ReadEnvironmentTexts(database, corrupt));
  std::vector<std::pair<std::string, int64_t>> by_text;  // a damaged one has no text
  RETURN_IF_ERROR(database.ForEachRow(
      "SELECT environment_id FROM environments NOT INDEXED", [&](const sqlite::Statement& row) {
        const auto sound = environments.find(row.Int(0));
        by_text.emplace_back(sound == environments.end() ? "" : sound->second, row.Int(0));
      }));
  std::sort(by_text.begin(), by_text.end());
  // One after the other, in the order of an index: nothing is sorted.
  ASSIGN_OR_RETURN(sqlite::Statement statement,
                   database.Prepare(Concat("SELECT ", TableOf<TuningRow>().list,
                                           " FROM tunings WHERE environment_id = ? "
                                           "ORDER BY problem_text")));
  bool wanted = true;
  for (const auto& [text, id] : by_text) {
    statement.Bind(id);
    while (wanted) {
      ASSIGN_OR_RETURN(const bool more, statement.Step());
      if (!more) break;
      absl::StatusOr<TuningRow> row = ReadRow<TuningRow>(statement);
      if (row.ok() && row->environment_id != id) row = Damaged(*row, kWrongRow);
      if (row.ok() && text.empty()) row = Damaged(*row, kLostEnvironment);
      if (row.ok()) {
        wanted = visit(ToStored(*std::move(row), text));
      } else {
        corrupt(std::string(row.status().message()));
      }
    }
    if (!wanted) return absl::OkStatus();
    statement.Reset();
  }
  return absl::OkStatus();
}

// In a transaction of the caller, who rolls it back on any error: stores the tuning in place of
// what its key had. Returns the id of the environment's row. INVALID_ARGUMENT if `environment` is
// not the key's. `last`: see EnvironmentId.
absl::StatusOr<int64_t> StoreTuning(const sqlite::Database& database, const Tuning& tuning,
                                    const Environment& environment, EnvironmentRow* last) {
  ASSIGN_OR_RETURN(const int64_t environment_id,
                   EnvironmentId(database, tuning.key.environment_text, &environment, last));
  // Rows number themselves before they are written, since the number is part of the checksum.
  ASSIGN_OR_RETURN(const int64_t id,
                   database.QueryInt("SELECT COALESCE(MAX(tuning_id), 0) + 1 FROM tunings"));
  RETURN_IF_ERROR(database.Run("DELETE FROM tunings WHERE environment_id = ? AND problem_text = ?",
                               environment_id, tuning.key.problem_text));
  RETURN_IF_ERROR(sqlite::InsertRow(database, ToRow(tuning, id, environment_id)));
  const SamplesRow samples = ToSamplesRow(id, tuning.candidates);
  if (samples.candidate_count > 0) RETURN_IF_ERROR(sqlite::InsertRow(database, samples));
  return environment_id;
}

absl::Status Closed(const std::string& path) {
  return absl::FailedPreconditionError(Concat(path, ": the store is closed"));
}

// True if the directory, or the database in it, cannot be written. access() also tells of a
// read-only mount, to root as well.
bool IsReadOnly(const std::string& directory, const std::string& path) {
  return access(directory.c_str(), W_OK) != 0 ||
         (access(path.c_str(), F_OK) == 0 && access(path.c_str(), W_OK) != 0);
}

// Structure, foreign keys, the checksum of every row, and that each record is one of this
// version, in one read transaction.
absl::StatusOr<v1::CheckDatabaseResponse> CheckDatabase(sqlite::Database& database) {
  v1::CheckDatabaseResponse check;
  const auto find = [&check](const auto& finding) {
    if (check.findings_size() < kMostFindings) check.add_findings(std::string(finding));
  };
  const absl::Status status = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const sqlite::Transaction transaction,
                     sqlite::Transaction::BeginRead(database));
    RETURN_IF_ERROR(database.ForEachRow(Concat("PRAGMA integrity_check(", kMostFindings, ")"),
                                        [&](const sqlite::Statement& row) {
                                          if (row.Text(0) != "ok") find(row.Text(0));
                                        }));
    RETURN_IF_ERROR(
        database.ForEachRow("PRAGMA foreign_key_check", [&](const sqlite::Statement& row) {
          find(Concat(row.Text(0), " row ", row.Int(1), ": no row of ", row.Text(2),
                      " that it refers to"));
        }));
    for (const sqlite::Table* table : ChecksummedTables()) {
      RETURN_IF_ERROR(database.ForEachRow(
          Concat("SELECT ", table->list, " FROM ", table->name), [&](const sqlite::Statement& row) {
            check.set_rows_checked(check.rows_checked() + 1);
            if (row.Int(table->width() - 1) != 0) return;
            find(Concat(table->name, " row (", table->columns[0], " ", row.Text(0), ", ",
                        table->columns[1], " ", row.Text(1), "): ", sqlite::kBadChecksum));
          }));
    }
    return database.ForEachRow(
        Concat("SELECT ", TableOf<TuningRow>().list, ", ", TableOf<SamplesRow>().list,
               " FROM tunings LEFT JOIN tuning_samples USING (tuning_id)"),
        [&](const sqlite::Statement& statement) {
          const absl::StatusOr<TuningRow> row = ReadRow<TuningRow>(statement);
          // It was told of above.
          if (!row.ok()) return;
          absl::StatusOr<Tuning> tuning = ToTuning(*row);
          const auto samples = ReadRow<SamplesRow>(statement, TableOf<TuningRow>().width());
          absl::Status read = tuning.status();
          if (read.ok() && samples.ok()) read = GetSamples(*samples, &tuning->candidates);
          if (!read.ok()) find(read.message());
        });
  }();
  // The damage that the check looks for may also stop it.
  if (!status.ok() && !absl::IsDataLoss(status)) return status;
  if (!status.ok()) find(status.message());
  check.set_ok(check.findings().empty());
  return check;
}

absl::Status CheckCopy(const std::string& path, const std::function<bool()>& stopped) {
  ASSIGN_OR_RETURN(
      const std::unique_ptr<sqlite::Database> copy,
      sqlite::Database::Open({.path = path, .access = sqlite::Database::Access::kImmutable}));
  copy->InterruptWhen(stopped);
  ASSIGN_OR_RETURN(const v1::CheckDatabaseResponse check, CheckDatabase(*copy));
  if (check.ok()) return absl::OkStatus();
  return absl::DataLossError(Concat("a copy of the database is not kept, for it is damaged (",
                                    check.findings_size(), " findings): ", check.findings(0)));
}

// In a transaction of the caller: drops the samples that retention lets go of
// tunings measured before `before`. Returns the number of candidates.
absl::StatusOr<int64_t> ThinSamples(sqlite::Database& database, absl::Time before) {
  std::vector<int64_t> ids;
  RETURN_IF_ERROR(database.ForEachRow(
      "SELECT s.tuning_id FROM tuning_samples s JOIN tunings t USING (tuning_id) "
      "WHERE t.tune_time_us < ? AND s.candidate_count > ?",
      [&](const sqlite::Statement& row) { ids.push_back(row.Int(0)); }, absl::ToUnixMicros(before),
      kCandidatesThatKeepSamples));
  int64_t thinned = 0;
  for (const int64_t id : ids) {
    std::vector<Candidate> candidates;
    // Damaged ones are for the check to report.
    RETURN_IF_ERROR(sqlite::ReadRows<SamplesRow>(
        database, "WHERE tuning_id = ?", [](const std::string&) {},
        [&](const SamplesRow& row) {
          candidates.resize(row.candidate_count);
          if (!GetSamples(row, &candidates).ok()) candidates.clear();
        },
        id));
    if (candidates.empty()) continue;
    for (size_t i = kCandidatesThatKeepSamples; i < candidates.size(); ++i) {
      thinned += candidates[i].samples_ns.empty() ? 0 : 1;
      candidates[i].samples_ns.clear();
    }
    const SamplesRow thin = ToSamplesRow(id, candidates);
    RETURN_IF_ERROR(thin.candidate_count > 0
                        ? sqlite::PutRow(database, thin)
                        : database.Run("DELETE FROM tuning_samples WHERE tuning_id = ?", id));
  }
  return thinned;
}

// Takes free pages off the file's end; the file shrinks at the next checkpoint.
constexpr char kReleaseFreePages[] = "PRAGMA incremental_vacuum";

// In transactions of its own: while the file holds more than `max_bytes`,
// drops the samples of the oldest tunings until it holds a tenth less, or no
// samples are left.
absl::Status EnforceSizeCap(sqlite::Database& database, int64_t max_bytes) {
  ASSIGN_OR_RETURN(int64_t used, database.UsedBytes());
  if (used <= max_bytes) {
    return absl::OkStatus();
  }
  int64_t dropped = 0;
  while (used > max_bytes - max_bytes / 10) {
    ASSIGN_OR_RETURN(sqlite::Transaction transaction, sqlite::Transaction::Begin(database));
    RETURN_IF_ERROR(database.Run(
        "DELETE FROM tuning_samples WHERE tuning_id IN (SELECT tuning_id FROM tunings t WHERE "
        "EXISTS (SELECT 1 FROM tuning_samples s WHERE s.tuning_id = t.tuning_id) "
        "ORDER BY t.tune_time_us LIMIT ?)",
        kCapBatch));
    const int64_t rows = database.Changes();
    RETURN_IF_ERROR(transaction.Commit());
    if (rows == 0) {
      break;
    }
    dropped += rows;
    ASSIGN_OR_RETURN(used, database.UsedBytes());
  }
  return dropped > 0 ? database.Execute(kReleaseFreePages) : absl::OkStatus();
}

// Rows of the nearest release up to ?1 that has the problem.
constexpr char kEffective[] =
    "choices.release_number = (SELECT MAX(r.release_number) FROM choices r WHERE "
    "r.environment_id = choices.environment_id AND r.problem_text = choices.problem_text AND "
    "r.release_number <= ?1)";

// `rows` are those of one problem. DATA_LOSS if one of them is missing.
absl::StatusOr<Portfolio> ToPortfolio(std::vector<ChoiceRow> rows,
                                      const std::string& environment_text) {
  const ChoiceRow& first = rows.front();
  Portfolio portfolio{
      {first.problem_text, environment_text}, first.evidence, {}, first.release_number};
  const bool has_choice = first.choice_count != 0 || rows.size() != 1;
  for (size_t i = 0; has_choice && i < rows.size(); ++i) {
    ChoiceRow& row = rows[i];
    if (row.place != static_cast<int64_t>(i) || row.choice_count != std::ssize(rows) ||
        !row.candidate) {
      return absl::DataLossError(
          Concat("choices rows (", portfolio.key.problem_text, "): a choice is missing"));
    }
    Candidate& candidate = portfolio.choices.emplace_back(std::move(row.choice)).candidate;
    candidate.id = *std::move(row.candidate);
    candidate.status =
        candidate.median_us > 0 ? CandidateStatus::kTimed : CandidateStatus::kFinalized;
  }
  return portfolio;
}

// Replaces what the release had for the same problems, in a transaction of the caller.
absl::Status StorePortfolios(sqlite::Database& database, int64_t release,
                             const std::vector<Portfolio>& portfolios) {
  ASSIGN_OR_RETURN(sqlite::Statement erase,
                   database.Prepare("DELETE FROM choices WHERE environment_id = ? AND "
                                    "problem_text = ? AND release_number = ?"));
  ASSIGN_OR_RETURN(sqlite::Statement insert, database.Prepare(TableOf<ChoiceRow>().insert));
  EnvironmentRow last;
  for (const Portfolio& portfolio : portfolios) {
    ChoiceRow row;
    ASSIGN_OR_RETURN(row.environment_id, EnvironmentId(database, portfolio.key.environment_text,
                                                       /*environment=*/nullptr, &last));
    row.problem_text = portfolio.key.problem_text;
    row.release_number = release;
    row.choice_count = static_cast<int64_t>(portfolio.choices.size());
    row.evidence = portfolio.evidence;
    RETURN_IF_ERROR(erase.Bind(row.environment_id, row.problem_text, release).Run());
    if (portfolio.choices.empty()) RETURN_IF_ERROR(sqlite::WriteRow(row, &insert));
    for (const Choice& choice : portfolio.choices) {
      row.choice = choice;
      row.candidate = choice.candidate.id;
      if (!choice.candidate.timed()) row.choice.candidate.median_us = 0;
      RETURN_IF_ERROR(sqlite::WriteRow(row, &insert));
      ++row.place;
    }
  }
  return absl::OkStatus();
}

// Calls `visit` with each portfolio that `release` has of those whose rows fit `condition`, which
// may name choices, environments and `values`, from ?2 on. In one read transaction. Tells `corrupt`
// of damaged rows, and of portfolios that lack one.
template <typename... Values>
absl::Status ReadPortfolios(sqlite::Database& database, std::string_view condition,
                            const std::function<void(Portfolio)>& visit,
                            const sqlite::CorruptRowSink& corrupt, int64_t release,
                            const Values&... values) {
  ASSIGN_OR_RETURN(const sqlite::Transaction transaction, sqlite::Transaction::BeginRead(database));
  ASSIGN_OR_RETURN(const auto environments, ReadEnvironmentTexts(database, corrupt));
  std::vector<ChoiceRow> rows;  // of one problem
  const auto finish = [&] {
    if (rows.empty()) return;
    const auto environment = environments.find(rows.front().environment_id);
    // A damaged environment was reported already.
    if (environment != environments.end()) {
      absl::StatusOr<Portfolio> portfolio = ToPortfolio(std::move(rows), environment->second);
      if (portfolio.ok()) {
        visit(*std::move(portfolio));
      } else {
        corrupt(std::string(portfolio.status().message()));
      }
    }
    rows.clear();
  };
  // Whose a damaged row is cannot be trusted; what it was a part of is found incomplete by its
  // count.
  RETURN_IF_ERROR(sqlite::ReadRows<ChoiceRow>(
      database,
      Concat("JOIN environments USING (environment_id) WHERE ", condition, " AND ", kEffective,
             " ORDER BY environments.text, choices.problem_text, choices.place"),
      corrupt,
      [&](ChoiceRow row) {
        const bool same = !rows.empty() && row.environment_id == rows.front().environment_id &&
                          row.problem_text == rows.front().problem_text;
        if (!same) finish();
        rows.push_back(std::move(row));
      },
      release, values...));
  finish();
  return absl::OkStatus();
}

// A StoreFile is an SqliteStore that is open, or was closed.
class StoreFile final : public SqliteStore {
 public:
  StoreFile(Options options, std::string path, UniqueFd lock, sqlite::DatabaseFile file,
            int schema_version)
      : options_(std::move(options)),
        path_(std::move(path)),
        schema_version_(schema_version),
        read_only_(file.writer == nullptr),
        reader_access_(file.reader_access),
        opened_(MarkOf(path_)),
        opened_log_(read_only_ ? std::nullopt : MarkOf(path_ + "-wal")),
        lock_(std::move(lock)),
        writer_(std::move(file.writer)),
        next_thinning_(options_.clock->Now() + kThinningDelay),
        reader_(std::move(file.reader)) {}

  absl::Status Close() override {
    {
      MutexLock lock(read_mutex_);
      if (reader_ == nullptr) {
        return Closed(path_);
      }
      reader_.reset();
    }
    MutexLock lock(write_mutex_);
    const bool clean = !damaged_;  // else the next start looks at all of the file
    std::unique_ptr<sqlite::Database> writer = std::move(writer_);
    if (writer == nullptr) {
      lock_ = UniqueFd();
      return absl::OkStatus();
    }
    absl::Status status = [&writer, clean]() -> absl::Status {
      ASSIGN_OR_RETURN(sqlite::Transaction transaction, sqlite::Transaction::Begin(*writer));
      RETURN_IF_ERROR(SetMeta(*writer, "clean_shutdown", clean ? 1 : 0));
      RETURN_IF_ERROR(transaction.Commit());
      RETURN_IF_ERROR(writer->Checkpoint(/*truncate=*/true));
      return writer->CloseAndRemoveLog();
    }();
    writer.reset();  // before the lock: nobody else may open the file while it is open
    lock_ = UniqueFd();
    return status;
  }

  absl::Status PutTuning(const Tuning& tuning, const Environment& environment) override {
    return Write([&](sqlite::Database& database) -> absl::Status {
      return StoreWithOutbox(database, tuning, environment, /*last=*/nullptr);
    });
  }

  absl::Status PutTunings(const TuningSource& next) override {
    int64_t stored = 0;
    absl::Status status = Write([&](sqlite::Database& database) -> absl::Status {
      EnvironmentRow last;
      while (true) {
        ASSIGN_OR_RETURN(const std::optional<TuningRecord> record, next());
        if (!record.has_value()) {
          return absl::OkStatus();
        }
        if (++stored == kManyTunings) RETURN_IF_ERROR(database.SetCacheBytes(kCacheForMany));
        RETURN_IF_ERROR(StoreWithOutbox(database, record->tuning, record->environment, &last));
      }
    });
    if (stored >= kManyTunings) {
      MutexLock lock(write_mutex_);
      if (writer_ != nullptr) RETURN_IF_ERROR(writer_->SetCacheBytes(kCacheBytes));
    }
    return status;
  }

  absl::StatusOr<Tuning> GetTuning(const TuningKey& key) override {
    return Read([&](sqlite::Database& database) { return ReadStoredTuning(database, key); });
  }

  absl::StatusOr<int64_t> DeleteTunings(const std::vector<TuningKey>& keys) override {
    if (keys.empty()) {
      MutexLock lock(write_mutex_);
      RETURN_IF_ERROR(CheckWritable());
      return 0;
    }
    return WriteAndCount([&](sqlite::Database& database) -> absl::StatusOr<int64_t> {
      int64_t erased = 0;
      for (const TuningKey& key : keys) {
        ASSIGN_OR_RETURN(const int64_t rows, EraseKeyed<TuningRow>(database, key));
        erased += rows;
      }
      return erased;
    });
  }

  absl::Status ForEachStored(const std::function<bool(StoredTuning)>& visit,
                             const std::function<void(const std::string&)>& corrupt) override {
    {
      // Without a file, on a disk that cannot be written, there is nothing else to open.
      MutexLock lock(read_mutex_);
      RETURN_IF_ERROR(CheckReadable());
      if (reader_->path() != path_) return ForEachStoredTuning(*reader_, visit, corrupt);
    }
    // A connection of its own: whoever reads single tunings does not wait for it.
    ASSIGN_OR_RETURN(const std::unique_ptr<sqlite::Database> database, OpenReader());
    return NoteDamage(ForEachStoredTuning(*database, visit, corrupt));
  }

  absl::StatusOr<std::vector<Environment>> ListEnvironments() override {
    return Read([this](sqlite::Database& database) {
      return ReadEnvironmentsInUse(database, options_.notice);
    });
  }

  absl::Status PutPin(const Pin& pin) override {
    return Write([&](sqlite::Database& database) -> absl::Status {
      ASSIGN_OR_RETURN(const int64_t id, EnvironmentId(database, pin.key.environment_text));
      return sqlite::PutRow(database, PinRow{{id, pin}});
    });
  }

  absl::Status DeletePin(const TuningKey& key) override {
    return Write([&](sqlite::Database& database) -> absl::Status {
      ASSIGN_OR_RETURN(const int64_t rows, EraseKeyed<PinRow>(database, key));
      if (rows > 0) return absl::OkStatus();
      return MissingError({"pin", key.problem_text},
                          Concat("no pin of ", key.problem_text, " in ", key.environment_text));
    });
  }

  absl::StatusOr<std::vector<Pin>> ListPins() override { return List<PinRow>(); }

  absl::StatusOr<int64_t> AddBan(const Ban& ban) override {
    return WriteAndCount([&](sqlite::Database& database) -> absl::StatusOr<int64_t> {
      BanRow row{ban};
      ASSIGN_OR_RETURN(row.value.number, AddToMeta(database, "ban_sequence", 1));
      RETURN_IF_ERROR(sqlite::InsertRow(database, row));
      return row.value.number;
    });
  }

  absl::Status DeleteBan(int64_t number) override {
    return Write([number](sqlite::Database& database) -> absl::Status {
      RETURN_IF_ERROR(database.Run("DELETE FROM bans WHERE ban_number = ?", number));
      if (database.Changes() > 0) return absl::OkStatus();
      return MissingError({"ban", Concat("bans/", number)},
                          Concat("ban: there is no bans/", number));
    });
  }

  absl::StatusOr<std::vector<Ban>> ListBans() override { return List<BanRow>(); }

  absl::Status PutQuarantine(const QuarantineEntry& entry) override {
    return Write([&](sqlite::Database& database) -> absl::Status {
      ASSIGN_OR_RETURN(const int64_t id, EnvironmentId(database, entry.key.environment_text));
      return sqlite::PutRow(database, QuarantineRow{{id, entry}});
    });
  }

  absl::StatusOr<std::vector<QuarantineEntry>> ListQuarantine() override {
    return List<QuarantineRow>();
  }

  absl::Status DeleteQuarantine(const TuningKey& key,
                                const std::vector<CandidateId>& candidates) override {
    return Write([&](sqlite::Database& database) -> absl::Status {
      for (const CandidateId& candidate : candidates) {
        RETURN_IF_ERROR(database.Run(
            "DELETE FROM quarantine WHERE problem_text = ? AND candidate = ? AND environment_id IN "
            "(SELECT environment_id FROM environments WHERE text = ?)",
            key.problem_text, ToText(candidate), key.environment_text));
      }
      return absl::OkStatus();
    });
  }

  absl::StatusOr<v1::CheckDatabaseResponse> Check() override {
    ASSIGN_OR_RETURN(const std::unique_ptr<sqlite::Database> database, OpenReader());
    return CheckDatabase(*database);
  }

  absl::StatusOr<int64_t> Backup(const std::string& path,
                                 const std::function<bool()>& stopped) override {
    ASSIGN_OR_RETURN(const std::unique_ptr<sqlite::Database> database, OpenReader());
    database->InterruptWhen(stopped);
    const absl::Status copied = sqlite::CopyDatabaseFile(
        *database, path, [&](const std::string& partial) { return CheckCopy(partial, stopped); });
    if (absl::IsAlreadyExists(copied)) {
      return absl::AlreadyExistsError(Concat("path: must not exist, but \"", path, "\" does"));
    }
    RETURN_IF_ERROR(copied);
    return BytesOf(path);
  }

  absl::StatusOr<v1::CompactDatabaseResponse> Compact() override {
    v1::CompactDatabaseResponse compaction;
    compaction.set_bytes_before(SizeBytes());
    const absl::Time before = options_.clock->Now() - options_.sample_retention;
    ASSIGN_OR_RETURN(const int64_t thinned, WriteAndCount([before](sqlite::Database& database) {
                       return ThinSamples(database, before);
                     }));
    compaction.set_thinned(thinned);
    MutexLock lock(write_mutex_);
    RETURN_IF_ERROR(CheckWritable());
    RETURN_IF_ERROR(writer_->Execute(kReleaseFreePages));
    const absl::Status truncated = writer_->Checkpoint(/*truncate=*/true);
    // A reader that stays keeps the log; a later checkpoint gets to it.
    if (!truncated.ok() && !absl::IsUnavailable(truncated)) {
      return truncated;
    }
    compaction.set_bytes_after(SizeBytes());
    return compaction;
  }

  bool InPlace() const override {
    const auto is_still = [](const std::string& path, const std::optional<FileMark>& opened) {
      const std::optional<FileMark> found = opened ? MarkOf(path) : std::nullopt;
      return !opened || (found && found->IsSameFile(*opened));
    };
    return is_still(path_, opened_) && is_still(path_ + "-wal", opened_log_);
  }

  int64_t SizeBytes() override { return BytesOf(path_) + BytesOf(path_ + "-wal"); }
  int SchemaVersion() override { return schema_version_; }
  std::vector<std::string> ListPutAside() const override { return sqlite::ListPutAside(path_); }

  absl::StatusOr<std::vector<Release>> ListReleases() override { return List<ReleaseRow>(); }

  absl::Status PutRelease(const Release& release,
                          const std::vector<Portfolio>& portfolios) override {
    return Write([&](sqlite::Database& database) -> absl::Status {
      RETURN_IF_ERROR(sqlite::PutRow(database, ReleaseRow{release}));
      if (release.state == ReleaseState::kRolledBack) {
        RETURN_IF_ERROR(
            database.Run("DELETE FROM choices WHERE release_number = ?", release.number));
      }
      return StorePortfolios(database, release.number, portfolios);
    });
  }

  absl::StatusOr<Portfolio> GetPortfolio(const TuningKey& key, int64_t release) override {
    return Read([&](sqlite::Database& database) -> absl::StatusOr<Portfolio> {
      absl::StatusOr<Portfolio> found =
          absl::NotFoundError(Concat("no choice for ", key.problem_text, " in ",
                                     key.environment_text, " up to release ", release));
      const auto damage = [&found](const std::string& what) { found = absl::DataLossError(what); };
      RETURN_IF_ERROR(ReadPortfolios(
          database, "environments.text = ?2 AND choices.problem_text = ?3",
          [&](Portfolio portfolio) {
            const bool is_it = portfolio.key == key;
            found = std::move(portfolio);
            if (!is_it) damage(Concat("choices rows (", key.problem_text, "): ", kWrongRow));
          },
          damage, release, key.environment_text, key.problem_text));
      return found;
    });
  }

  absl::Status ForEachPortfolio(const std::string& environment_text, int64_t release,
                                const std::function<void(Portfolio)>& visit,
                                const std::function<void(const std::string&)>& corrupt) override {
    // It reads long: look-ups of tunings are not to wait for it.
    ASSIGN_OR_RETURN(const std::unique_ptr<sqlite::Database> database, OpenReader());
    return ReadPortfolios(*database, "(?2 = '' OR environments.text = ?2)", visit, corrupt, release,
                          environment_text);
  }

  absl::StatusOr<int64_t> ThinPortfolios(int64_t oldest) override {
    return WriteAndCount([oldest](sqlite::Database& database) -> absl::StatusOr<int64_t> {
      RETURN_IF_ERROR(
          database.Run("DELETE FROM choices AS c WHERE c.release_number < ?1 AND "
                       "EXISTS (SELECT 1 FROM choices n WHERE "
                       "n.environment_id = c.environment_id AND "
                       "n.problem_text = c.problem_text AND "
                       "n.release_number > c.release_number AND "
                       "n.release_number <= ?1)",
                       oldest));
      return database.Changes();
    });
  }

  absl::Status CheckServed() override {
    ASSIGN_OR_RETURN(const std::unique_ptr<sqlite::Database> database, OpenReader());
    for (const sqlite::Table* table : ChecksummedTables()) {
      // Most of the file, and nothing that is served rests on it.
      if (table->name == SamplesRow::kTable) continue;
      RETURN_IF_ERROR(NoteDamage(database->QuickCheck(table->name)));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<bool> CarriesOver() override {
    return Read([](sqlite::Database& database) -> absl::StatusOr<bool> {
      ASSIGN_OR_RETURN(const int64_t carries_over, GetMeta(database, "carry_over"));
      return carries_over != 0;
    });
  }

  absl::Status SetCarryOver(bool carry_over) override {
    return Write([carry_over](sqlite::Database& database) {
      return SetMeta(database, "carry_over", carry_over ? 1 : 0);
    });
  }

  absl::Status UpdateWanted(const std::vector<WantedProblem>& put,
                            const std::vector<TuningKey>& drop) override {
    return Write([&](sqlite::Database& database) -> absl::Status {
      for (const WantedProblem& wanted : put) {
        ASSIGN_OR_RETURN(const int64_t id, EnvironmentId(database, wanted.key.environment_text));
        RETURN_IF_ERROR(sqlite::PutRow(database, WantedRow{{id, wanted}}));
      }
      for (const TuningKey& key : drop) {
        RETURN_IF_ERROR(EraseKeyed<WantedRow>(database, key).status());
      }
      return absl::OkStatus();
    });
  }

  absl::StatusOr<std::vector<WantedProblem>> ListWanted() override { return List<WantedRow>(); }

  absl::StatusOr<v1::ReadOutboxResponse> ReadOutbox(size_t limit, size_t bytes) override {
    return Read([&](sqlite::Database& database) -> absl::StatusOr<v1::ReadOutboxResponse> {
      const sqlite::Table& table = TableOf<OutboxRow>();
      ASSIGN_OR_RETURN(
          sqlite::Statement statement,
          database.Prepare(Concat("SELECT ", table.list, ", ", TableOf<EnvironmentRow>().list,
                                  " FROM outbox LEFT JOIN environments USING (environment_id) "
                                  "ORDER BY outbox.sequence LIMIT ?")));
      statement.Bind(limit + 1);
      v1::ReadOutboxResponse page;
      size_t used = 0;
      for (size_t read = 0;; ++read) {
        ASSIGN_OR_RETURN(const bool more, statement.Step());
        page.set_more(more);
        if (!more || read == limit) return page;
        v1::OutboxRow given;
        given.mutable_id()->set_sequence(statement.Int(0));
        given.mutable_id()->set_epoch(statement.Int(1));
        const absl::StatusOr<OutboxRow> row = ReadRow<OutboxRow>(statement);
        const absl::StatusOr<EnvironmentRow> environment =
            ReadRow<EnvironmentRow>(statement, table.width());
        const absl::StatusOr<Tuning> tuning = [&]() -> absl::StatusOr<Tuning> {
          RETURN_IF_ERROR(row.status());
          RETURN_IF_ERROR(environment.status());
          return ReadStoredTuning(database, {row->problem_text, environment->text});
        }();
        if (tuning.ok() && tuning->origin != Origin::kImported) {
          *given.mutable_environment() =
              bundle::ToBundleEnvironment(1, environment->environment, tuning->provenance);
          bundle::FillBundleTuning(*tuning, 1, /*with_samples=*/false, given.mutable_tuning());
          given.set_relayed(tuning->origin == Origin::kFleet);
          used += given.ByteSizeLong();
          if (used > bytes && page.rows_size() > 0) return page;
          *page.add_rows() = std::move(given);
          continue;
        }
        if (absl::IsDataLoss(tuning.status())) {
          options_.notice(Concat("not delivered to the fleet, since its row is damaged: ",
                                 row.ok() ? row->problem_text + ": " : "",
                                 tuning.status().message()));
        } else if (!tuning.ok() && !absl::IsNotFound(tuning.status())) {
          return tuning.status();
        }
        *page.add_void_ids() = given.id();
      }
    });
  }

  absl::Status AckOutbox(const google::protobuf::RepeatedPtrField<v1::OutboxId>& ids) override {
    return Write([&](sqlite::Database& database) -> absl::Status {
      int64_t erased = 0;
      v1::OutboxId last;
      for (const v1::OutboxId& id : ids) {
        RETURN_IF_ERROR(database.Run("DELETE FROM outbox WHERE sequence = ? AND epoch = ?",
                                     id.sequence(), id.epoch()));
        if (database.Changes() == 0) continue;
        ++erased;
        if (id.sequence() > last.sequence()) last = id;
      }
      if (erased == 0) return absl::OkStatus();
      RETURN_IF_ERROR(SetMeta(database, kAcknowledgedEpoch, last.epoch()));
      return AddToMeta(database, kDepth, -erased).status();
    });
  }

  absl::StatusOr<int64_t> RequeueOutbox(bool include_fleet) override {
    return WriteAndCount([&](sqlite::Database& database) -> absl::StatusOr<int64_t> {
      std::vector<std::pair<int64_t, std::string>> keys;
      RETURN_IF_ERROR(database.ForEachRow(
          "SELECT t.environment_id, t.problem_text FROM tunings t WHERE t.origin IN (?, ?) AND "
          "NOT EXISTS (SELECT 1 FROM outbox o WHERE o.environment_id = t.environment_id AND "
          "o.problem_text = t.problem_text) ORDER BY t.tuning_id",
          [&](const sqlite::Statement& row) { keys.emplace_back(row.Int(0), row.Text(1)); },
          Origin::kLocal, include_fleet ? Origin::kFleet : Origin::kLocal));
      for (const auto& [environment_id, problem] : keys) {
        RETURN_IF_ERROR(Enqueue(database, environment_id, problem));
      }
      return static_cast<int64_t>(keys.size());
    });
  }

  absl::StatusOr<bool> WaitsForFleet(const TuningKey& key) override {
    return Read([&](sqlite::Database& database) -> absl::StatusOr<bool> {
      ASSIGN_OR_RETURN(
          const int64_t rows,
          database.QueryInt(
              "SELECT COUNT(*) FROM outbox WHERE problem_text = ? AND environment_id = "
              "(SELECT environment_id FROM environments WHERE text = ?)",
              key.problem_text, key.environment_text));
      return rows > 0;
    });
  }

  absl::StatusOr<v1::FleetState> GetOutboxStatus() override {
    return Read([this](sqlite::Database& database) -> absl::StatusOr<v1::FleetState> {
      ASSIGN_OR_RETURN(const int64_t sequence, GetMeta(database, kSequence));
      ASSIGN_OR_RETURN(const int64_t depth, GetMeta(database, kDepth));
      ASSIGN_OR_RETURN(const int64_t dropped, GetMeta(database, kDropped));
      ASSIGN_OR_RETURN(const int64_t superseded, GetMeta(database, kSuperseded));
      ASSIGN_OR_RETURN(const int64_t release, GetMeta(database, kFleetRelease));
      // Not there before the first acknowledgement.
      ASSIGN_OR_RETURN(const int64_t acknowledged,
                       database.QueryInt("SELECT COALESCE(MAX(value), 0) FROM meta WHERE key = ?",
                                         kAcknowledgedEpoch));
      v1::FleetState state;
      state.set_epoch(epoch_);
      state.set_last_sequence(sequence);
      state.set_outbox_depth(depth);
      state.set_outbox_dropped(dropped);
      state.set_outbox_superseded(superseded);
      state.set_release(release);
      state.set_acknowledged_epoch(acknowledged);
      return state;
    });
  }

  absl::Status SetFleetRelease(int64_t release) override {
    return Write([release](sqlite::Database& database) {
      return SetMeta(database, kFleetRelease, release);
    });
  }

  bool read_only() const override { return read_only_; }

 private:
  using Mutation = std::function<absl::Status(sqlite::Database&)>;

  absl::Status CheckWritable() const REQUIRES(write_mutex_) {
    if (read_only_) {
      return absl::UnavailableError(Concat(path_, ": is read-only, nothing can be kept"));
    }
    if (writer_ == nullptr) return Closed(path_);
    if (!InPlace()) {
      // It may be there, below a folder that does not let this user look.
      std::error_code asked;
      if (!std::filesystem::exists(path_, asked) && asked) {
        return absl::UnavailableError(
            Concat(path_, ": cannot be looked at, so nothing can be kept: ", asked.message()));
      }
      return absl::UnavailableError(Concat(
          path_,
          ": it or its -wal was moved, deleted or replaced while it is open; nothing can be kept"));
    }
    return absl::OkStatus();
  }

  absl::Status CheckReadable() const REQUIRES(read_mutex_) {
    return reader_ == nullptr ? Closed(path_) : absl::OkStatus();
  }

  absl::Status CommitMutation(const Mutation& mutation) REQUIRES(write_mutex_) {
    ASSIGN_OR_RETURN(sqlite::Transaction transaction, sqlite::Transaction::Begin(*writer_));
    if (!marked_unclean_) RETURN_IF_ERROR(SetMeta(*writer_, "clean_shutdown", 0));
    RETURN_IF_ERROR(mutation(*writer_));
    RETURN_IF_ERROR(transaction.Commit());
    marked_unclean_ = true;
    return absl::OkStatus();
  }

  // Runs `mutation` in a transaction and commits it.
  absl::Status Write(const Mutation& mutation) EXCLUDES(write_mutex_) {
    MutexLock lock(write_mutex_);
    RETURN_IF_ERROR(CheckWritable());
    absl::Status status = CommitMutation(mutation);
    damaged_ = damaged_ || absl::IsDataLoss(status);
    RETURN_IF_ERROR(status);
    TidyAfterCommit();
    return absl::OkStatus();
  }

  // Checkpoint and size cap: what fails here is tried again after the next
  // commit, and loses nothing.
  void TidyAfterCommit() REQUIRES(write_mutex_) {
    absl::Status status;
    // By the wall clock, as what it thins; the second condition is for one that was set back.
    if (const absl::Time now = options_.clock->Now();
        now >= next_thinning_ || now + kThinningPeriod < next_thinning_) {
      next_thinning_ = now + kThinningPeriod;
      status.Update(ThinSamples(*writer_, now - options_.sample_retention).status());
    }
    if (options_.max_bytes > 0) {
      status.Update(EnforceSizeCap(*writer_, options_.max_bytes));
    }
    if (writer_->wal_frames() >= kCheckpointFrames) {
      status.Update(writer_->Checkpoint(/*truncate=*/false));
    }
    if (!status.ok()) {
      options_.notice(Concat("tidying the database failed: ", status.message()));
    }
  }

  // Stores the tuning and, if it was made here, its row of the outbox.
  absl::Status StoreWithOutbox(sqlite::Database& database, const Tuning& tuning,
                               const Environment& environment, EnvironmentRow* last) const {
    ASSIGN_OR_RETURN(const int64_t environment_id,
                     StoreTuning(database, tuning, environment, last));
    if (tuning.origin != Origin::kLocal) return absl::OkStatus();
    return Enqueue(database, environment_id, tuning.key.problem_text);
  }

  // Passes the status on. One that says DATA_LOSS makes the next start check the whole file.
  absl::Status NoteDamage(absl::Status status) EXCLUDES(write_mutex_) {
    if (absl::IsDataLoss(status)) {
      MutexLock lock(write_mutex_);
      damaged_ = true;
    }
    return status;
  }

  // A connection of its own for what takes long.
  absl::StatusOr<std::unique_ptr<sqlite::Database>> OpenReader() EXCLUDES(read_mutex_) {
    {
      MutexLock lock(read_mutex_);
      RETURN_IF_ERROR(CheckReadable());
    }
    return sqlite::Database::Open({.path = path_, .access = reader_access_});
  }

  static int64_t NewEpoch() {
    std::random_device device;
    const uint64_t bits = (static_cast<uint64_t>(device()) << 32) | device();
    return static_cast<int64_t>(bits >> 1) | 1;  // positive, never 0
  }

  // Puts the key into the outbox, in place of an older row of it, with the next sequence. Where
  // more rows are there than the limit, the oldest goes and is counted.
  absl::Status Enqueue(sqlite::Database& database, int64_t environment_id,
                       const std::string& problem_text) const {
    RETURN_IF_ERROR(database.Run("DELETE FROM outbox WHERE environment_id = ? AND problem_text = ?",
                                 environment_id, problem_text));
    const int64_t replaced = database.Changes();
    if (replaced > 0) RETURN_IF_ERROR(AddToMeta(database, kSuperseded, replaced).status());
    ASSIGN_OR_RETURN(const int64_t sequence, AddToMeta(database, kSequence, 1));
    RETURN_IF_ERROR(
        sqlite::InsertRow(database, OutboxRow{sequence, epoch_, environment_id, problem_text}));
    ASSIGN_OR_RETURN(const int64_t depth, AddToMeta(database, kDepth, 1 - replaced));
    if (depth <= options_.outbox_limit) return absl::OkStatus();
    RETURN_IF_ERROR(
        database.Run("DELETE FROM outbox WHERE sequence = (SELECT MIN(sequence) FROM outbox)"));
    RETURN_IF_ERROR(AddToMeta(database, kDropped, 1).status());
    return AddToMeta(database, kDepth, -1).status();
  }

  // Writes by a mutation that gives a number, and returns that.
  template <typename CountingMutation>
  absl::StatusOr<int64_t> WriteAndCount(const CountingMutation& mutation) EXCLUDES(write_mutex_) {
    absl::StatusOr<int64_t> number;
    RETURN_IF_ERROR(Write([&](sqlite::Database& database) -> absl::Status {
      number = mutation(database);
      return number.status();
    }));
    return number;
  }

  // Runs `query` on the connection of short reads.
  template <typename Query>
  std::invoke_result_t<Query, sqlite::Database&> Read(const Query& query) EXCLUDES(read_mutex_) {
    MutexLock lock(read_mutex_);
    RETURN_IF_ERROR(CheckReadable());
    return query(*reader_);
  }

  // The values of a table's sound rows, in the order of its key; notices tell of the others.
  template <typename Row>
  absl::StatusOr<std::vector<decltype(Row::value)>> List() {
    using Values = std::vector<decltype(Row::value)>;
    return Read([this](sqlite::Database& database) -> absl::StatusOr<Values> {
      if constexpr (requires { &Row::environment_id; }) {
        return ReadKeyed<Row>(database, options_.notice);
      } else {
        Values values;
        RETURN_IF_ERROR(
            sqlite::ReadRows<Row>(database, Concat("ORDER BY ", Row::kKey), options_.notice,
                                  [&](Row row) { values.push_back(std::move(row.value)); }));
        return values;
      }
    });
  }

  const Options options_;
  const std::string path_;
  const int schema_version_;
  const int64_t epoch_ = NewEpoch();
  const bool read_only_;
  const sqlite::Database::Access reader_access_;
  // The files as they were opened, for InPlace().
  const std::optional<FileMark> opened_;
  const std::optional<FileMark> opened_log_;  // of the write-ahead log
  UniqueFd lock_ GUARDED_BY(write_mutex_);    // outlives the connections
  Mutex write_mutex_;
  std::unique_ptr<sqlite::Database> writer_ GUARDED_BY(write_mutex_);
  bool marked_unclean_ GUARDED_BY(write_mutex_) = false;
  bool damaged_ GUARDED_BY(write_mutex_) = false;  // something read or written said so
  absl::Time next_thinning_ GUARDED_BY(write_mutex_);
  Mutex read_mutex_;
  std::unique_ptr<sqlite::Database> reader_ GUARDED_BY(read_mutex_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<SqliteStore>> SqliteStore::Open(Options options) {
  if (options.state_dir.empty()) return ViolationError({"state_dir", "must not be empty"});
  const std::string& directory = options.state_dir;
  if (!options.read_only) {
    const bool made = mkdir(directory.c_str(), kStateFolderMode) == 0;
    // Whatever the umask says: the daemon's group reaches the snapshot through it.
    if (made ? chmod(directory.c_str(), kStateFolderMode) != 0 : errno != EEXIST) {
      return FileError(directory, "making the state directory");
    }
  }
  if (!options.allow_network_fs) {
    ASSIGN_OR_RETURN(const sqlite::FileSystemInfo info, options.file_system_probe(directory));
    RETURN_IF_ERROR(sqlite::CheckLocalDisk(directory, info));
  }
  const std::string path = directory + "/convtune.db";
  const std::string lock_path = directory + "/convtune.lock";
  if (!options.read_only && IsReadOnly(directory, path)) {
    options.read_only = true;
    options.notice(Concat(path, ": cannot be written; results are served but not kept"));
  }
  ASSIGN_OR_RETURN(UniqueFd lock, options.read_only ? sqlite::ShareLockFile(lock_path)
                                                    : sqlite::LockFile(lock_path));
  ASSIGN_OR_RETURN(sqlite::DatabaseFile file,
                   sqlite::OpenDatabaseFile({.path = path,
                                             .clock = options.clock,
                                             .damage = options.damage,
                                             .read_only = options.read_only,
                                             .notice = options.notice}));
  ASSIGN_OR_RETURN(const int64_t version, file.reader->UserVersion());
  return std::unique_ptr<SqliteStore>(new StoreFile(std::move(options), path, std::move(lock),
                                                    std::move(file), static_cast<int>(version)));
}

}  // namespace convtune::db::store
