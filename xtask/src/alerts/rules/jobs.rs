//! Alerts about jobs and nodes.

use super::{Alert, Case, Fired, Group, JOB, PRETRAIN, Severity};

/// Three failures in an hour are what quick restarts pay for; `increase` may add up to a half to a count.
const RESTARTS: f64 = 3.5;
/// Large enough that a fifth of it is worth somebody's day.
const ACCELERATORS: u32 = 64;
/// What a job of that size reaches when nothing is wrong: published runs train for 0.9 of their time and more.
const TRAINED_SHARE: f64 = 0.8;
/// Of the last six hours a job must have run for three: its start is not judged.
const MEASURED_SECONDS: u32 = 3 * 3_600;
/// Accelerator hours that a failure would lose.
const HOURS_AT_RISK: u32 = 100;
/// A job that did not train for longer than this in two hours has not worked all that time without saving.
const IDLE_SECONDS: u32 = 600;
/// After half a working day somebody should know why.
const WAITED_SECONDS: u32 = 4 * 3_600;

pub(super) fn jobs() -> Vec<Alert> {
    vec![
        Alert {
            name: "TrainyardJobStalled",
            group: Group::Jobs,
            severity: Severity::Critical,
            signal: format!("max by ({JOB}) (trainyard_job_accelerators)"),
            test: format!("and on ({JOB}) trainyard_job_phase{{phase=\"stalled\"}} == 1"),
            hold: "5m",
            summary: "{{ $labels.job_namespace }}/{{ $labels.job_name }} is stalled: {{ $value }} accelerators stand still",
            description: "The {{ $labels.kind }} runs and has reported no step for more than 5 minutes beyond its usual interval. Save the logs of all ranks before you restart it. Next: `trainyard explain {{ $labels.job_name }} --cluster -n {{ $labels.job_namespace }}`",
            empty: None,
            fires: Case {
                series: &[
                    (
                        "trainyard_job_accelerators{instance=\"a\",kind=\"PyTorchJob\",job_namespace=\"team-a\",job_name=\"pretrain\"}",
                        "64x20",
                    ),
                    (
                        "trainyard_job_phase{instance=\"a\",kind=\"PyTorchJob\",job_namespace=\"team-a\",job_name=\"pretrain\",phase=\"stalled\"}",
                        "1x20",
                    ),
                ],
                at: "10m",
                fired: Some(Fired {
                    labels: PRETRAIN,
                    summary: "team-a/pretrain is stalled: 64 accelerators stand still",
                    description: "The PyTorchJob runs and has reported no step for more than 5 minutes beyond its usual interval. Save the logs of all ranks before you restart it. Next: `trainyard explain pretrain --cluster -n team-a`",
                }),
            },
            // A long save, and a queue however long, are no stall.
            silent: Case {
                series: &[
                    (
                        "trainyard_job_accelerators{instance=\"a\",kind=\"PyTorchJob\",job_namespace=\"team-a\",job_name=\"pretrain\"}",
                        "64x20",
                    ),
                    (
                        "trainyard_job_phase{instance=\"a\",kind=\"PyTorchJob\",job_namespace=\"team-a\",job_name=\"pretrain\",phase=\"stalled\"}",
                        "1x3 stale",
                    ),
                    (
                        "trainyard_job_phase{instance=\"a\",kind=\"PyTorchJob\",job_namespace=\"team-a\",job_name=\"pretrain\",phase=\"queued\"}",
                        "_x3 1x20",
                    ),
                ],
                at: "10m",
                fired: None,
            },
        },
        Alert {
            name: "TrainyardJobRestartingOften",
            group: Group::Jobs,
            severity: Severity::Warning,
            signal: format!(
                "sum by ({JOB}, account) (increase(trainyard_job_restarts_total{{account!=\"preemption\"}}[1h]))"
            ),
            test: format!("> {RESTARTS} and on ({JOB}) trainyard_job_attempt"),
            hold: "0m",
            summary: "{{ $labels.job_namespace }}/{{ $labels.job_name }} failed {{ $value | printf \"%.0f\" }} times in an hour, account {{ $labels.account }}",
            description: "The {{ $labels.kind }} restarts and fails again; each failure uses its failure budget. Next: `trainyard explain {{ $labels.job_name }} --cluster -n {{ $labels.job_namespace }}`, then `trainyard logs {{ $labels.job_name }} --cluster -n {{ $labels.job_namespace }} --first-failure`",
            empty: None,
            fires: Case {
                series: &[
                    (
                        "trainyard_job_restarts_total{instance=\"a\",kind=\"PyTorchJob\",job_namespace=\"team-a\",job_name=\"pretrain\",account=\"user\"}",
                        "0x70 1x9 2x9 3x9 4x9",
                    ),
                    (
                        "trainyard_job_attempt{instance=\"a\",kind=\"PyTorchJob\",job_namespace=\"team-a\",job_name=\"pretrain\"}",
                        "5x120",
                    ),
                ],
                at: "105m",
                fired: Some(Fired {
                    labels: &[
                        ("kind", "PyTorchJob"),
                        ("job_namespace", "team-a"),
                        ("job_name", "pretrain"),
                        ("account", "user"),
                    ],
                    summary: "team-a/pretrain failed 4 times in an hour, account user",
                    description: "The PyTorchJob restarts and fails again; each failure uses its failure budget. Next: `trainyard explain pretrain --cluster -n team-a`, then `trainyard logs pretrain --cluster -n team-a --first-failure`",
                }),
            },
            // Three failures, and a leader that takes over and reports nine failures of the past.
            silent: Case {
                series: &[
                    (
                        "trainyard_job_restarts_total{instance=\"a\",kind=\"PyTorchJob\",job_namespace=\"team-a\",job_name=\"pretrain\",account=\"user\"}",
                        "6x70 7x9 8x9 9 stale",
                    ),
                    (
                        "trainyard_job_restarts_total{instance=\"b\",kind=\"PyTorchJob\",job_namespace=\"team-a\",job_name=\"pretrain\",account=\"user\"}",
                        "_x92 9x20",
                    ),
                    (
                        "trainyard_job_attempt{instance=\"b\",kind=\"PyTorchJob\",job_namespace=\"team-a\",job_name=\"pretrain\"}",
                        "10x120",
                    ),
                ],
                at: "101m",
                fired: None,
            },
        },
        Alert {
            name: "TrainyardLossNotFinite",
            group: Group::Jobs,
            severity: Severity::Warning,
            signal: format!("max by ({JOB}) (trainyard_job_step)"),
            test: format!(
                "and on ({JOB}) (trainyard_job_loss != trainyard_job_loss or abs(trainyard_job_loss) == Inf)\nand on ({JOB}) trainyard_job_phase{{phase=\"training\"}} == 1"
            ),
            hold: "15m",
            summary: "The loss of {{ $labels.job_namespace }}/{{ $labels.job_name }} is NaN or infinite",
            description: "The {{ $labels.kind }} still trains, at step {{ $value }}, and its loss has not been finite for 15 minutes: a model like that rarely recovers. Suspend the job if its nodes are needed. Next: `trainyard explain {{ $labels.job_name }} --cluster -n {{ $labels.job_namespace }}`, which names the step since which",
            empty: None,
            fires: Case {
                series: &[
                    (
                        "trainyard_job_step{instance=\"a\",kind=\"PyTorchJob\",job_namespace=\"team-a\",job_name=\"pretrain\"}",
                        "4200x30",
                    ),
                    (
                        "trainyard_job_loss{instance=\"a\",kind=\"PyTorchJob\",job_namespace=\"team-a\",job_name=\"pretrain\"}",
                        "NaN+0x30",
                    ),
                    (
                        "trainyard_job_phase{instance=\"a\",kind=\"PyTorchJob\",job_namespace=\"team-a\",job_name=\"pretrain\",phase=\"training\"}",
                        "1x30",
                    ),
                ],
                at: "20m",
                fired: Some(Fired {
                    labels: PRETRAIN,
                    summary: "The loss of team-a/pretrain is NaN or infinite",
                    description: "The PyTorchJob still trains, at step 4200, and its loss has not been finite for 15 minutes: a model like that rarely recovers. Suspend the job if its nodes are needed. Next: `trainyard explain pretrain --cluster -n team-a`, which names the step since which",
                }),
            },
            // A loss scaler corrects an overflow.
            silent: Case {
                series: &[
                    (
                        "trainyard_job_step{instance=\"a\",kind=\"PyTorchJob\",job_namespace=\"team-a\",job_name=\"pretrain\"}",
                        "4200x30",
                    ),
                    (
                        "trainyard_job_loss{instance=\"a\",kind=\"PyTorchJob\",job_namespace=\"team-a\",job_name=\"pretrain\"}",
                        "NaN+0x9 1.5x3 NaN+0x9",
                    ),
                    (
                        "trainyard_job_phase{instance=\"a\",kind=\"PyTorchJob\",job_namespace=\"team-a\",job_name=\"pretrain\",phase=\"training\"}",
                        "1x30",
                    ),
                ],
                at: "20m",
                fired: None,
            },
        },
        Alert {
            name: "TrainyardNodeFailsPreflight",
            group: Group::Jobs,
            severity: Severity::Warning,
            signal: "max by (node) (trainyard_node_preflight{outcome=\"fail\"})".to_owned(),
            test: "== 1".to_owned(),
            hold: "30m",
            summary: "Node {{ $labels.node }} failed its preflight",
            description: "The last trial of {{ $labels.node }} by the operator failed, and it has not passed one for 30 minutes. Next: `kubectl describe node {{ $labels.node }}`, whose annotation trainyard.dev/preflight names the check",
            empty: None,
            fires: Case {
                series: &[(
                    "trainyard_node_preflight{instance=\"a\",node=\"node-7\",outcome=\"fail\"}",
                    "1x60",
                )],
                at: "40m",
                fired: Some(Fired {
                    labels: &[("node", "node-7")],
                    summary: "Node node-7 failed its preflight",
                    description: "The last trial of node-7 by the operator failed, and it has not passed one for 30 minutes. Next: `kubectl describe node node-7`, whose annotation trainyard.dev/preflight names the check",
                }),
            },
            silent: Case {
                series: &[
                    (
                        "trainyard_node_preflight{instance=\"a\",node=\"node-7\",outcome=\"fail\"}",
                        "1x20 stale",
                    ),
                    (
                        "trainyard_node_preflight{instance=\"a\",node=\"node-7\",outcome=\"pass\"}",
                        "_x20 1x40",
                    ),
                ],
                at: "40m",
                fired: None,
            },
        },
    ]
}

pub(super) fn hours() -> Vec<Alert> {
    vec![
        Alert {
            name: "TrainyardJobTrainsLittle",
            group: Group::Jobs,
            severity: Severity::Warning,
            signal: format!(
                "sum by ({JOB}) (increase(trainyard_job_phase_seconds_total{{phase=\"training\"}}[6h]))\n/ sum by ({JOB}) (increase(trainyard_job_phase_seconds_total{{phase!~\"queued|placing|suspended\"}}[6h]))"
            ),
            test: format!(
                "< {TRAINED_SHARE} and on ({JOB}) sum by ({JOB}) (increase(trainyard_job_phase_seconds_total{{phase!~\"queued|placing|suspended\"}}[6h])) > {MEASURED_SECONDS}\nand on ({JOB}) trainyard_job_accelerators >= {ACCELERATORS}"
            ),
            hold: "15m",
            summary: "{{ $labels.job_namespace }}/{{ $labels.job_name }} trained for {{ $value | humanizePercentage }} of its time in the last 6 hours",
            description: "The rest went into starts, restarts, saves, stalls and repeated steps; time in the queue does not count. Next: `trainyard explain {{ $labels.job_name }} --cluster -n {{ $labels.job_namespace }}`, then `trainyard status {{ $labels.job_name }} --cluster -n {{ $labels.job_namespace }}`, which shows where the time went",
            empty: None,
            fires: Case {
                series: &[
                    (
                        "trainyard_job_phase_seconds_total{instance=\"a\",kind=\"PyTorchJob\",job_namespace=\"team-a\",job_name=\"pretrain\",phase=\"training\"}",
                        "0+30x400",
                    ),
                    (
                        "trainyard_job_phase_seconds_total{instance=\"a\",kind=\"PyTorchJob\",job_namespace=\"team-a\",job_name=\"pretrain\",phase=\"restarting\"}",
                        "0+30x400",
                    ),
                    (
                        "trainyard_job_accelerators{instance=\"a\",kind=\"PyTorchJob\",job_namespace=\"team-a\",job_name=\"pretrain\"}",
                        "64x400",
                    ),
                ],
                at: "390m",
                fired: Some(Fired {
                    labels: PRETRAIN,
                    summary: "team-a/pretrain trained for 50% of its time in the last 6 hours",
                    description: "The rest went into starts, restarts, saves, stalls and repeated steps; time in the queue does not count. Next: `trainyard explain pretrain --cluster -n team-a`, then `trainyard status pretrain --cluster -n team-a`, which shows where the time went",
                }),
            },
            // Time in the queue counts as none.
            silent: Case {
                series: &[
                    (
                        "trainyard_job_phase_seconds_total{instance=\"a\",kind=\"PyTorchJob\",job_namespace=\"team-a\",job_name=\"pretrain\",phase=\"training\"}",
                        "0x120 0+54x280",
                    ),
                    (
                        "trainyard_job_phase_seconds_total{instance=\"a\",kind=\"PyTorchJob\",job_namespace=\"team-a\",job_name=\"pretrain\",phase=\"saving\"}",
                        "0x120 0+6x280",
                    ),
                    (
                        "trainyard_job_phase_seconds_total{instance=\"a\",kind=\"PyTorchJob\",job_namespace=\"team-a\",job_name=\"pretrain\",phase=\"queued\"}",
                        "0+60x120 7200x280",
                    ),
                    (
                        "trainyard_job_accelerators{instance=\"a\",kind=\"PyTorchJob\",job_namespace=\"team-a\",job_name=\"pretrain\"}",
                        "64x400",
                    ),
                ],
                at: "390m",
                fired: None,
            },
        },
        Alert {
            name: "TrainyardCheckpointOld",
            group: Group::Jobs,
            severity: Severity::Warning,
            signal: format!(
                "min by ({JOB}) (time() - trainyard_checkpoint_timestamp_seconds) / 3600 * on ({JOB}) max by ({JOB}) (trainyard_job_accelerators)"
            ),
            test: format!(
                "> {HOURS_AT_RISK} and on ({JOB}) trainyard_job_phase{{phase=\"training\"}} == 1\nunless on ({JOB}) sum by ({JOB}) (increase(trainyard_job_phase_seconds_total{{phase!~\"training|saving\"}}[2h])) > {IDLE_SECONDS}"
            ),
            hold: "10m",
            summary: "{{ $labels.job_namespace }}/{{ $labels.job_name }} would lose {{ $value | printf \"%.0f\" }} accelerator hours",
            description: "The {{ $labels.kind }} trains, and its newest complete checkpoint is that old: a failure now repeats all of it. Next: `trainyard explain {{ $labels.job_name }} --cluster -n {{ $labels.job_namespace }}`, then look for errors of saves in `trainyard logs {{ $labels.job_name }} --cluster -n {{ $labels.job_namespace }}`",
            empty: None,
            fires: Case {
                // Saved at the beginning of 1970, which is when these tests begin.
                series: &[
                    (
                        "trainyard_checkpoint_timestamp_seconds{instance=\"a\",kind=\"PyTorchJob\",job_namespace=\"team-a\",job_name=\"pretrain\"}",
                        "0x200",
                    ),
                    (
                        "trainyard_job_accelerators{instance=\"a\",kind=\"PyTorchJob\",job_namespace=\"team-a\",job_name=\"pretrain\"}",
                        "64x200",
                    ),
                    (
                        "trainyard_job_phase{instance=\"a\",kind=\"PyTorchJob\",job_namespace=\"team-a\",job_name=\"pretrain\",phase=\"training\"}",
                        "1x200",
                    ),
                ],
                at: "120m",
                fired: Some(Fired {
                    labels: PRETRAIN,
                    summary: "team-a/pretrain would lose 128 accelerator hours",
                    description: "The PyTorchJob trains, and its newest complete checkpoint is that old: a failure now repeats all of it. Next: `trainyard explain pretrain --cluster -n team-a`, then look for errors of saves in `trainyard logs pretrain --cluster -n team-a`",
                }),
            },
            // It was suspended for most of that time.
            silent: Case {
                series: &[
                    (
                        "trainyard_checkpoint_timestamp_seconds{instance=\"a\",kind=\"PyTorchJob\",job_namespace=\"team-a\",job_name=\"pretrain\"}",
                        "0x200",
                    ),
                    (
                        "trainyard_job_accelerators{instance=\"a\",kind=\"PyTorchJob\",job_namespace=\"team-a\",job_name=\"pretrain\"}",
                        "64x200",
                    ),
                    (
                        "trainyard_job_phase{instance=\"a\",kind=\"PyTorchJob\",job_namespace=\"team-a\",job_name=\"pretrain\",phase=\"training\"}",
                        "_x90 1x110",
                    ),
                    (
                        "trainyard_job_phase_seconds_total{instance=\"a\",kind=\"PyTorchJob\",job_namespace=\"team-a\",job_name=\"pretrain\",phase=\"suspended\"}",
                        "0+60x90 5400x110",
                    ),
                ],
                at: "120m",
                fired: None,
            },
        },
        Alert {
            name: "TrainyardJobWaitsLong",
            group: Group::Jobs,
            severity: Severity::Info,
            signal: format!(
                "sum by ({JOB}) (increase(trainyard_job_phase_seconds_total{{phase=~\"queued|placing\"}}[5h]))"
            ),
            test: format!(
                "> {WAITED_SECONDS} and on ({JOB}) trainyard_job_phase{{phase=~\"queued|placing\"}} == 1"
            ),
            hold: "0m",
            summary: "{{ $labels.job_namespace }}/{{ $labels.job_name }} has waited for nodes for more than 4 hours",
            description: "Of the last 5 hours the {{ $labels.kind }} waited {{ $value | humanizeDuration }}. Next: `trainyard explain {{ $labels.job_name }} --cluster -n {{ $labels.job_namespace }}`, which names what is missing, with numbers",
            empty: None,
            fires: Case {
                series: &[
                    (
                        "trainyard_job_phase_seconds_total{instance=\"a\",kind=\"PyTorchJob\",job_namespace=\"team-a\",job_name=\"pretrain\",phase=\"queued\"}",
                        "0+60x400",
                    ),
                    (
                        "trainyard_job_phase{instance=\"a\",kind=\"PyTorchJob\",job_namespace=\"team-a\",job_name=\"pretrain\",phase=\"queued\"}",
                        "1x400",
                    ),
                ],
                at: "350m",
                fired: Some(Fired {
                    labels: PRETRAIN,
                    summary: "team-a/pretrain has waited for nodes for more than 4 hours",
                    description: "Of the last 5 hours the PyTorchJob waited 5h 0m 0s. Next: `trainyard explain pretrain --cluster -n team-a`, which names what is missing, with numbers",
                }),
            },
            // It has got its nodes.
            silent: Case {
                series: &[
                    (
                        "trainyard_job_phase_seconds_total{instance=\"a\",kind=\"PyTorchJob\",job_namespace=\"team-a\",job_name=\"pretrain\",phase=\"queued\"}",
                        "0+60x340 20400x60",
                    ),
                    (
                        "trainyard_job_phase{instance=\"a\",kind=\"PyTorchJob\",job_namespace=\"team-a\",job_name=\"pretrain\",phase=\"queued\"}",
                        "1x340 stale",
                    ),
                    (
                        "trainyard_job_phase{instance=\"a\",kind=\"PyTorchJob\",job_namespace=\"team-a\",job_name=\"pretrain\",phase=\"creating\"}",
                        "_x340 1x60",
                    ),
                ],
                at: "350m",
                fired: None,
            },
        },
    ]
}
