-- What agents may do ends where others are served: rows of a node are its login's, what
-- is shared is written once, and decisions have digests. README.md says what comments
-- here do not.

-- Programs of version 1 know neither the digests nor the rights, so they refuse this
-- schema. Those that are connected take the new id for another fleet's, connect again,
-- and say so.
UPDATE fleet SET compatible_version = 2, fleet_id = gen_random_uuid();

-- The functions below find nothing but the tables of this schema.
DO $$ BEGIN PERFORM set_config('search_path', current_schema() || ', pg_temp', true); END $$;

-- The login whose agent registered the node, which alone may write its rows. NULL: nobody's
-- yet, or that of an agent which may write every node's.
ALTER TABLE nodes ADD COLUMN login text;
-- Why the node does not take the release that it should serve.
ALTER TABLE nodes ADD COLUMN release_error text NOT NULL DEFAULT '';

ALTER TABLE nodes ENABLE ROW LEVEL SECURITY;
CREATE POLICY nodes_read ON nodes FOR SELECT USING (true);
CREATE POLICY nodes_add ON nodes FOR INSERT WITH CHECK (login = session_user);
CREATE POLICY nodes_own ON nodes FOR UPDATE USING (login IS NULL OR login = session_user)
  WITH CHECK (login = session_user);

DO $$
DECLARE
  each text;
BEGIN
  FOREACH each IN ARRAY '{node_epochs,node_devices,provenances,evidence,wanted}'::text[] LOOP
    EXECUTE format('ALTER TABLE %1$I ENABLE ROW LEVEL SECURITY;'
      'CREATE POLICY %1$s_read ON %1$I FOR SELECT USING (true);'
      'CREATE POLICY %1$s_own ON %1$I USING ((SELECT n.login FROM nodes n WHERE n.node_id = '
      '%1$I.node_id) = session_user)', each);
  END LOOP;
END $$;

-- An agent takes what waits or was lost, and ends what its node has. Whoever decides
-- may end all.
ALTER TABLE tasks ENABLE ROW LEVEL SECURITY;
CREATE POLICY tasks_read ON tasks FOR SELECT USING (true);
CREATE POLICY tasks_add ON tasks FOR INSERT WITH CHECK (state = 1);
CREATE POLICY tasks_take ON tasks FOR UPDATE
  USING (state = 1 OR (state = 2 AND (lease_until < clock_timestamp() OR
    (SELECT n.login FROM nodes n WHERE n.node_id = tasks.node_id) = session_user)))
  WITH CHECK (node_id IS NULL OR
    (SELECT n.login FROM nodes n WHERE n.node_id = tasks.node_id) = session_user);
CREATE POLICY tasks_decide ON tasks FOR UPDATE
  USING (has_table_privilege('releases'::regclass, 'INSERT'));

-- Has the evidence of these keys pooled by whoever decides next.
CREATE FUNCTION queue_pooling(environment_ids integer[], problem_ids integer[]) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
  -- In one order, so that two who deliver cannot block each other.
  INSERT INTO pool_queue (environment_id, problem_id)
    SELECT DISTINCT e, p FROM unnest(environment_ids, problem_ids) AS k(e, p) ORDER BY 1, 2
    ON CONFLICT (environment_id, problem_id) DO UPDATE SET queue_time = now();
$$;

-- True for the first who asks within a day.
CREATE FUNCTION thin_is_due() RETURNS boolean
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
  WITH due AS (UPDATE upkeep SET last_time = now() WHERE what = 'thin' AND last_time < now() -
    interval '1 day' RETURNING 1)
  SELECT EXISTS (SELECT 1 FROM due);
$$;

-- Removes up to so many rows of each kind that count for nothing any more, and are older
-- than `keep`.
CREATE FUNCTION thin(keep interval, most bigint, OUT evidence_count bigint,
  OUT task_count bigint, OUT payload_count bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  DELETE FROM evidence WHERE evidence_id IN (SELECT evidence_id FROM evidence WHERE NOT current
    AND receive_time < now() - keep LIMIT most);
  GET DIAGNOSTICS evidence_count = ROW_COUNT;
  DELETE FROM tasks WHERE task_id IN (SELECT task_id FROM tasks WHERE state IN (3, 5) AND
    end_time < now() - keep LIMIT most);
  GET DIAGNOSTICS task_count = ROW_COUNT;
  DELETE FROM batches b WHERE create_time < now() - keep AND NOT EXISTS (SELECT 1 FROM tasks t
    WHERE t.batch_id = b.batch_id);
  -- Whoever pools writes a payload and refers to it in one transaction, and may refer to
  -- one that was there: the lock waits for those, and keeps others out until what nothing
  -- refers to is gone.
  LOCK TABLE pooled_payloads IN SHARE ROW EXCLUSIVE MODE;
  DELETE FROM pooled_payloads y WHERE NOT EXISTS (SELECT 1 FROM pooled p WHERE p.digest =
    y.digest) AND NOT EXISTS (SELECT 1 FROM release_choices c WHERE c.digest = y.digest);
  GET DIAGNOSTICS payload_count = ROW_COUNT;
END $$;

REVOKE ALL ON FUNCTION queue_pooling, thin_is_due, thin FROM PUBLIC;

-- Agents of version 1 pooled: who decides pools all of it anew.
DELETE FROM pooled;
-- A transaction with an older snapshot sees no row of `pooled` since, and could thin its payload.
ALTER TABLE pooled ADD FOREIGN KEY (digest) REFERENCES pooled_payloads;
CREATE INDEX pooled_by_digest ON pooled (digest);
INSERT INTO pool_queue (environment_id, problem_id)
  SELECT DISTINCT environment_id, problem_id FROM evidence WHERE current ON CONFLICT DO NOTHING;

-- The SHA-256 of what was decided, by the program of whoever decided it. Nodes refuse a
-- decision that has another content, or no digest. What is here is vouched for by whoever
-- migrates. public_key, signature: as of a bundle with that digest; NULL or empty:
-- not signed.
ALTER TABLE releases ADD COLUMN digest bytea CHECK (length(digest) = 32),
  ADD COLUMN public_key bytea, ADD COLUMN signature bytea;
ALTER TABLE pins ADD COLUMN digest bytea CHECK (length(digest) = 32),
  ADD COLUMN public_key bytea, ADD COLUMN signature bytea;
ALTER TABLE bans ADD COLUMN digest bytea CHECK (length(digest) = 32),
  ADD COLUMN public_key bytea, ADD COLUMN signature bytea;

CREATE FUNCTION pg_temp.fields(VARIADIC texts text[]) RETURNS text LANGUAGE sql AS $$
  SELECT string_agg(octet_length(convert_to(t, 'UTF8')) || ':' || t, '' ORDER BY place)
    FROM unnest(texts) WITH ORDINALITY AS f(t, place);
$$;
CREATE FUNCTION pg_temp.micros(t timestamptz) RETURNS text LANGUAGE sql AS $$
  SELECT COALESCE((EXTRACT(EPOCH FROM t) * 1000000)::bigint::text, '');
$$;
UPDATE releases r SET digest = sha256(convert_to(pg_temp.fields('convtune fleet release 1',
    release_number::text, state::text, canary_permille::text, '', COALESCE(restores, 0)::text, author,
    reason, end_author, end_reason) ||
  COALESCE((SELECT string_agg(pg_temp.fields(e.text, q.text, COALESCE(encode(c.digest, 'hex'), '')),
      '' ORDER BY e.text COLLATE "C", q.text COLLATE "C") FROM release_choices c JOIN environments e
    USING (environment_id) JOIN problems q USING (problem_id) WHERE c.release_number =
    r.release_number), ''), 'UTF8'));
UPDATE pins i SET digest = sha256(convert_to(pg_temp.fields('convtune fleet pin 1', e.text, q.text,
    candidate, author, reason, pg_temp.micros(expire_time)), 'UTF8'))
  FROM environments e, problems q WHERE e.environment_id = i.environment_id AND
    q.problem_id = i.problem_id;
UPDATE bans SET digest = sha256(convert_to(pg_temp.fields('convtune fleet ban 1', candidate, cudnn,
  gpu, operation::text, data_type::text, layout::text, author, reason,
  pg_temp.micros(expire_time)), 'UTF8'));
DROP FUNCTION pg_temp.fields(text[]), pg_temp.micros(timestamptz);

-- Names of the nodes that were drawn for a canary, which are in its digest. A canary of version
-- 1 is served by nobody until a promotion with another share draws them.
ALTER TABLE releases ADD COLUMN canary_nodes text[] NOT NULL DEFAULT '{}';

-- Numbers of the bans that hold on the node, as of its last turn.
ALTER TABLE nodes ADD COLUMN heeded_bans bigint[] NOT NULL DEFAULT '{}';

-- Who stands behind a pooled tuning: PooledTuning of db/fleet/evidence.h.
ALTER TABLE pooled ADD COLUMN voices integer[] NOT NULL DEFAULT '{}',
  ADD COLUMN left_out integer[] NOT NULL DEFAULT '{}',
  ADD COLUMN dissenters integer[] NOT NULL DEFAULT '{}',
  ADD COLUMN agreeing integer NOT NULL DEFAULT 0;

-- How many nodes are to measure it, and those that did: never one twice.
ALTER TABLE tasks ADD COLUMN nodes_wanted smallint NOT NULL DEFAULT 1,
  ADD COLUMN tuned_by integer[] NOT NULL DEFAULT '{}';
-- The node's agent takes problems that the fleet has queued (not --no-tune).
ALTER TABLE node_devices ADD COLUMN tunes boolean NOT NULL DEFAULT true;

-- A node with a forget_time is gone, and the next one of its name is another. Its evidence
-- counts on, for each key until a later node of its name has its own.
ALTER TABLE nodes ADD COLUMN forget_time timestamptz;
ALTER TABLE nodes DROP CONSTRAINT nodes_name_key;
CREATE UNIQUE INDEX nodes_name ON nodes (name) WHERE forget_time IS NULL;
ALTER POLICY nodes_add ON nodes WITH CHECK (login = session_user AND forget_time IS NULL);
ALTER POLICY nodes_own ON nodes
  USING (forget_time IS NULL AND (login IS NULL OR login = session_user))
  WITH CHECK (forget_time IS NULL AND login = session_user);
CREATE FUNCTION forget_node(gone integer) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
  UPDATE nodes SET forget_time = now() WHERE node_id = gone AND forget_time IS NULL;
  UPDATE node_devices SET current = false WHERE node_id = gone;
  DELETE FROM wanted WHERE node_id = gone;
$$;
REVOKE ALL ON FUNCTION forget_node FROM PUBLIC;

-- Names of nodes whose evidence does not count while end_time is NULL, also that of
-- forgotten and of later nodes of the name.
CREATE TABLE distrusts (
  distrust_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  node text NOT NULL,
  author text NOT NULL,
  reason text NOT NULL,
  create_time timestamptz NOT NULL DEFAULT now(),
  end_author text NOT NULL DEFAULT '',
  end_time timestamptz,
  login text NOT NULL DEFAULT session_user,
  end_login text NOT NULL DEFAULT ''
);
CREATE UNIQUE INDEX distrusts_active ON distrusts (node) WHERE end_time IS NULL;
