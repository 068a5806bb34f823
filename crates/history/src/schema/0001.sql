-- Version 1. Times are Unix milliseconds, days are `YYYY-MM-DD` in UTC, durations are milliseconds.
-- People's own SQL reads the views: `v1_…` keeps its columns, tables may change.
-- Column types and `WITHOUT ROWID` are SQLite's; the queries of this crate use what SQLite and PostgreSQL have in common.

CREATE TABLE run (
  id            INTEGER PRIMARY KEY,
  uid           TEXT NOT NULL UNIQUE,
  source        TEXT NOT NULL,
  cluster       TEXT NOT NULL,
  namespace     TEXT NOT NULL,
  name          TEXT NOT NULL,
  kind          TEXT NOT NULL,
  team          TEXT NOT NULL,
  ranks         INTEGER NOT NULL,
  accelerators  INTEGER,
  created       INTEGER NOT NULL,
  began         INTEGER,
  ended         INTEGER,
  outcome       TEXT,
  cause         TEXT,
  sentence      TEXT,
  attempts      INTEGER NOT NULL DEFAULT 0,
  last_step     INTEGER,
  phase         TEXT,
  phase_since   INTEGER,
  phase_attempt INTEGER,
  seen          INTEGER NOT NULL,
  next_seq      INTEGER NOT NULL DEFAULT 0,
  complete      INTEGER NOT NULL DEFAULT 0,
  detail        INTEGER NOT NULL DEFAULT 1,
  excerpts      INTEGER NOT NULL DEFAULT 1
);
CREATE INDEX run_created ON run (created);
CREATE INDEX run_ended ON run (ended);

CREATE TABLE attempt (
  run         INTEGER NOT NULL,
  n           INTEGER NOT NULL,
  began       INTEGER,
  ended       INTEGER,
  pod         TEXT,
  message     TEXT,
  step        INTEGER,
  account     TEXT,
  label       TEXT,
  fingerprint TEXT,
  confidence  TEXT,
  sentence    TEXT,
  rank        INTEGER,
  node        TEXT,
  verdict     TEXT,
  PRIMARY KEY (run, n)
) WITHOUT ROWID;
CREATE INDEX attempt_ended ON attempt (ended);
CREATE INDEX attempt_fingerprint ON attempt (fingerprint, ended);

CREATE TABLE span (
  run     INTEGER NOT NULL,
  seq     INTEGER NOT NULL,
  part    INTEGER NOT NULL,
  began   INTEGER NOT NULL,
  ended   INTEGER NOT NULL,
  attempt INTEGER,
  phase   TEXT NOT NULL,
  ms      INTEGER NOT NULL,
  exact   INTEGER NOT NULL,
  PRIMARY KEY (run, seq, part)
) WITHOUT ROWID;

CREATE TABLE seat (
  run        INTEGER NOT NULL,
  seq        INTEGER NOT NULL,
  at         INTEGER NOT NULL,
  attempt    INTEGER NOT NULL,
  slot       TEXT NOT NULL,
  first_rank INTEGER,
  ranks      INTEGER NOT NULL,
  node       TEXT NOT NULL,
  PRIMARY KEY (run, seq)
) WITHOUT ROWID;

CREATE TABLE pod (
  run     INTEGER NOT NULL,
  seq     INTEGER NOT NULL,
  at      INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  slot    TEXT NOT NULL,
  state   TEXT NOT NULL,
  PRIMARY KEY (run, seq)
) WITHOUT ROWID;

CREATE TABLE event (
  run      INTEGER NOT NULL,
  seq      INTEGER NOT NULL,
  at       INTEGER NOT NULL,
  kind     TEXT NOT NULL,
  attempt  INTEGER,
  sentence TEXT NOT NULL,
  PRIMARY KEY (run, seq)
) WITHOUT ROWID;

CREATE TABLE checkpoint (
  run      INTEGER NOT NULL,
  seq      INTEGER NOT NULL,
  at       INTEGER NOT NULL,
  attempt  INTEGER,
  step     INTEGER NOT NULL,
  bytes    INTEGER NOT NULL,
  stall_ms INTEGER,
  write_ms INTEGER,
  PRIMARY KEY (run, seq)
) WITHOUT ROWID;

CREATE TABLE excerpt (
  run     INTEGER NOT NULL,
  seq     INTEGER NOT NULL,
  part    INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  rank    INTEGER,
  file    TEXT NOT NULL,
  line    INTEGER NOT NULL,
  text    TEXT NOT NULL,
  PRIMARY KEY (run, seq, part)
) WITHOUT ROWID;

CREATE TABLE node_fact (
  run     INTEGER NOT NULL,
  seq     INTEGER NOT NULL,
  part    INTEGER NOT NULL,
  at      INTEGER NOT NULL,
  node    TEXT NOT NULL,
  kind    TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  detail  TEXT NOT NULL,
  PRIMARY KEY (run, seq, part)
) WITHOUT ROWID;
CREATE INDEX node_fact_node ON node_fact (node, at);

CREATE TABLE gap (
  run   INTEGER NOT NULL,
  seq   INTEGER NOT NULL,
  began INTEGER NOT NULL,
  ended INTEGER NOT NULL,
  PRIMARY KEY (run, seq)
) WITHOUT ROWID;

CREATE TABLE run_day (
  run    INTEGER NOT NULL,
  day    TEXT NOT NULL,
  phase  TEXT NOT NULL,
  ms     INTEGER NOT NULL,
  gpu_ms INTEGER NOT NULL,
  PRIMARY KEY (run, day, phase)
) WITHOUT ROWID;

CREATE TABLE phase_day (
  day       TEXT NOT NULL,
  namespace TEXT NOT NULL,
  team      TEXT NOT NULL,
  phase     TEXT NOT NULL,
  ms        INTEGER NOT NULL,
  gpu_ms    INTEGER NOT NULL,
  PRIMARY KEY (day, namespace, team, phase)
) WITHOUT ROWID;

CREATE VIEW v1_run AS
  SELECT uid, cluster, namespace, name, kind, team, ranks, accelerators, created, began, ended, outcome, cause, sentence,
         attempts, last_step, phase, phase_since, seen
  FROM run;

CREATE VIEW v1_attempt AS
  SELECT run.uid AS run, run.namespace, run.name, run.kind, run.team, attempt.n AS attempt, attempt.began, attempt.ended,
         attempt.pod, attempt.message, attempt.step, attempt.account, attempt.label, attempt.fingerprint, attempt.confidence,
         attempt.sentence, attempt.rank, attempt.node, attempt.verdict
  FROM attempt JOIN run ON run.id = attempt.run;

CREATE VIEW v1_span AS
  SELECT run.uid AS run, run.namespace, run.name, run.team, span.attempt, span.phase, span.began, span.ended, span.ms, span.exact
  FROM span JOIN run ON run.id = span.run;

CREATE VIEW v1_node_fact AS
  SELECT node_fact.node, node_fact.at, node_fact.kind, run.uid AS run, run.namespace, run.name, run.team, node_fact.attempt,
         node_fact.detail
  FROM node_fact JOIN run ON run.id = node_fact.run;

CREATE VIEW v1_phase_day AS
  SELECT day, namespace, team, phase, ms, gpu_ms FROM phase_day;
