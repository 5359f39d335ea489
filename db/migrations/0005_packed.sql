-- The candidates of a tuning in one row, and their samples in another, instead
-- of a row for each: a tuning of 12 candidates was 29 rows. What the old tables
-- hold is packed by the program, in this transaction, which then drops them
-- (db/unpacked_tables.h).

-- candidates: all of them in the order of the ranking, and how the race between
-- them went; its format is in README.md.
CREATE TABLE tuning_candidates (
  tuning_id INTEGER NOT NULL PRIMARY KEY REFERENCES tunings (tuning_id) ON DELETE CASCADE,
  candidates BLOB NOT NULL CHECK (length(candidates) > 0),
  checksum INTEGER NOT NULL
) STRICT;

-- A table of its own, so that loading without samples reads none of its pages
-- and thinning leaves the candidates as they are. last_position: of the last
-- candidate that has samples.
CREATE TABLE tuning_samples (
  tuning_id INTEGER NOT NULL PRIMARY KEY REFERENCES tunings (tuning_id) ON DELETE CASCADE,
  last_position INTEGER NOT NULL,
  samples BLOB NOT NULL CHECK (length(samples) > 0),
  checksum INTEGER NOT NULL
) STRICT;

-- Nothing looks up by digest; its entries came in no order.
DROP INDEX tunings_by_digest;

UPDATE meta SET value = 5 WHERE key = 'compatible_version';
