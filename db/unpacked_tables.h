// Rows of earlier schema versions, read once, when such a file is migrated: of
// versions 1 to 4, in which each candidate, its samples and its measurements
// were rows of their own, and of versions 1 to 5, in which reasons were sentences.
#pragma once

#include "absl/status/status.h"
#include "db/database.h"

namespace convtune {

// Packs what the old tables hold into those that 0005_packed.sql makes, and
// drops them. A tuning with a damaged candidate gets no row of candidates: it is
// left out and reported whenever the file is read, as before. Samples that are
// damaged are dropped. REQUIRES: a transaction of the caller.
absl::Status PackUnpackedRows(Database& database);

// Gives the tunings and the quarantine of versions 1 to 5 the numbers of their
// reasons, after 0006_reasons.sql. A damaged tuning stays as it is; a damaged row
// of the quarantine, which was ignored, is dropped. REQUIRES: a transaction of
// the caller.
absl::Status NumberReasons(Database& database);

}  // namespace convtune
