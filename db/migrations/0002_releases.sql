-- Releases, what they choose, and what programs asked for in vain. Programs
-- that know only version 1 can use the result: they leave these tables alone.

-- state: 1 promoted, 2 canary, 3 withdrawn. restores: 0, or the release whose
-- choices a rollback brought back. end_*: who promoted or withdrew a canary.
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
-- proto/model/release.h. No reference to tunings, which may be deleted while
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
  deterministic INTEGER NOT NULL,
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
