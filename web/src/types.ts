/** The documents that the page gets, as the API defines them. What is not known is absent. */

/** How a state looks. Its place in the list is its number in strips. */
export interface StateLook {
  name: string;
  word: string;
  sign: string;
  light: string;
  dark: string;
}

export interface About {
  build: { version: string };
  mode: string;
  readOnly: boolean;
  features: string[];
  now: number;
  root?: string;
  palette?: { states: StateLook[] };
}

export type Spent = Record<string, number>;

/** One job in the list: its last run. */
export interface Row {
  id: string;
  job: string;
  namespace: string;
  kind: string;
  state: string;
  ranks?: number | null;
  accelerators?: number | null;
  attempt?: number | null;
  attemptsMax?: number | null;
  spent?: Spent | null;
  step?: number | null;
  steps?: number | null;
  /** Cells as pairs: the number of the state, and milliseconds. */
  day?: [number, number][] | null;
  trainedRatio?: number | null;
  line?: string | null;
  lineKind?: "waiting" | "verdict" | "failure" | "stalled" | null;
  startedAt?: string | null;
  endedAt?: string | null;
  live?: boolean;
}

export interface Jobs {
  rows: Row[];
  counts: Record<string, number>;
  total: number | { atLeast: number };
  cursor?: string | null;
  unreadable?: { run: string; why: string }[];
}

export interface Finding {
  code: string;
  severity: string;
  path?: string;
  message: string;
  hint?: string;
}

export interface Explain {
  standing?: string;
  cause?: string;
  sentence?: string;
  evidence?: { from: string; says: string }[];
  next?: string;
}

/** What the page reads of `trainyard status --format json`. */
export interface Status {
  stalled?: string | null;
  budget?: Record<string, { spent: number; limit?: number | null }>;
  progress?: { step?: number; totalSteps?: number; lastStepAt?: string; loss?: string; stepSeconds?: string } | null;
  folder?: string;
}

export interface Job {
  run: string;
  row: Row;
  status?: Status | null;
  runs?: { id: string; startedAt?: string; outcome?: string | null }[];
  explain?: Explain | null;
  warnings?: Finding[];
  notes?: string[];
}

export interface Mark {
  t: number;
  kind: "failed" | "attempt" | "swapped" | "saved";
  row?: number;
  rank?: number;
  n?: number;
}

export interface Label {
  from?: number;
  to?: number;
  pod: string;
  pods: number;
  node?: string;
}

export interface Strip {
  run: string;
  from: number;
  to: number;
  columns: number;
  bucketMillis: number;
  states: string[];
  rows: number[][];
  of: number[];
  labels: Label[];
  job: number[];
  marks: Mark[];
  marksLeftOut: number;
  exact: boolean;
  mixed: number;
}

export interface Ledger {
  wall: number;
  phases: { phase: string; millis: number; gpuMillis?: number }[];
  notObserved?: number;
  ettr: { all?: number; sinceSeated?: number; lastHour?: number; lastDay?: number };
  losses: { phase: string; attempt?: number; millis: number; gpuHours?: number; why: string; wouldWin?: { change: string; points: number } }[];
}

export interface Verdict {
  attempt: number;
  at?: number | string;
  label: string;
  sentence: string;
  account: string;
  retry: string;
  confidence: string;
  rank?: number;
  node?: string;
  ranks?: number[];
  nodes?: string[];
  evidence?: { file: string; line: number; text: string; rank?: number }[];
  refutedBy?: string;
  next?: string;
}

export interface Verdicts {
  verdicts: Verdict[];
}

export interface Seats {
  levels: string[];
  nodes: {
    node: string;
    path: string[];
    state: "used" | "empty" | "bad" | "missing";
    why?: string;
    accelerators?: { total?: number; free?: number };
    blamed: number;
    pods: { slot: string; firstRank?: number; ranks: number; state?: string }[];
  }[];
  nodesLeftOut: number;
  swaps: { at: number; slot: string; attempt: number; from: string; to: string }[];
}

export interface Bucket {
  t: number;
  min: number | null;
  max: number | null;
  last: number | null;
  n: number;
  notFinite: number;
}

export interface OneSeries {
  name: string;
  unit?: string;
  bucketMillis: number;
  tooLate?: number;
  buckets: Bucket[];
}

export interface SeriesDoc {
  series: OneSeries[];
}

export type Severity = "error" | "warning" | "info";

export interface LogLine {
  offset: number;
  at?: number;
  rank?: number;
  text: string;
  severity: Severity;
  cut?: boolean;
}

export interface LogPod {
  pod: string;
  container: string;
  firstRank?: number | null;
  ranks?: number | null;
  attempt: number;
  size: number;
}

export interface Logs {
  run: string;
  attempt: number;
  pod: string;
  container: string;
  rank?: number | null;
  lines: LogLine[];
  first: number;
  last: number;
  size: number;
  atEnd: boolean;
  kept?: [number, number][];
  pods?: LogPod[];
  hits?: number | { atLeast: number };
}

export interface LogGroup {
  template: string;
  example: string;
  count: number;
  ranks: string;
  firstAt?: number;
  lastAt?: number;
  firstRank?: number;
  severity: Severity;
  role: "cause" | "symptom" | "wrapper" | "progress" | "other";
  pod?: string;
  offset?: number;
}

export interface Folded {
  run: string;
  attempt: number;
  firstFailure?: { rank?: number; at?: number; text: string; before?: string[]; pod?: string; offset?: number };
  groups: LogGroup[];
  leftOut: number;
  unread?: { pod: string; why: string }[];
  bytes?: number;
  bytesLeftOut?: number;
}

export interface Events {
  events: { at: number | string; kind: string; rank?: number; slot?: string | { role: string; index: number }; sentence: string; attempt?: number }[];
  cursor?: string | null;
  notes?: string[];
}

export interface Checkpoints {
  checkpoints: { step: number; at: number | string; bytes?: number; stallMillis?: number; writeMillis?: number; attempt?: number }[];
  atRisk?: { steps: number; millis: number };
}

export interface Spec {
  spec: unknown;
}

export interface Failures {
  notes?: string[];
  rows: {
    fingerprint: string;
    label: string;
    place?: string;
    times: number;
    jobs: number;
    nodes: { node: string; times: number }[];
    firstAt?: string | number;
    lastAt?: string | number;
    account?: string;
    gpuHours?: number;
    newest?: { run: string; job: string; namespace: string; attempt: number; sentence: string };
  }[];
}

export interface Problem {
  code: string;
  message: string;
  hint?: string;
}

/** A domain of the topology. */
export interface Area {
  level: string;
  name: string | null;
  nodes: number;
  accelerators: Tally;
  areas?: Area[];
  hosts?: Host[];
}

/** Accelerators, each counted once. */
export interface Tally {
  total: number;
  free: number;
  held: number;
  foreign: number;
  out: number;
}

export interface Host {
  name: string;
  state?: string | null;
  preflight?: { outcome?: string; why?: string };
  probationUntil?: string;
  accelerators: Tally;
  holders: { gang: string; accelerators: number }[];
}

export interface ClusterNodes {
  cluster: Area;
  warnings?: string[];
}

export interface Queue {
  rows: { id: string; job: string; namespace: string; createdAt?: string; pods: number; accelerators?: number; reason?: string; queue?: string }[];
  rowsLeftOut?: number;
  unreadable?: { run: string; why: string }[];
}
