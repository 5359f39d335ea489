-- Rows carry a checksum over all their other columns, in the order of the
-- table's definition; see README.md.

-- Facts about the file itself. compatible_version: the oldest schema version
-- whose program can use this file. clean_shutdown: 1 only while no daemon has
-- written since the last orderly stop. outbox_sequence: the last one that was
-- given. outbox_depth: rows of the outbox. outbox_dropped: rows that its bound
-- removed, outbox_superseded: rows that a newer one of their key replaced, since
-- the file was made. fleet_release: the fleet's release that this node has
-- taken; 0: none. ban_sequence: the last number that a ban was given. carry_over: 1
-- while this file may lack choices that the snapshot beside it has: from its first
-- start, and after damage.
CREATE TABLE meta (
  key TEXT NOT NULL PRIMARY KEY,
  value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO meta (key, value) VALUES
  ('compatible_version', 1), ('clean_shutdown', 0), ('outbox_sequence', 0), ('outbox_depth', 0),
  ('outbox_dropped', 0), ('outbox_superseded', 0), ('fleet_release', 0), ('ban_sequence', 0),
  ('carry_over', 1);

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

-- record: convtune.v1.Tuning without its key and its samples. The columns
-- before it are what is asked for; those that the record has too are the same.
CREATE TABLE tunings (
  tuning_id INTEGER NOT NULL PRIMARY KEY,
  environment_id INTEGER NOT NULL REFERENCES environments (environment_id),
  problem_text TEXT NOT NULL,
  origin INTEGER NOT NULL,
  tune_time_us INTEGER NOT NULL,
  record BLOB NOT NULL CHECK (length(record) > 0),
  checksum INTEGER NOT NULL,
  UNIQUE (environment_id, problem_text)
) STRICT;

CREATE INDEX tunings_by_tune_time ON tunings (tune_time_us);

-- record: convtune.v1.Tuning with the candidates' samples alone, up to the last
-- candidate that has any; there are candidate_count. A table of its own, so that
-- loading without samples reads none of its pages and thinning leaves the tuning
-- as it is.
CREATE TABLE tuning_samples (
  tuning_id INTEGER NOT NULL PRIMARY KEY REFERENCES tunings (tuning_id) ON DELETE CASCADE,
  candidate_count INTEGER NOT NULL,
  record BLOB NOT NULL CHECK (length(record) > 0),
  checksum INTEGER NOT NULL
) STRICT;

-- fleet_pin: the fleet's number of it, 0: made on this daemon.
CREATE TABLE pins (
  environment_id INTEGER NOT NULL REFERENCES environments (environment_id),
  problem_text TEXT NOT NULL,
  candidate TEXT NOT NULL,
  reason TEXT NOT NULL,
  fleet_pin INTEGER NOT NULL,
  create_time_us INTEGER NOT NULL,
  expire_time_us INTEGER,
  checksum INTEGER NOT NULL,
  PRIMARY KEY (environment_id, problem_text)
) STRICT;

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

-- Candidates that are no answer. candidate: CandidatePattern's text; cudnn:
-- CudnnRange's; gpu: a glob; empty: any. operation, data_type, layout: numbers of
-- proto/model/enums.h, 0: any. ban_number: never given twice. fleet_ban: the fleet's
-- number of it, 0: made on this daemon.
CREATE TABLE bans (
  ban_number INTEGER NOT NULL PRIMARY KEY,
  fleet_ban INTEGER NOT NULL,
  candidate TEXT NOT NULL,
  cudnn TEXT NOT NULL,
  gpu TEXT NOT NULL,
  operation INTEGER NOT NULL,
  data_type INTEGER NOT NULL,
  layout INTEGER NOT NULL,
  author TEXT NOT NULL,
  reason TEXT NOT NULL,
  create_time_us INTEGER NOT NULL,
  expire_time_us INTEGER,
  checksum INTEGER NOT NULL
) STRICT;

-- state: 1 promoted, 2 canary, 3 rolled back. restores: 0, or the release whose
-- choices a rollback brought back. end_*: of a canary's promotion or rollback.
CREATE TABLE releases (
  release_number INTEGER NOT NULL PRIMARY KEY,
  state INTEGER NOT NULL,
  canary_permille INTEGER NOT NULL,
  restores INTEGER NOT NULL,
  author TEXT NOT NULL,
  reason TEXT NOT NULL,
  create_time_us INTEGER NOT NULL,
  end_author TEXT NOT NULL,
  end_reason TEXT NOT NULL,
  end_time_us INTEGER,
  checksum INTEGER NOT NULL
) STRICT;

-- A problem's portfolio from that release on, until a later one has another:
-- choice_count rows, place 0 and up. One row with choice_count 0 and no
-- candidate: from there on the problem has none. roles: bits of
-- proto/model/release/release.h. No reference to tunings, which may be deleted while
-- their choice is still part of an older release.
CREATE TABLE choices (
  environment_id INTEGER NOT NULL REFERENCES environments (environment_id),
  problem_text TEXT NOT NULL,
  release_number INTEGER NOT NULL REFERENCES releases (release_number),
  place INTEGER NOT NULL,
  choice_count INTEGER NOT NULL,
  roles INTEGER NOT NULL,
  candidate TEXT NOT NULL,
  evidence INTEGER NOT NULL,
  numerical_notes INTEGER NOT NULL,
  behavior_notes INTEGER NOT NULL,
  workspace_bytes INTEGER NOT NULL,
  heuristic_rank INTEGER NOT NULL,
  median_us REAL NOT NULL,
  checksum INTEGER NOT NULL,
  PRIMARY KEY (environment_id, problem_text, release_number, place)
) STRICT, WITHOUT ROWID;

CREATE INDEX choices_by_release ON choices (release_number);

CREATE TABLE wanted (
  environment_id INTEGER NOT NULL REFERENCES environments (environment_id),
  problem_text TEXT NOT NULL,
  misses INTEGER NOT NULL,
  first_seen_us INTEGER NOT NULL,
  last_seen_us INTEGER NOT NULL,
  attempts INTEGER NOT NULL,
  last_error TEXT NOT NULL,
  checksum INTEGER NOT NULL,
  PRIMARY KEY (environment_id, problem_text)
) STRICT;

-- A tuning of this node that the fleet has not been given yet; what is
-- delivered is what the tuning is then. sequence: never given twice in one
-- epoch. epoch: of the daemon's start that wrote the row. One row for each key,
-- the newest.
CREATE TABLE outbox (
  sequence INTEGER NOT NULL PRIMARY KEY,
  epoch INTEGER NOT NULL,
  environment_id INTEGER NOT NULL REFERENCES environments (environment_id),
  problem_text TEXT NOT NULL,
  checksum INTEGER NOT NULL,
  UNIQUE (environment_id, problem_text)
) STRICT;
