-- Rows carry a checksum over all their other columns, in the order of the
-- table's definition; see README.md.

-- Facts about the file itself. compatible_version: the oldest schema version
-- whose program can use this file. clean_shutdown: 1 only while no daemon has
-- written since the last orderly stop.
CREATE TABLE meta (
  key TEXT NOT NULL PRIMARY KEY,
  value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO meta (key, value) VALUES ('compatible_version', 1), ('clean_shutdown', 0);

CREATE TABLE environments (
  environment_id INTEGER NOT NULL PRIMARY KEY,
  text TEXT NOT NULL UNIQUE,
  name TEXT NOT NULL,
  profile INTEGER NOT NULL,
  gpu_model TEXT NOT NULL,
  cc_major INTEGER NOT NULL,
  cc_minor INTEGER NOT NULL,
  sm_count INTEGER NOT NULL,
  mig_profile TEXT NOT NULL,
  cudnn_major INTEGER NOT NULL,
  cudnn_minor INTEGER NOT NULL,
  cudnn_patch INTEGER NOT NULL,
  library INTEGER NOT NULL,
  checksum INTEGER NOT NULL
) STRICT;

CREATE TABLE tunings (
  tuning_id INTEGER NOT NULL PRIMARY KEY,
  digest BLOB NOT NULL CHECK (length(digest) = 16),
  environment_id INTEGER NOT NULL REFERENCES environments (environment_id),
  problem_text TEXT NOT NULL,
  evidence INTEGER NOT NULL,
  origin INTEGER NOT NULL,
  tune_time_us INTEGER NOT NULL,
  elapsed_us INTEGER NOT NULL,
  memory_budget_bytes INTEGER NOT NULL,
  incomplete_reason TEXT NOT NULL,
  driver_version TEXT NOT NULL,
  cuda_version TEXT NOT NULL,
  gpu_uuid TEXT NOT NULL,
  node TEXT NOT NULL,
  memory_bytes INTEGER NOT NULL,
  candidate_count INTEGER NOT NULL,
  checksum INTEGER NOT NULL,
  UNIQUE (environment_id, problem_text)
) STRICT;

CREATE INDEX tunings_by_digest ON tunings (digest);
CREATE INDEX tunings_by_tune_time ON tunings (tune_time_us);

-- position: place in the ranking, the best is 0.
CREATE TABLE candidates (
  tuning_id INTEGER NOT NULL REFERENCES tunings (tuning_id) ON DELETE CASCADE,
  position INTEGER NOT NULL,
  candidate TEXT NOT NULL,
  numerical_notes INTEGER NOT NULL,
  behavior_notes INTEGER NOT NULL,
  deterministic INTEGER NOT NULL,
  workspace_bytes INTEGER NOT NULL,
  heuristic_rank INTEGER NOT NULL,
  status INTEGER NOT NULL,
  error_message TEXT NOT NULL,
  median_us REAL NOT NULL,
  q1_us REAL NOT NULL,
  q3_us REAL NOT NULL,
  sample_count INTEGER NOT NULL,
  find_us REAL NOT NULL,
  checksum INTEGER NOT NULL,
  PRIMARY KEY (tuning_id, position)
) STRICT, WITHOUT ROWID;

-- A table of their own, so that loading without samples reads none of their
-- pages and thinning leaves the candidates' checksums as they are. samples:
-- little-endian IEEE 754 binary32, microseconds, in the order taken.
CREATE TABLE samples (
  tuning_id INTEGER NOT NULL,
  position INTEGER NOT NULL,
  samples BLOB NOT NULL CHECK (length(samples) > 0 AND length(samples) % 4 = 0),
  checksum INTEGER NOT NULL,
  PRIMARY KEY (tuning_id, position),
  FOREIGN KEY (tuning_id, position) REFERENCES candidates (tuning_id, position) ON DELETE CASCADE
) STRICT;

CREATE TABLE pins (
  environment_id INTEGER NOT NULL REFERENCES environments (environment_id),
  problem_text TEXT NOT NULL,
  candidate TEXT NOT NULL,
  reason TEXT NOT NULL,
  create_time_us INTEGER NOT NULL,
  expire_time_us INTEGER,
  checksum INTEGER NOT NULL,
  PRIMARY KEY (environment_id, problem_text)
) STRICT;

CREATE TABLE quarantine (
  environment_id INTEGER NOT NULL REFERENCES environments (environment_id),
  problem_text TEXT NOT NULL,
  candidate TEXT NOT NULL,
  reason TEXT NOT NULL,
  create_time_us INTEGER NOT NULL,
  checksum INTEGER NOT NULL,
  PRIMARY KEY (environment_id, problem_text, candidate)
) STRICT;
