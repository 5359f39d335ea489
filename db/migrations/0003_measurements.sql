-- What is known of measurements beyond the candidates' summaries. Tables of
-- their own: tunings from before have no rows here, and programs that do not
-- know them can use the file.

-- One row for each tuning whose candidates were timed.
CREATE TABLE tuning_conditions (
  tuning_id INTEGER NOT NULL PRIMARY KEY REFERENCES tunings (tuning_id) ON DELETE CASCADE,
  stop_reason INTEGER NOT NULL,
  rounds INTEGER NOT NULL,
  cache_state INTEGER NOT NULL,
  known INTEGER NOT NULL,
  other_processes INTEGER NOT NULL,
  clock_reasons INTEGER NOT NULL,
  power_limit_watts REAL NOT NULL,
  temperature_celsius INTEGER NOT NULL,
  ecc_errors INTEGER NOT NULL,
  mig INTEGER NOT NULL,
  mps INTEGER NOT NULL,
  compute_mode INTEGER NOT NULL,
  checksum INTEGER NOT NULL
) STRICT;

-- One row for each candidate that was timed or compared. error: NULL if it was not
-- compared with a reference.
CREATE TABLE measurements (
  tuning_id INTEGER NOT NULL,
  position INTEGER NOT NULL,
  low_us REAL NOT NULL,
  high_us REAL NOT NULL,
  host_us REAL NOT NULL,
  sm_clock_mhz REAL NOT NULL,
  error REAL,
  capture INTEGER NOT NULL,
  checksum INTEGER NOT NULL,
  PRIMARY KEY (tuning_id, position),
  FOREIGN KEY (tuning_id, position) REFERENCES candidates (tuning_id, position) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

-- Times of a candidate in other cache states, and of graph replays.
CREATE TABLE other_times (
  tuning_id INTEGER NOT NULL,
  position INTEGER NOT NULL,
  launch INTEGER NOT NULL,
  cache_state INTEGER NOT NULL,
  median_us REAL NOT NULL,
  low_us REAL NOT NULL,
  high_us REAL NOT NULL,
  sample_count INTEGER NOT NULL,
  checksum INTEGER NOT NULL,
  PRIMARY KEY (tuning_id, position, launch, cache_state),
  FOREIGN KEY (tuning_id, position) REFERENCES candidates (tuning_id, position) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
