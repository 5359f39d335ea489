#include "db/store/meta.h"

#include "proto/base/status_macros.h"
#include "proto/base/strings.h"

namespace convtune::db::store {

absl::StatusOr<int64_t> GetMeta(const sqlite::Database& database, std::string_view name) {
  const absl::StatusOr<int64_t> value =
      database.QueryInt("SELECT value FROM meta WHERE key = ?", name);
  if (!absl::IsNotFound(value.status())) return value;
  return absl::DataLossError(Concat(database.path(), ": meta has no ", name));
}

absl::Status SetMeta(const sqlite::Database& database, std::string_view name, int64_t value) {
  return database.Run(
      "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = "
      "excluded.value",
      name, value);
}

absl::StatusOr<int64_t> AddToMeta(const sqlite::Database& database, std::string_view name,
                                  int64_t amount) {
  ASSIGN_OR_RETURN(const int64_t value, GetMeta(database, name));
  RETURN_IF_ERROR(SetMeta(database, name, value + amount));
  return value + amount;
}

}  // namespace convtune::db::store
