//! The dashboards: the fleet, and one job.

/// One dashboard.
pub(super) struct Board {
    /// Its file, and its address in Grafana.
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) description: &'static str,
    /// How far it looks back.
    pub(super) since: &'static str,
    pub(super) variables: Vec<Variable>,
    /// From left to right, then down.
    pub(super) panels: Vec<Panel>,
}

/// What the reader chooses.
pub(super) struct Variable {
    pub(super) name: &'static str,
    pub(super) label: &'static str,
    pub(super) query: &'static str,
    /// Whether several, and all, can be chosen.
    pub(super) all: bool,
}

/// One picture.
pub(super) struct Panel {
    pub(super) title: &'static str,
    pub(super) description: &'static str,
    pub(super) form: Form,
    pub(super) unit: &'static str,
    /// Of the 24 parts of a row.
    pub(super) width: i64,
    pub(super) queries: Vec<Query>,
}

/// How numbers are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// As they are now.
    Values,
    /// As they are now, as bars.
    Bars,
    /// Over time.
    Lines,
    /// Over time, one on the other.
    Stack,
}

/// What is drawn, and its name.
pub(super) struct Query {
    pub(super) legend: &'static str,
    pub(super) expression: String,
}

/// The labels that name a job.
const JOB: &str = "kind, job_namespace, job_name";
/// Time in these phases holds no accelerator.
const WITHOUT: &str = "phase!~\"queued|placing|suspended\"";
/// What every replica has and only the leader knows.
const LEADS: &str = "and on (instance) trainyard_leader == 1";

pub(super) fn boards() -> Vec<Board> {
    vec![fleet(), job()]
}

fn panel(
    title: &'static str,
    description: &'static str,
    (form, width): (Form, i64),
    unit: &'static str,
    queries: impl IntoIterator<Item = (&'static str, String)>,
) -> Panel {
    let queries = queries
        .into_iter()
        .map(|(legend, expression)| Query { legend, expression });
    Panel {
        title,
        description,
        form,
        unit,
        width,
        queries: queries.collect(),
    }
}

fn fleet() -> Board {
    let mut panels = time_of_fleet();
    panels.extend(jobs_of_fleet());
    panels.extend(operator());
    Board {
        id: "trainyard-fleet",
        title: "Trainyard: fleet",
        description: "Where accelerator time goes, what waits, what fails, and whether the operator works",
        since: "now-6h",
        variables: vec![Variable {
            name: "namespace",
            label: "Namespace",
            query: "label_values(trainyard_job_info, job_namespace)",
            all: true,
        }],
        panels,
    }
}

/// The selector of the chosen namespaces.
const IN: &str = "job_namespace=~\"$namespace\"";

fn time_of_fleet() -> Vec<Panel> {
    let accelerators = format!("max by ({JOB}) (trainyard_job_accelerators{{{IN}}})");
    let by_team = format!(
        "sum by (team, phase) (sum by ({JOB}, phase) (increase(trainyard_job_phase_seconds_total{{{IN}}}[$__range])) \
         * on ({JOB}) group_left (team) max by ({JOB}, team) (trainyard_job_info{{{IN}}}) * on ({JOB}) group_left () {accelerators}) / 3600"
    );
    let trained = |window: &str| {
        format!(
            "sum(rate(trainyard_gpu_seconds_total{{{IN}, phase=\"training\"}}[{window}])) / sum(rate(trainyard_gpu_seconds_total{{{IN}, {WITHOUT}}}[{window}]))"
        )
    };
    vec![
        panel(
            "Accelerator time that trained",
            "Share of the accelerator time of all jobs that trained (ETTR, weighted by accelerators), over the chosen time; time in the queue does not count",
            (Form::Values, 6),
            "percentunit",
            [("trained", trained("$__range"))],
        ),
        panel(
            "Accelerators by phase",
            "What the accelerators of the jobs do now",
            (Form::Values, 18),
            "short",
            [(
                "{{phase}}",
                format!(
                    "sum by (phase) (max by ({JOB}, phase) (trainyard_job_phase{{{IN}}}) * on ({JOB}) group_left () {accelerators})"
                ),
            )],
        ),
        panel(
            "Accelerator time by phase",
            "Accelerator seconds per second, which is the mean number of accelerators in each phase",
            (Form::Stack, 12),
            "short",
            [(
                "{{phase}}",
                format!(
                    "sum by (phase) (rate(trainyard_gpu_seconds_total{{{IN}}}[$__rate_interval]))"
                ),
            )],
        ),
        panel(
            "Share that trained",
            "The same share over time",
            (Form::Lines, 12),
            "percentunit",
            [("trained", trained("$__rate_interval"))],
        ),
        panel(
            "Accelerator hours by team and phase",
            "Over the chosen time; `team` is the label trainyard.dev/team of the job, else its namespace",
            (Form::Bars, 12),
            "h",
            [("{{team}}: {{phase}}", by_team)],
        ),
        panel(
            "Jobs that train least",
            "Share of its wall time that each job trained, since it began; the ten lowest",
            (Form::Bars, 12),
            "percentunit",
            [(
                "{{job_namespace}}/{{job_name}}",
                format!(
                    "bottomk(10, max by ({JOB}) (trainyard_job_trained_ratio{{{IN}, window=\"all\"}}))"
                ),
            )],
        ),
    ]
}

fn jobs_of_fleet() -> Vec<Panel> {
    vec![
        panel(
            "Jobs by phase",
            "Jobs that have not ended",
            (Form::Stack, 8),
            "short",
            [(
                "{{phase}}",
                format!("count by (phase) (max by ({JOB}, phase) (trainyard_job_phase{{{IN}}}))"),
            )],
        ),
        panel(
            "Queue",
            "Gangs that wait for nodes",
            (Form::Lines, 8),
            "short",
            [("gangs", format!("max(trainyard_gangs_waiting {LEADS})"))],
        ),
        panel(
            "Longest in the queue",
            "Time that each job has waited since it began; the ten longest",
            (Form::Bars, 8),
            "s",
            [(
                "{{job_namespace}}/{{job_name}}",
                format!(
                    "topk(10, sum by ({JOB}) (max by ({JOB}, phase) (trainyard_job_phase_seconds_total{{{IN}, phase=~\"queued|placing\"}})))"
                ),
            )],
        ),
        panel(
            "Failed attempts",
            "By the account of the failure budget, of all jobs",
            (Form::Stack, 8),
            "short",
            [(
                "{{account}}",
                "sum by (account) (increase(trainyard_attempts_total[$__rate_interval]))"
                    .to_owned(),
            )],
        ),
        panel(
            "Jobs that ended",
            "By how they ended",
            (Form::Stack, 8),
            "short",
            [
                (
                    "succeeded",
                    format!(
                        "sum(increase(training_operator_jobs_successful_total{{{IN}}}[$__rate_interval]))"
                    ),
                ),
                (
                    "failed",
                    format!(
                        "sum(increase(training_operator_jobs_failed_total{{{IN}}}[$__rate_interval]))"
                    ),
                ),
            ],
        ),
        panel(
            "Nodes",
            "Nodes that are kept from everybody, and nodes whose last trial failed",
            (Form::Lines, 8),
            "short",
            [
                (
                    "on probation",
                    "max(trainyard_nodes_on_probation)".to_owned(),
                ),
                (
                    "failed their preflight",
                    "count(max by (node) (trainyard_node_preflight{outcome=\"fail\"}))".to_owned(),
                ),
            ],
        ),
    ]
}

fn operator() -> Vec<Panel> {
    let jobs = |name: &str| format!("count(max by (kind, job_namespace, exported_job) ({name}))");
    vec![
        panel(
            "Leaders",
            "One is right",
            (Form::Values, 4),
            "short",
            [(
                "{{namespace}}",
                "sum by (namespace) (trainyard_leader)".to_owned(),
            )],
        ),
        panel(
            "Jobs not processed",
            "Jobs that are set aside, jobs whose status cannot be read, and jobs without metrics of their own",
            (Form::Values, 12),
            "short",
            [
                ("set aside", jobs("trainyard_job_set_aside")),
                ("unreadable", jobs("trainyard_job_status_unreadable")),
                (
                    "without metrics",
                    format!("max(trainyard_metrics_jobs_left_out {LEADS})"),
                ),
            ],
        ),
        panel(
            "In the cache",
            "Jobs and pods that the operator sees",
            (Form::Values, 8),
            "short",
            [
                ("jobs", "max(trainyard_jobs)".to_owned()),
                ("pods", "max(trainyard_pods)".to_owned()),
            ],
        ),
        panel(
            "Age of watches",
            "Time since the last sign of life of each watch; above 5 minutes it is stale",
            (Form::Lines, 8),
            "s",
            [(
                "{{feed}}",
                "max by (feed) (trainyard_watch_age_seconds)".to_owned(),
            )],
        ),
        panel(
            "Jobs that are due",
            "The work queue of the leader",
            (Form::Lines, 8),
            "short",
            [("jobs", format!("max(trainyard_queue_length {LEADS})"))],
        ),
        panel(
            "Passes",
            "Passes over jobs per second, by outcome",
            (Form::Stack, 8),
            "ops",
            [(
                "{{outcome}}",
                "sum by (outcome) (rate(trainyard_passes_total[$__rate_interval]))".to_owned(),
            )],
        ),
        panel(
            "Time of a pass",
            "99 of 100 passes, and 99 of 100 looks at the wait queue, take less",
            (Form::Lines, 8),
            "s",
            [
                (
                    "pass",
                    "histogram_quantile(0.99, sum by (le) (rate(trainyard_pass_seconds_bucket[$__rate_interval])))".to_owned(),
                ),
                (
                    "wait queue",
                    "histogram_quantile(0.99, sum by (le) (rate(trainyard_placement_seconds_bucket[$__rate_interval])))".to_owned(),
                ),
            ],
        ),
        panel(
            "Calls to the API server",
            "Per second, by answer; 0 is no answer",
            (Form::Stack, 8),
            "reqps",
            [(
                "{{code}}",
                "sum by (code) (rate(trainyard_api_calls_total[$__rate_interval]))".to_owned(),
            )],
        ),
        panel(
            "Refused",
            "Requests that the servers of the operator refused, objects that it could not create, and objects that it could not decode",
            (Form::Lines, 8),
            "short",
            [
                (
                    "{{server}}: {{reason}}",
                    "sum by (server, reason) (increase(trainyard_server_requests_refused_total[$__rate_interval]))".to_owned(),
                ),
                (
                    "objects: {{cause}}",
                    "sum by (cause) (increase(trainyard_refusals_total[$__rate_interval]))".to_owned(),
                ),
                (
                    "not decoded: {{feed}}",
                    "sum by (feed) (increase(trainyard_undecodable_objects_total[$__rate_interval]))".to_owned(),
                ),
            ],
        ),
    ]
}

/// The selector of the chosen job.
const THIS: &str = "job_namespace=~\"$namespace\", job_name=~\"$job\"";

fn job() -> Board {
    let mut panels = job_now();
    panels.extend(job_over_time());
    Board {
        id: "trainyard-job",
        title: "Trainyard: job",
        description: "What one job does, where its time went, how far it is, and what a failure would cost",
        since: "now-24h",
        variables: vec![
            Variable {
                name: "namespace",
                label: "Namespace",
                query: "label_values(trainyard_job_info, job_namespace)",
                all: false,
            },
            Variable {
                name: "job",
                label: "Job",
                query: "label_values(trainyard_job_info{job_namespace=~\"$namespace\"}, job_name)",
                all: false,
            },
        ],
        panels,
    }
}

fn job_now() -> Vec<Panel> {
    let largest = |name: &str| format!("max by ({JOB}) ({name}{{{THIS}}})");
    let since = |name: &str| format!("min by ({JOB}) (time() - {name}{{{THIS}}})");
    vec![
        panel(
            "Phase",
            "The phase that the job is in; nothing once it has ended",
            (Form::Values, 6),
            "none",
            [(
                "{{phase}}",
                format!("max by (phase) (trainyard_job_phase{{{THIS}}})"),
            )],
        ),
        panel(
            "Done",
            "The last step as a share of the step at which the job will be done, where it reports that",
            (Form::Values, 6),
            "percentunit",
            [(
                "done",
                format!(
                    "{} / {}",
                    largest("trainyard_job_step"),
                    largest("trainyard_job_steps_goal")
                ),
            )],
        ),
        panel(
            "Wall time spent training",
            "ETTR: the share of its time that the job trained, since it began",
            (Form::Values, 6),
            "percentunit",
            [(
                "trained",
                format!("max by ({JOB}) (trainyard_job_trained_ratio{{{THIS}, window=\"all\"}})"),
            )],
        ),
        panel(
            "Size and attempt",
            "What its pods ask for, and how often it began",
            (Form::Values, 6),
            "none",
            [
                ("accelerators", largest("trainyard_job_accelerators")),
                ("attempt", largest("trainyard_job_attempt")),
            ],
        ),
        panel(
            "Since the last step",
            "A job is stalled after 10 times its usual interval, and at least 30 s",
            (Form::Values, 6),
            "s",
            [("ago", since("trainyard_job_last_step_timestamp_seconds"))],
        ),
        panel(
            "Age of the checkpoint",
            "Since the newest complete checkpoint was saved, by the clocks of the ranks",
            (Form::Values, 6),
            "s",
            [("ago", since("trainyard_checkpoint_timestamp_seconds"))],
        ),
        panel(
            "At risk",
            "Steps that a failure would repeat",
            (Form::Values, 6),
            "none",
            [(
                "steps",
                format!(
                    "{} - {}",
                    largest("trainyard_job_step"),
                    largest("trainyard_checkpoint_step")
                ),
            )],
        ),
        panel(
            "Failures",
            "By the account of the failure budget, since the job began",
            (Form::Values, 6),
            "none",
            [(
                "{{account}}",
                format!("max by (account) (trainyard_job_restarts_total{{{THIS}}})"),
            )],
        ),
    ]
}

fn job_over_time() -> Vec<Panel> {
    let speed = format!("deriv(trainyard_job_step{{{THIS}}}[5m])");
    let largest = |name: &str| format!("max by ({JOB}) ({name}{{{THIS}}})");
    vec![
        panel(
            "Time by phase",
            "Share of the time in each phase. Time that the ledger moves to another phase later, as for a stall that is noticed late, keeps the first one from growing until it has caught up",
            (Form::Stack, 12),
            "percentunit",
            [(
                "{{phase}}",
                format!(
                    "sum by (phase) (rate(trainyard_job_phase_seconds_total{{{THIS}}}[$__rate_interval]))"
                ),
            )],
        ),
        panel(
            "Time by phase in all",
            "Since the job began",
            (Form::Bars, 12),
            "s",
            [(
                "{{phase}}",
                format!("max by (phase) (trainyard_job_phase_seconds_total{{{THIS}}})"),
            )],
        ),
        panel(
            "Step",
            "The last step that the job reported, its newest complete checkpoint, and its goal",
            (Form::Lines, 12),
            "none",
            [
                ("step", largest("trainyard_job_step")),
                ("checkpoint", largest("trainyard_checkpoint_step")),
                ("goal", largest("trainyard_job_steps_goal")),
            ],
        ),
        panel(
            "Steps per second",
            "Over the last 5 minutes; below zero where steps are repeated",
            (Form::Lines, 12),
            "none",
            [("steps per second", format!("max by ({JOB}) ({speed})"))],
        ),
        panel(
            "Loss",
            "The last loss that the job reported; NaN leaves a gap",
            (Form::Lines, 12),
            "none",
            [("loss", largest("trainyard_job_loss"))],
        ),
        panel(
            "Time left",
            "At the speed of the last 5 minutes",
            (Form::Lines, 12),
            "s",
            [(
                "left",
                format!(
                    "({} - {}) / max by ({JOB}) ({speed} > 0)",
                    largest("trainyard_job_steps_goal"),
                    largest("trainyard_job_step")
                ),
            )],
        ),
    ]
}
