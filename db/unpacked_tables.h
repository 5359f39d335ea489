// The tables of schema versions 1 to 4, in which each candidate, its samples and
// its measurements were rows of their own. Read once, when such a file is
// migrated to version 5.
#pragma once

#include "absl/status/status.h"
#include "db/database.h"

namespace convtune {

// Packs what the old tables hold into those that 0005_packed.sql makes, and
// drops them. A tuning with a damaged candidate gets no row of candidates: it is
// left out and reported whenever the file is read, as before. Samples that are
// damaged are dropped. REQUIRES: a transaction of the caller.
absl::Status PackUnpackedRows(Database& database);

}  // namespace convtune
