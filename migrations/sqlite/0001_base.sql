-- The base schema. Times are INTEGER microseconds since the epoch, ids are BLOBs of 16 bytes, words are
-- spelled as in the API. Every table is STRICT, so that a value of the wrong type is an error and not a surprise.

-- Which installation the rows belong to: a cloned database must not delete another one's accounts.
CREATE TABLE installation (
    one INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    installation_id TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

-- Outlives the pull secret: neither a generation nor a version is ever used twice, because account names and
-- ETags are made from them.
CREATE TABLE clusters (
    cluster_id TEXT NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL,
    last_generation INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE pull_secrets (
    cluster_id TEXT NOT NULL PRIMARY KEY REFERENCES clusters (cluster_id),
    state TEXT NOT NULL,
    state_since INTEGER NOT NULL,
    served_generation INTEGER,
    served_since INTEGER,
    issuing_generation INTEGER,
    refusal_registry_id TEXT,
    refusal_message TEXT,
    registries TEXT NOT NULL CHECK (json_valid(registries)),
    created_at INTEGER NOT NULL,
    last_rotated_at INTEGER,
    next_rotation_at INTEGER,
    slot_at INTEGER,
    slot_failures INTEGER,
    slot_retry_at INTEGER,
    -- From when the interval counts, and what the cluster's schedule has of its own; empty is as configured.
    interval_from INTEGER,
    schedule_enabled INTEGER CHECK (schedule_enabled IN (0, 1)),
    schedule_next_at INTEGER,
    schedule_cron TEXT,
    schedule_length INTEGER,
    -- Dead accounts could not be replaced: how often, and when it is tried again.
    reissue_failures INTEGER,
    reissue_at INTEGER,
    quarantine_since INTEGER,
    quarantine_retry_at INTEGER,
    due_at INTEGER,
    -- The replica that may run its effects, and how often that changed.
    owner BLOB CHECK (owner IS NULL OR length(owner) = 16),
    epoch INTEGER NOT NULL DEFAULT 0,
    CHECK ((served_generation IS NULL) = (served_since IS NULL)),
    CHECK ((refusal_registry_id IS NULL) = (refusal_message IS NULL)),
    CHECK ((slot_at IS NULL) = (slot_failures IS NULL) AND (slot_at IS NULL) = (slot_retry_at IS NULL)),
    CHECK ((schedule_cron IS NULL) = (schedule_length IS NULL)),
    CHECK ((reissue_failures IS NULL) = (reissue_at IS NULL)),
    CHECK ((quarantine_since IS NULL) = (quarantine_retry_at IS NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX pull_secrets_due ON pull_secrets (due_at, cluster_id) WHERE due_at IS NOT NULL;
CREATE INDEX pull_secrets_owned ON pull_secrets (owner, cluster_id) WHERE owner IS NOT NULL;
CREATE INDEX pull_secrets_by_state ON pull_secrets (state, cluster_id);
CREATE INDEX pull_secrets_refused ON pull_secrets (state, state_since, cluster_id)
    WHERE refusal_registry_id IS NOT NULL;
CREATE INDEX pull_secrets_quarantined ON pull_secrets (quarantine_since, cluster_id)
    WHERE quarantine_since IS NOT NULL;

-- Rows stay for ever: they are the record of names. `position` keeps the order in which the machine made them.
CREATE TABLE accounts (
    position INTEGER NOT NULL PRIMARY KEY,
    account_id BLOB NOT NULL UNIQUE CHECK (length(account_id) = 16),
    cluster_id TEXT NOT NULL REFERENCES clusters (cluster_id),
    registry_id TEXT NOT NULL,
    name TEXT NOT NULL,
    born_generation INTEGER NOT NULL,
    phase TEXT NOT NULL,
    remote_id TEXT,
    username TEXT,
    call TEXT,
    call_token BLOB CHECK (call_token IS NULL OR length(call_token) = 16),
    call_at INTEGER,
    unanswered_create_at INTEGER,
    trouble_since INTEGER,
    trouble_attempts INTEGER NOT NULL,
    trouble_spent INTEGER NOT NULL,
    trouble_counting_since INTEGER,
    trouble_blocked INTEGER NOT NULL CHECK (trouble_blocked IN (0, 1)),
    trouble_last_error TEXT,
    trouble_refused INTEGER NOT NULL CHECK (trouble_refused IN (0, 1)),
    next_attempt_at INTEGER NOT NULL,
    planned_at INTEGER NOT NULL,
    created_at INTEGER,
    verified_at INTEGER,
    last_used_at INTEGER,
    gone_at INTEGER,
    gone_how TEXT,
    -- The last generation that it was part of, when it is verified again, how often it was found dead in a row.
    served_in INTEGER,
    check_at INTEGER,
    dead_looks INTEGER NOT NULL,
    -- Since when it is served although its verification says that it is dead.
    drifted_since INTEGER,
    UNIQUE (registry_id, name),
    CHECK ((call IS NULL) = (call_token IS NULL) AND (call IS NULL) = (call_at IS NULL))
) STRICT;
CREATE INDEX accounts_live ON accounts (cluster_id, position) WHERE phase <> 'gone';
CREATE INDEX accounts_by_generation ON accounts (cluster_id, born_generation, position);
CREATE INDEX accounts_by_username ON accounts (cluster_id, username) WHERE username IS NOT NULL;
CREATE INDEX accounts_open_calls ON accounts (cluster_id) WHERE call_token IS NOT NULL;
CREATE INDEX accounts_stuck ON accounts (trouble_since, account_id)
    WHERE trouble_since IS NOT NULL AND phase NOT IN ('gone', 'residue');
CREATE INDEX accounts_residue ON accounts (trouble_since, account_id) WHERE phase = 'residue';
CREATE INDEX accounts_burnt ON accounts (phase) WHERE phase = 'burnt';
CREATE INDEX accounts_drifted ON accounts (drifted_since, account_id) WHERE drifted_since IS NOT NULL;

-- Ciphertext, in a table of its own so that no state row ever holds it. `gone_at` is set when the account is
-- gone: the secret stays for a while, so that somebody who still presents it can be recognised.
CREATE TABLE account_secrets (
    account_id BLOB NOT NULL PRIMARY KEY REFERENCES accounts (account_id),
    key_id TEXT NOT NULL,
    sealed BLOB NOT NULL,
    gone_at INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX account_secrets_by_key ON account_secrets (key_id, account_id);
CREATE INDEX account_secrets_gone ON account_secrets (gone_at) WHERE gone_at IS NOT NULL;

CREATE TABLE rotations (
    rotation_id BLOB NOT NULL PRIMARY KEY CHECK (length(rotation_id) = 16),
    cluster_id TEXT NOT NULL REFERENCES clusters (cluster_id),
    reason TEXT NOT NULL,
    force_immediate INTEGER NOT NULL CHECK (force_immediate IN (0, 1)),
    slot INTEGER,
    from_generation INTEGER NOT NULL,
    to_generation INTEGER NOT NULL,
    -- Which accounts it replaces.
    scope TEXT NOT NULL CHECK (json_valid(scope)),
    status TEXT NOT NULL,
    running INTEGER NOT NULL CHECK (running IN (0, 1)),
    phase TEXT NOT NULL,
    deadline INTEGER,
    on_deadline TEXT,
    drifted INTEGER NOT NULL CHECK (drifted IN (0, 1)),
    rollback_at INTEGER,
    decided_at INTEGER,
    decided_why TEXT,
    ends_as TEXT,
    old_credentials_revoked INTEGER,
    error_code TEXT,
    error_message TEXT,
    error_registry_id TEXT,
    created_at INTEGER NOT NULL,
    started_at INTEGER,
    promoted_at INTEGER,
    completed_at INTEGER,
    CHECK ((error_code IS NULL) = (error_message IS NULL))
) STRICT;
CREATE UNIQUE INDEX rotations_running ON rotations (cluster_id) WHERE running = 1;
-- A partial rotation may wait for the running one.
CREATE UNIQUE INDEX rotations_waiting ON rotations (cluster_id) WHERE status = 'pending' AND running = 0;
CREATE INDEX rotations_open ON rotations (cluster_id) WHERE status IN ('pending', 'in_progress');
CREATE UNIQUE INDEX rotations_slot ON rotations (cluster_id, slot)
    WHERE status = 'completed' AND slot IS NOT NULL;
CREATE INDEX rotations_by_cluster ON rotations (cluster_id, created_at, rotation_id);
CREATE INDEX rotations_by_time ON rotations (created_at, rotation_id);
CREATE INDEX rotations_by_status ON rotations (status, created_at, rotation_id);
-- The two phases in which a deadline that has passed is a matter for a person.
CREATE INDEX rotations_deadline ON rotations (deadline, rotation_id)
    WHERE phase IN ('dual_credential_period', 'rolling_back');
CREATE INDEX rotations_phase ON rotations (phase) WHERE running = 1;
CREATE INDEX rotations_ended ON rotations (completed_at) WHERE running = 0;

CREATE TABLE consumers (
    position INTEGER NOT NULL PRIMARY KEY,
    cluster_id TEXT NOT NULL REFERENCES pull_secrets (cluster_id) ON DELETE CASCADE,
    source TEXT NOT NULL,
    name TEXT NOT NULL,
    generation INTEGER NOT NULL,
    observed_at INTEGER NOT NULL,
    UNIQUE (cluster_id, source, name)
) STRICT;

-- Append-only, in streams that need no lock of the whole. The hash columns are empty where no audit key is set.
CREATE TABLE audit_events (
    event_id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    stream TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    previous_hash BLOB,
    hash BLOB,
    at INTEGER NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    cluster_id TEXT,
    rotation_id BLOB,
    account TEXT,
    registry_id TEXT,
    generation INTEGER,
    detail TEXT NOT NULL CHECK (json_valid(detail)),
    reason TEXT,
    request_id TEXT,
    UNIQUE (stream, sequence)
) STRICT;
CREATE INDEX audit_by_cluster ON audit_events (cluster_id, event_id) WHERE cluster_id IS NOT NULL;
CREATE INDEX audit_by_actor ON audit_events (actor, event_id);
CREATE INDEX audit_by_action ON audit_events (action, event_id);
CREATE INDEX audit_by_time ON audit_events (at, event_id);

-- The heads. Never pruned. `anchored` is the sequence of the last checkpoint.
CREATE TABLE audit_streams (
    stream TEXT NOT NULL PRIMARY KEY,
    sequence INTEGER NOT NULL,
    hash BLOB,
    anchored INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
CREATE INDEX audit_streams_moved ON audit_streams (stream) WHERE anchored < sequence;

-- At most two per stream: where its rows begin (the last one that was pruned), and its latest anchor; the log has
-- the earlier anchors. The seal is a keyed hash, so that nobody without the key can make rows look pruned.
CREATE TABLE audit_checkpoints (
    stream TEXT NOT NULL,
    pruned INTEGER NOT NULL CHECK (pruned IN (0, 1)),
    sequence INTEGER NOT NULL,
    hash BLOB,
    at INTEGER NOT NULL,
    seal BLOB,
    PRIMARY KEY (stream, pruned)
) STRICT, WITHOUT ROWID;

CREATE TABLE outbox (
    position INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    event_id BLOB NOT NULL UNIQUE CHECK (length(event_id) = 16),
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    at INTEGER NOT NULL,
    data TEXT NOT NULL CHECK (json_valid(data)),
    attempts INTEGER NOT NULL DEFAULT 0,
    next_attempt_at INTEGER NOT NULL
) STRICT;
CREATE INDEX outbox_due ON outbox (next_attempt_at, position);

-- Keyed hashes only, never a body. `status` is empty while the request is running; it is a lease then.
CREATE TABLE idempotency_keys (
    key_hash BLOB NOT NULL,
    caller_hash BLOB NOT NULL,
    body_hash BLOB NOT NULL,
    holder BLOB NOT NULL CHECK (length(holder) = 16),
    lease_until INTEGER NOT NULL,
    status INTEGER,
    location TEXT,
    resource_id TEXT,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (key_hash, caller_hash)
) STRICT, WITHOUT ROWID;
CREATE INDEX idempotency_keys_by_age ON idempotency_keys (created_at);

CREATE TABLE replicas (
    replica_id BLOB NOT NULL PRIMARY KEY CHECK (length(replica_id) = 16),
    counter INTEGER NOT NULL,
    key_ids TEXT NOT NULL CHECK (json_valid(key_ids)),
    seen_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Sweeps: when a registry's accounts are compared with ours, who is at it, what came of the last time.
CREATE TABLE sweeps (
    registry_id TEXT NOT NULL PRIMARY KEY,
    due_at INTEGER NOT NULL,
    holder BLOB CHECK (holder IS NULL OR length(holder) = 16),
    lease_until INTEGER,
    started_at INTEGER,
    finished_at INTEGER,
    listed INTEGER,
    ours INTEGER,
    unknown_accounts INTEGER,
    foreign_accounts INTEGER,
    missing INTEGER,
    failed_at INTEGER,
    last_error TEXT,
    CHECK ((holder IS NULL) = (lease_until IS NULL)),
    CHECK ((started_at IS NULL) = (finished_at IS NULL)),
    CHECK ((failed_at IS NULL) = (last_error IS NULL))
) STRICT, WITHOUT ROWID;

-- Accounts at a registry that are ours and that no row wants. With `decided_at` their deletion goes on until the
-- registry says "gone"; `call_token` is that of the announced call.
CREATE TABLE unknown_accounts (
    registry_id TEXT NOT NULL,
    name TEXT NOT NULL,
    remote_id TEXT,
    cluster_id TEXT,
    generation INTEGER,
    first_seen_at INTEGER NOT NULL,
    decided_at INTEGER,
    call_token BLOB CHECK (call_token IS NULL OR length(call_token) = 16),
    call_at INTEGER,
    attempts INTEGER NOT NULL DEFAULT 0,
    next_attempt_at INTEGER,
    last_error TEXT,
    PRIMARY KEY (registry_id, name),
    CHECK ((call_token IS NULL) = (call_at IS NULL)),
    CHECK ((decided_at IS NULL) = (next_attempt_at IS NULL)),
    CHECK (decided_at IS NOT NULL OR call_token IS NULL)
) STRICT, WITHOUT ROWID;
CREATE INDEX unknown_accounts_due ON unknown_accounts (registry_id, next_attempt_at, name)
    WHERE next_attempt_at IS NOT NULL;

-- Whether any row names an account.
CREATE INDEX accounts_by_name ON accounts (name);

-- What is handed out, by registry.
CREATE INDEX accounts_serving ON accounts (registry_id, name) WHERE phase = 'serving';

-- The last time that the database was found to be older than what it has done.
CREATE TABLE restores (
    one INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    restored_at INTEGER NOT NULL,
    reason TEXT NOT NULL,
    acknowledged_at INTEGER,
    acknowledged_by TEXT,
    CHECK ((acknowledged_at IS NULL) = (acknowledged_by IS NULL))
) STRICT;
CREATE INDEX restores_open ON restores (restored_at) WHERE acknowledged_at IS NULL;

-- The life of the database server that the rows were last written in, where it can be told.
CREATE TABLE timelines (
    one INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    timeline TEXT NOT NULL
) STRICT;

-- Rotations that wait for their turn, until their cluster's next commit says otherwise. `turn_rank`: 0 asked for
-- by somebody, 1 by the schedule. Until `called_until` a place is kept.
CREATE TABLE rotation_turns (
    cluster_id TEXT NOT NULL PRIMARY KEY REFERENCES clusters (cluster_id),
    turn_rank INTEGER NOT NULL,
    since INTEGER NOT NULL,
    called_until INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX rotation_turns_order ON rotation_turns (turn_rank, since, cluster_id);
CREATE INDEX rotation_turns_called ON rotation_turns (called_until) WHERE called_until IS NOT NULL;
CREATE INDEX accounts_deleting ON accounts (next_attempt_at, cluster_id) WHERE phase = 'deleting';

-- When a registry's own record of use is read next, and until when the last reading told.
CREATE TABLE usage_readings (
    registry_id TEXT NOT NULL,
    scope TEXT NOT NULL,
    due_at INTEGER NOT NULL,
    read_until INTEGER,
    PRIMARY KEY (registry_id, scope)
) STRICT, WITHOUT ROWID;

-- Campaigns of rotations. The counters go with the rows of `campaign_clusters`, in the same transactions. Whoever
-- drives one has it until `driven_until`; it is empty once nothing is left to do.
CREATE TABLE campaigns (
    campaign_id BLOB NOT NULL PRIMARY KEY CHECK (length(campaign_id) = 16),
    state TEXT NOT NULL,
    message TEXT,
    reason TEXT NOT NULL,
    selector TEXT NOT NULL,
    selector_value TEXT,
    max_in_flight INTEGER NOT NULL,
    max_per_minute INTEGER NOT NULL,
    canary INTEGER NOT NULL,
    abort_failure_ratio REAL NOT NULL,
    total INTEGER NOT NULL,
    pending INTEGER NOT NULL,
    running INTEGER NOT NULL,
    succeeded INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    skipped INTEGER NOT NULL,
    gathered INTEGER NOT NULL CHECK (gathered IN (0, 1)),
    gathered_to TEXT NOT NULL,
    created_by TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    state_since INTEGER NOT NULL,
    completed_at INTEGER,
    driven_until INTEGER,
    CHECK (total = pending + running + succeeded + failed + skipped)
) STRICT, WITHOUT ROWID;
CREATE INDEX campaigns_driven ON campaigns (driven_until) WHERE driven_until IS NOT NULL;
CREATE INDEX campaigns_ended ON campaigns (completed_at) WHERE completed_at IS NOT NULL;

-- No reference to `clusters`: a campaign may name one that never existed, and says so.
CREATE TABLE campaign_clusters (
    campaign_id BLOB NOT NULL REFERENCES campaigns (campaign_id) ON DELETE CASCADE,
    position INTEGER NOT NULL,
    cluster_id TEXT NOT NULL,
    status TEXT NOT NULL,
    rotation_id BLOB CHECK (rotation_id IS NULL OR length(rotation_id) = 16),
    started_at INTEGER,
    ended_at INTEGER,
    detail TEXT,
    PRIMARY KEY (campaign_id, position),
    UNIQUE (campaign_id, cluster_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX campaign_clusters_by_status ON campaign_clusters (campaign_id, status, position);
CREATE INDEX campaign_clusters_started ON campaign_clusters (campaign_id, started_at)
    WHERE started_at IS NOT NULL;

-- Break-glass. One row per cluster that ever had to do with it; it is never removed, because versions of the trust
-- bundle are never used twice.
CREATE TABLE break_glass (
    cluster_id TEXT NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL,
    bundle_version INTEGER NOT NULL,
    confirmed_version INTEGER NOT NULL,
    quarantine_since INTEGER,
    quarantine_retry_at INTEGER,
    created_at INTEGER NOT NULL,
    due_at INTEGER,
    -- The replica that may make its calls, and how often that changed.
    owner BLOB CHECK (owner IS NULL OR length(owner) = 16),
    epoch INTEGER NOT NULL DEFAULT 0,
    CHECK ((quarantine_since IS NULL) = (quarantine_retry_at IS NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX break_glass_owned ON break_glass (owner, cluster_id) WHERE owner IS NOT NULL;
CREATE INDEX break_glass_quarantined ON break_glass (quarantine_since, cluster_id)
    WHERE quarantine_since IS NOT NULL;
CREATE INDEX break_glass_due ON break_glass (due_at, cluster_id) WHERE due_at IS NOT NULL;

-- `created_at` is empty for records from before it was written down.
CREATE TABLE break_glass_credentials (
    credential_id BLOB NOT NULL PRIMARY KEY CHECK (length(credential_id) = 16),
    cluster_id TEXT NOT NULL REFERENCES break_glass (cluster_id),
    username TEXT NOT NULL,
    signer TEXT NOT NULL,
    control INTEGER NOT NULL CHECK (control IN (0, 1)),
    state TEXT NOT NULL,
    step TEXT,
    revocation_id BLOB CHECK (revocation_id IS NULL OR length(revocation_id) = 16),
    state_since INTEGER NOT NULL,
    message TEXT NOT NULL,
    requested_by TEXT NOT NULL,
    reason TEXT,
    decided_by TEXT,
    signing_request TEXT,
    expires_at INTEGER NOT NULL,
    not_after INTEGER,
    signed_at INTEGER,
    endpoints TEXT NOT NULL CHECK (json_valid(endpoints)),
    created_at INTEGER,
    accepted_at INTEGER,
    issued_at INTEGER,
    revoked_at INTEGER,
    call TEXT,
    call_token BLOB CHECK (call_token IS NULL OR length(call_token) = 16),
    call_at INTEGER,
    trouble_since INTEGER,
    trouble_attempts INTEGER NOT NULL,
    trouble_spent INTEGER NOT NULL,
    trouble_counting_since INTEGER,
    trouble_blocked INTEGER NOT NULL CHECK (trouble_blocked IN (0, 1)),
    trouble_last_error TEXT,
    trouble_refused INTEGER NOT NULL CHECK (trouble_refused IN (0, 1)),
    next_attempt_at INTEGER NOT NULL,
    CHECK ((not_after IS NULL) = (signed_at IS NULL)),
    CHECK ((step IS NOT NULL) = (state = 'issuing')),
    CHECK ((call IS NULL) = (call_token IS NULL) AND (call IS NULL) = (call_at IS NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX break_glass_credentials_by_cluster ON break_glass_credentials (cluster_id, credential_id);
CREATE INDEX break_glass_credentials_working ON break_glass_credentials (cluster_id, credential_id)
    WHERE state NOT IN ('revoked', 'denied', 'failed', 'expired') OR call_token IS NOT NULL;
CREATE UNIQUE INDEX break_glass_credentials_names ON break_glass_credentials (cluster_id, username)
    WHERE state NOT IN ('revoked', 'denied', 'failed', 'expired');
CREATE INDEX break_glass_credentials_open_calls ON break_glass_credentials (cluster_id)
    WHERE call_token IS NOT NULL;
CREATE INDEX break_glass_credentials_by_state
    ON break_glass_credentials (state, state_since, credential_id);
CREATE INDEX break_glass_credentials_stuck ON break_glass_credentials (trouble_since, credential_id)
    WHERE trouble_since IS NOT NULL AND state NOT IN ('revoked', 'denied', 'failed', 'expired');

CREATE TABLE break_glass_revocations (
    revocation_id BLOB NOT NULL PRIMARY KEY CHECK (length(revocation_id) = 16),
    cluster_id TEXT NOT NULL REFERENCES break_glass (cluster_id),
    scope TEXT NOT NULL,
    state TEXT NOT NULL,
    state_since INTEGER NOT NULL,
    signer TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    progress TEXT,
    cut_off INTEGER,
    bundle_version INTEGER NOT NULL,
    endpoints TEXT NOT NULL CHECK (json_valid(endpoints)),
    requested_by TEXT NOT NULL,
    reason TEXT,
    created_at INTEGER NOT NULL,
    ended_at INTEGER,
    call TEXT,
    call_token BLOB CHECK (call_token IS NULL OR length(call_token) = 16),
    call_at INTEGER,
    trouble_since INTEGER,
    trouble_attempts INTEGER NOT NULL,
    trouble_spent INTEGER NOT NULL,
    trouble_counting_since INTEGER,
    trouble_blocked INTEGER NOT NULL CHECK (trouble_blocked IN (0, 1)),
    trouble_last_error TEXT,
    trouble_refused INTEGER NOT NULL CHECK (trouble_refused IN (0, 1)),
    next_attempt_at INTEGER NOT NULL,
    CHECK ((call IS NULL) = (call_token IS NULL) AND (call IS NULL) = (call_at IS NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX break_glass_revocations_by_cluster
    ON break_glass_revocations (cluster_id, created_at, revocation_id);
CREATE INDEX break_glass_revocations_working ON break_glass_revocations (cluster_id)
    WHERE ended_at IS NULL OR call_token IS NOT NULL;
CREATE UNIQUE INDEX break_glass_revocations_running ON break_glass_revocations (cluster_id)
    WHERE ended_at IS NULL AND scope = 'all';
CREATE INDEX break_glass_revocations_open_calls ON break_glass_revocations (cluster_id)
    WHERE call_token IS NOT NULL;
CREATE INDEX break_glass_revocations_stuck ON break_glass_revocations (trouble_since, revocation_id)
    WHERE trouble_since IS NOT NULL AND ended_at IS NULL;
CREATE INDEX break_glass_revocations_ended ON break_glass_revocations (ended_at)
    WHERE ended_at IS NOT NULL;

-- Authorities that no credential owns.
CREATE TABLE break_glass_authorities (
    authority_id BLOB NOT NULL PRIMARY KEY CHECK (length(authority_id) = 16),
    cluster_id TEXT NOT NULL REFERENCES break_glass (cluster_id),
    kind TEXT NOT NULL,
    made_at INTEGER,
    not_after INTEGER,
    call TEXT,
    call_token BLOB CHECK (call_token IS NULL OR length(call_token) = 16),
    call_at INTEGER,
    trouble_since INTEGER,
    trouble_attempts INTEGER NOT NULL,
    trouble_spent INTEGER NOT NULL,
    trouble_counting_since INTEGER,
    trouble_blocked INTEGER NOT NULL CHECK (trouble_blocked IN (0, 1)),
    trouble_last_error TEXT,
    trouble_refused INTEGER NOT NULL CHECK (trouble_refused IN (0, 1)),
    next_attempt_at INTEGER NOT NULL,
    CHECK ((call IS NULL) = (call_token IS NULL) AND (call IS NULL) = (call_at IS NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX break_glass_authorities_by_cluster
    ON break_glass_authorities (cluster_id, authority_id);

-- Public texts (PEM) of a credential or an authority.
CREATE TABLE break_glass_certificates (
    owner BLOB NOT NULL CHECK (length(owner) = 16),
    kind TEXT NOT NULL,
    pem TEXT NOT NULL,
    PRIMARY KEY (owner, kind)
) STRICT, WITHOUT ROWID;

-- Ciphertext, in a table of its own so that no state row ever holds it. Gone as soon as nothing needs it.
CREATE TABLE break_glass_keys (
    owner BLOB NOT NULL CHECK (length(owner) = 16),
    purpose TEXT NOT NULL,
    key_id TEXT NOT NULL,
    sealed BLOB NOT NULL,
    PRIMARY KEY (owner, purpose)
) STRICT, WITHOUT ROWID;
CREATE INDEX break_glass_keys_by_key ON break_glass_keys (key_id, owner);
