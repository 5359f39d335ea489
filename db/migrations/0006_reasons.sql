-- Why a tuning is incomplete and why a candidate is quarantined as numbers,
-- where there were sentences. The program translates what older rows say,
-- in this transaction, and drops quarantine_5 (NumberReasons in
-- db/unpacked_tables.h).

-- incomplete: mask of proto/model/enums.h, IncompleteReason. Behind checksum, as
-- a column that is added can be nowhere else; the checksum covers it as the last
-- but one.
ALTER TABLE tunings ADD COLUMN incomplete INTEGER NOT NULL DEFAULT 0;

ALTER TABLE quarantine RENAME TO quarantine_5;

-- reason: QuarantineReason of proto/model/enums.h; message: the same in words.
-- hang_budget_us: of the tuning that the candidate hung in, else 0.
-- checker_version: of the worker that found it, 0 if that had none.
CREATE TABLE quarantine (
  environment_id INTEGER NOT NULL REFERENCES environments (environment_id),
  problem_text TEXT NOT NULL,
  candidate TEXT NOT NULL,
  reason INTEGER NOT NULL,
  message TEXT NOT NULL,
  hang_budget_us INTEGER NOT NULL,
  checker_version INTEGER NOT NULL,
  create_time_us INTEGER NOT NULL,
  checksum INTEGER NOT NULL,
  PRIMARY KEY (environment_id, problem_text, candidate)
) STRICT;

UPDATE meta SET value = 6 WHERE key = 'compatible_version';
