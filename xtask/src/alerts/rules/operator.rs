//! Alerts about the operator, and about jobs that it does not process.

use super::{Alert, Case, Fired, Group, JOB, PRETRAIN, Severity};

/// After it a watch is stale and the operator stops acting on it: `STALE_AFTER` in crates/kube.
const WATCH_AGE_SECONDS: u32 = 300;
/// One pass in five may fail while an API server is replaced; more for a quarter of an hour is not that.
const FAILED_PASSES_SHARE: f64 = 0.2;
/// The API server retries a review or lets the write through; ten in ten minutes are no accident.
const REVIEWS_REFUSED: u32 = 10;

pub(super) fn operator() -> Vec<Alert> {
    vec![
        Alert {
            name: "TrainyardOperatorAbsent",
            group: Group::Operator,
            severity: Severity::Critical,
            signal: "absent(trainyard_leader)".to_owned(),
            test: String::new(),
            hold: "5m",
            summary: "Prometheus finds no Trainyard operator",
            description: "No replica of the operator was scraped for 5 minutes. Pods that run continue; no failure is repaired, no job starts, and no alert about a job can fire. Next: `kubectl get pods -A -l app.kubernetes.io/name=trainyard`",
            empty: Some("an operator is scraped"),
            fires: Case {
                series: &[("up{job=\"other\"}", "1x20")],
                at: "10m",
                fired: Some(Fired {
                    labels: &[],
                    summary: "Prometheus finds no Trainyard operator",
                    description: "No replica of the operator was scraped for 5 minutes. Pods that run continue; no failure is repaired, no job starts, and no alert about a job can fire. Next: `kubectl get pods -A -l app.kubernetes.io/name=trainyard`",
                }),
            },
            silent: Case {
                series: &[("trainyard_leader{namespace=\"trainyard-system\",instance=\"a\"}", "0x20")],
                at: "10m",
                fired: None,
            },
        },
        Alert {
            name: "TrainyardNoLeader",
            group: Group::Operator,
            severity: Severity::Critical,
            signal: "sum by (namespace) (trainyard_leader)".to_owned(),
            test: "== 0".to_owned(),
            hold: "2m",
            summary: "No Trainyard operator in {{ $labels.namespace }} is the leader",
            description: "Replicas are scraped, and none has held the lease for 2 minutes: no failure is repaired and no job starts. A replica whose watches are stale gives the lease up. Next: `kubectl -n {{ $labels.namespace }} get lease trainyard -o yaml`, then `kubectl -n {{ $labels.namespace }} logs -l app.kubernetes.io/name=trainyard --tail 50`",
            empty: None,
            fires: Case {
                series: &[
                    ("trainyard_leader{namespace=\"trainyard-system\",instance=\"a\"}", "1x5 0x20"),
                    ("trainyard_leader{namespace=\"trainyard-system\",instance=\"b\"}", "0x30"),
                ],
                at: "10m",
                fired: Some(Fired {
                    labels: &[("namespace", "trainyard-system")],
                    summary: "No Trainyard operator in trainyard-system is the leader",
                    description: "Replicas are scraped, and none has held the lease for 2 minutes: no failure is repaired and no job starts. A replica whose watches are stale gives the lease up. Next: `kubectl -n trainyard-system get lease trainyard -o yaml`, then `kubectl -n trainyard-system logs -l app.kubernetes.io/name=trainyard --tail 50`",
                }),
            },
            // Another replica takes over within two minutes.
            silent: Case {
                series: &[
                    ("trainyard_leader{namespace=\"trainyard-system\",instance=\"a\"}", "1x7 0x20"),
                    ("trainyard_leader{namespace=\"trainyard-system\",instance=\"b\"}", "0x9 1x20"),
                ],
                at: "9m",
                fired: None,
            },
        },
        Alert {
            name: "TrainyardQueueStuck",
            group: Group::Operator,
            severity: Severity::Critical,
            signal: "min by (namespace, instance) (min_over_time(trainyard_queue_length[10m]))".to_owned(),
            test: "> 0 and on (namespace, instance) min_over_time(trainyard_leader[10m]) == 1\nunless on (namespace, instance) sum by (namespace, instance) (increase(trainyard_passes_total[10m])) > 0".to_owned(),
            hold: "5m",
            summary: "The Trainyard operator in {{ $labels.namespace }} leads and processes no job",
            description: "At least {{ $value }} jobs are due, and the leader {{ $labels.instance }} has finished no pass for 10 minutes. Next: `kubectl -n {{ $labels.namespace }} logs -l app.kubernetes.io/name=trainyard --tail 50`; if they do not name a cause, delete the pod of the leader: another replica continues",
            empty: None,
            fires: Case {
                series: &[
                    ("trainyard_queue_length{namespace=\"trainyard-system\",instance=\"a\"}", "7x30"),
                    ("trainyard_leader{namespace=\"trainyard-system\",instance=\"a\"}", "1x30"),
                    ("trainyard_passes_total{namespace=\"trainyard-system\",instance=\"a\",outcome=\"done\"}", "90x30"),
                ],
                at: "25m",
                fired: Some(Fired {
                    labels: &[("namespace", "trainyard-system"), ("instance", "a")],
                    summary: "The Trainyard operator in trainyard-system leads and processes no job",
                    description: "At least 7 jobs are due, and the leader a has finished no pass for 10 minutes. Next: `kubectl -n trainyard-system logs -l app.kubernetes.io/name=trainyard --tail 50`; if they do not name a cause, delete the pod of the leader: another replica continues",
                }),
            },
            // A long queue that moves.
            silent: Case {
                series: &[
                    ("trainyard_queue_length{namespace=\"trainyard-system\",instance=\"a\"}", "700x30"),
                    ("trainyard_leader{namespace=\"trainyard-system\",instance=\"a\"}", "1x30"),
                    ("trainyard_passes_total{namespace=\"trainyard-system\",instance=\"a\",outcome=\"done\"}", "90+5x30"),
                ],
                at: "25m",
                fired: None,
            },
        },
        Alert {
            name: "TrainyardWatchStale",
            group: Group::Operator,
            severity: Severity::Warning,
            signal: "max by (namespace, instance, feed) (trainyard_watch_age_seconds)".to_owned(),
            test: format!("> {WATCH_AGE_SECONDS}"),
            hold: "2m",
            summary: "The Trainyard operator in {{ $labels.namespace }} does not see changes of {{ $labels.feed }}",
            description: "The watch of {{ $labels.feed }} at {{ $labels.instance }} has had no sign of life for {{ $value | humanizeDuration }}; jobs that depend on it wait. Next: `kubectl get --raw '{{ $labels.feed }}?limit=1'`, then `kubectl -n {{ $labels.namespace }} logs -l app.kubernetes.io/name=trainyard --tail 50`",
            empty: None,
            fires: Case {
                series: &[("trainyard_watch_age_seconds{namespace=\"trainyard-system\",instance=\"a\",feed=\"/api/v1/pods\"}", "0+60x20")],
                at: "10m",
                fired: Some(Fired {
                    labels: &[
                        ("namespace", "trainyard-system"),
                        ("instance", "a"),
                        ("feed", "/api/v1/pods"),
                    ],
                    summary: "The Trainyard operator in trainyard-system does not see changes of /api/v1/pods",
                    description: "The watch of /api/v1/pods at a has had no sign of life for 10m 0s; jobs that depend on it wait. Next: `kubectl get --raw '/api/v1/pods?limit=1'`, then `kubectl -n trainyard-system logs -l app.kubernetes.io/name=trainyard --tail 50`",
                }),
            },
            silent: Case {
                series: &[("trainyard_watch_age_seconds{namespace=\"trainyard-system\",instance=\"a\",feed=\"/api/v1/pods\"}", "0 60 120 180 240 300 0+10x20")],
                at: "10m",
                fired: None,
            },
        },
    ]
}

pub(super) fn troubled() -> Vec<Alert> {
    vec![
        Alert {
            name: "TrainyardPassesFail",
            group: Group::Operator,
            severity: Severity::Warning,
            signal: "sum by (namespace) (rate(trainyard_passes_total{outcome=\"failed\"}[10m])) / sum by (namespace) (rate(trainyard_passes_total[10m]))".to_owned(),
            test: format!("> {FAILED_PASSES_SHARE}"),
            hold: "15m",
            summary: "{{ $value | humanizePercentage }} of the passes of the Trainyard operator in {{ $labels.namespace }} fail",
            description: "The API server refuses or does not answer calls of the operator, which retries; jobs react late or not at all. Next: `kubectl -n {{ $labels.namespace }} logs -l app.kubernetes.io/name=trainyard --tail 200 | grep 'Pass failed'`",
            empty: None,
            fires: Case {
                series: &[
                    ("trainyard_passes_total{namespace=\"trainyard-system\",instance=\"a\",outcome=\"done\"}", "0+6x40"),
                    ("trainyard_passes_total{namespace=\"trainyard-system\",instance=\"a\",outcome=\"failed\"}", "0+2x40"),
                ],
                at: "30m",
                fired: Some(Fired {
                    labels: &[("namespace", "trainyard-system")],
                    summary: "25% of the passes of the Trainyard operator in trainyard-system fail",
                    description: "The API server refuses or does not answer calls of the operator, which retries; jobs react late or not at all. Next: `kubectl -n trainyard-system logs -l app.kubernetes.io/name=trainyard --tail 200 | grep 'Pass failed'`",
                }),
            },
            silent: Case {
                series: &[
                    ("trainyard_passes_total{namespace=\"trainyard-system\",instance=\"a\",outcome=\"done\"}", "0+9x40"),
                    ("trainyard_passes_total{namespace=\"trainyard-system\",instance=\"a\",outcome=\"failed\"}", "0+1x40"),
                ],
                at: "30m",
                fired: None,
            },
        },
        Alert {
            name: "TrainyardWebhookRefuses",
            group: Group::Operator,
            severity: Severity::Warning,
            signal: "sum by (namespace, reason) (increase(trainyard_server_requests_refused_total{server=\"webhook\", reason=~\"busy|no_room|too_slow\"}[10m]))".to_owned(),
            test: format!("> {REVIEWS_REFUSED}"),
            hold: "5m",
            summary: "The webhooks of Trainyard in {{ $labels.namespace }} refuse requests",
            description: "{{ $value | printf \"%.0f\" }} requests were refused in 10 minutes ({{ $labels.reason }}): something sends more than the webhooks take. Jobs are stored unchecked, or refused where failurePolicy is Fail. Next: `kubectl -n {{ $labels.namespace }} logs -l app.kubernetes.io/name=trainyard --tail 200`",
            empty: None,
            fires: Case {
                series: &[("trainyard_server_requests_refused_total{namespace=\"trainyard-system\",instance=\"a\",server=\"webhook\",reason=\"busy\"}", "0+3x30")],
                at: "20m",
                fired: Some(Fired {
                    labels: &[("namespace", "trainyard-system"), ("reason", "busy")],
                    summary: "The webhooks of Trainyard in trainyard-system refuse requests",
                    description: "30 requests were refused in 10 minutes (busy): something sends more than the webhooks take. Jobs are stored unchecked, or refused where failurePolicy is Fail. Next: `kubectl -n trainyard-system logs -l app.kubernetes.io/name=trainyard --tail 200`",
                }),
            },
            // What a client did wrong wakes nobody.
            silent: Case {
                series: &[
                    ("trainyard_server_requests_refused_total{namespace=\"trainyard-system\",instance=\"a\",server=\"webhook\",reason=\"busy\"}", "0 0 4 4x30"),
                    ("trainyard_server_requests_refused_total{namespace=\"trainyard-system\",instance=\"a\",server=\"webhook\",reason=\"not_found\"}", "0+9x30"),
                ],
                at: "20m",
                fired: None,
            },
        },
        Alert {
            name: "TrainyardJobSetAside",
            group: Group::Jobs,
            severity: Severity::Warning,
            signal: of_one_job("trainyard_job_set_aside"),
            test: "== 1".to_owned(),
            hold: "1m",
            summary: "{{ $labels.job_namespace }}/{{ $labels.job_name }} is set aside: the Trainyard operator crashed or panicked on it",
            description: "The {{ $labels.kind }} is not processed; its pods run without repair. Save the log of the operator before you change the job. Next: `trainyard explain {{ $labels.job_name }} --cluster -n {{ $labels.job_namespace }}`",
            empty: None,
            fires: Case {
                series: &[("trainyard_job_set_aside{instance=\"a\",kind=\"PyTorchJob\",job_namespace=\"team-a\",exported_job=\"pretrain\"}", "1x20")],
                at: "5m",
                fired: Some(Fired {
                    labels: PRETRAIN,
                    summary: "team-a/pretrain is set aside: the Trainyard operator crashed or panicked on it",
                    description: "The PyTorchJob is not processed; its pods run without repair. Save the log of the operator before you change the job. Next: `trainyard explain pretrain --cluster -n team-a`",
                }),
            },
            silent: Case {
                series: &[("trainyard_job_set_aside{instance=\"a\",kind=\"PyTorchJob\",job_namespace=\"team-a\",exported_job=\"pretrain\"}", "1x2 stale")],
                at: "5m",
                fired: None,
            },
        },
        Alert {
            name: "TrainyardJobStatusUnreadable",
            group: Group::Jobs,
            severity: Severity::Warning,
            signal: of_one_job("trainyard_job_status_unreadable"),
            test: "== 1".to_owned(),
            hold: "5m",
            summary: "The status of {{ $labels.job_namespace }}/{{ $labels.job_name }} cannot be read by the Trainyard operator",
            description: "The {{ $labels.kind }} is not processed until its status can be read; its pods run without repair. Next: `trainyard explain {{ $labels.job_name }} --cluster -n {{ $labels.job_namespace }}`, which names the field",
            empty: None,
            fires: Case {
                series: &[("trainyard_job_status_unreadable{instance=\"a\",kind=\"PyTorchJob\",job_namespace=\"team-a\",exported_job=\"pretrain\"}", "1x20")],
                at: "10m",
                fired: Some(Fired {
                    labels: PRETRAIN,
                    summary: "The status of team-a/pretrain cannot be read by the Trainyard operator",
                    description: "The PyTorchJob is not processed until its status can be read; its pods run without repair. Next: `trainyard explain pretrain --cluster -n team-a`, which names the field",
                }),
            },
            silent: Case {
                series: &[("trainyard_job_status_unreadable{instance=\"a\",kind=\"PyTorchJob\",job_namespace=\"team-a\",exported_job=\"pretrain\"}", "1x3 stale")],
                at: "10m",
                fired: None,
            },
        },
    ]
}

/// A gauge that names a job `job`, which Prometheus renames because its targets have such a label.
fn of_one_job(name: &str) -> String {
    format!(r#"max by ({JOB}) (label_replace({name}, "job_name", "$1", "exported_job", "(.+)"))"#)
}
