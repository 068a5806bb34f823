//! The smallest program that can run jobs: for the tests of this crate.
//!
//! `engine run REQUEST` runs the job described by the JSON file REQUEST and prints one JSON line
//! for each event; `pod-init` and `pod-exec` are the hidden commands that pods need.
//!
//! Exit codes: 0 the job succeeded, 1 it failed or was stopped, 2 it could not be run.

use std::{
    collections::BTreeMap,
    io::{self, Write as _},
    path::PathBuf,
    process::ExitCode,
};

use k8s_openapi::api::core::v1::PodTemplateSpec;
use serde::Deserialize;
use serde_json::{Value, json};
use trainyard_core::spec::{
    Framework, Job, JobName, JobSettings, Kind, LauncherCreation, MpiImplementation, MpiV1, MpiV2,
    Namespace, PyTorch, RestartPolicy, Role, RoleSpec, RunPolicy, Tf,
};
use trainyard_host::{
    Accelerators, Outcome, RunEvent, RunOptions, RunRequest, StopHandle, Stream, pod_exec_main,
    pod_init_main, run,
};

/// A job as the tests write it: complete, without the defaults that reading a job file applies.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    api_version: String,
    kind: String,
    name: String,
    roles: BTreeMap<Role, RoleFile>,
    #[serde(default)]
    backoff_limit: Option<u32>,
    #[serde(default)]
    companions: Vec<Value>,
    state_dir: PathBuf,
    working_dir: PathBuf,
    #[serde(default)]
    inject: Vec<String>,
    #[serde(default)]
    replicas: BTreeMap<Role, u32>,
    /// Names of devices; none means that the machine is asked.
    #[serde(default)]
    gpus: Option<Vec<String>>,
    #[serde(default)]
    cpu: bool,
    #[serde(default)]
    image_env: Vec<(String, PathBuf)>,
    /// Whether output is printed.
    #[serde(default)]
    quiet: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RoleFile {
    replicas: u32,
    restart_policy: RestartPolicy,
    template: PodTemplateSpec,
}

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let command = arguments.next().unwrap_or_default();
    match command.to_str() {
        Some("pod-init") => pod_init_main(),
        Some("pod-exec") => pod_exec_main(arguments.collect()),
        Some("run") => match start(arguments.next().unwrap_or_default().into()) {
            Ok(Outcome::Succeeded) => ExitCode::SUCCESS,
            Ok(Outcome::Failed | Outcome::Stopped) => ExitCode::from(1),
            Err(error) => {
                print_line(&json!({"error": error.to_string()}));
                ExitCode::from(2)
            }
        },
        _ => ExitCode::from(2),
    }
}

fn start(path: PathBuf) -> Result<Outcome, Box<dyn std::error::Error>> {
    let file: File = serde_json::from_slice(&std::fs::read(path)?)?;
    let quiet = file.quiet;
    let request = request(file)?;
    let stop = StopHandle::new()?;
    stop.listen_to_signals()?;
    let report = run(&request, &stop, &mut |event| {
        if !(quiet && matches!(event, RunEvent::Output { .. })) {
            print_line(&line(&event));
        }
    });
    report.map(|report| report.outcome).map_err(|error| {
        let hint = error.hint().unwrap_or_default();
        print_line(&json!({"hint": hint}));
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        match cause {
            Some(cause) => format!("{error}: {cause}").into(),
            None => error.to_string().into(),
        }
    })
}

fn request(file: File) -> Result<RunRequest, Box<dyn std::error::Error>> {
    let kind = Kind::find(&file.api_version, &file.kind).ok_or("unknown kind")?;
    let framework = match kind {
        Kind::PyTorch => Framework::PyTorch(PyTorch::default()),
        Kind::Tf => Framework::Tf(Tf::default()),
        Kind::MpiV1 => Framework::MpiV1(MpiV1 {
            slots_per_worker: 1,
            main_container: None,
        }),
        Kind::MpiV2 => Framework::MpiV2(MpiV2 {
            slots_per_worker: 1,
            run_launcher_as_worker: false,
            ssh_auth_mount_path: "/root/.ssh".to_owned(),
            launcher_creation: LauncherCreation::AtStartup,
            implementation: MpiImplementation::OpenMpi,
        }),
        Kind::XgBoost => Framework::XgBoost,
        Kind::Paddle => Framework::Paddle(None),
        Kind::Jax | Kind::Train => Framework::Jax,
    };
    let roles = file.roles.into_iter().map(|(role, spec)| {
        let RoleFile {
            replicas,
            restart_policy,
            template,
        } = spec;
        let spec = RoleSpec {
            replicas,
            restart_policy,
            template,
        };
        (role, spec)
    });
    let job = Job {
        kind,
        name: JobName::parse(&file.name)?,
        namespace: Namespace::parse("default")?,
        uid: None,
        annotations: BTreeMap::new(),
        roles: roles.collect(),
        run_policy: RunPolicy {
            backoff_limit: file.backoff_limit,
            ..RunPolicy::default()
        },
        framework,
        settings: JobSettings::default(),
    };
    let inject = file.inject.iter().map(|text| text.parse());
    let options = RunOptions {
        accelerators: match (file.cpu, file.gpus) {
            (true, _) => Accelerators::Ignore,
            (false, Some(devices)) => Accelerators::Devices(devices),
            (false, None) => Accelerators::Detect,
        },
        replicas: file.replicas,
        image_env: file.image_env,
        inject: inject.collect::<Result<_, _>>()?,
        fresh: false,
        rules: None,
        environment: std::env::vars().collect(),
        working_dir: file.working_dir,
        program: std::env::current_exe()?,
    };
    Ok(RunRequest {
        job,
        manifest: Value::Null,
        companions: file.companions,
        state_dir: file.state_dir,
        options,
    })
}

fn line(event: &RunEvent) -> Value {
    match event {
        RunEvent::Prepared { folder, pods, .. } => {
            json!({"prepared": {"folder": folder, "pods": pods}})
        }
        RunEvent::Status(status) => json!({"status": status}),
        RunEvent::PodStarted { slot, attempt, pid } => {
            json!({"started": slot.to_string(), "attempt": attempt, "pid": pid})
        }
        RunEvent::PodRunning { slot, attempt } => {
            json!({"running": slot.to_string(), "attempt": attempt})
        }
        RunEvent::Output {
            slot,
            attempt,
            container,
            stream,
            bytes,
            left_out: _,
        } => json!({
            "output": slot.to_string(), "attempt": attempt, "container": &**container,
            "stream": if *stream == Stream::Out { "out" } else { "err" },
            "text": String::from_utf8_lossy(bytes),
        }),
        RunEvent::Progress { step, loss, .. } => json!({"step": step, "loss": loss}),
        RunEvent::FailedFirst(failure) => json!({"failed": failure}),
        RunEvent::PodEnded {
            slot,
            attempt,
            exit,
            stopped,
        } => json!({
            "ended": slot.to_string(), "attempt": attempt, "stopped": stopped,
            "code": exit.map(|exit| exit.code),
        }),
        RunEvent::Event(event) => json!({"event": event.reason, "message": event.message}),
        RunEvent::Note(note) => json!({"note": note}),
        RunEvent::Injected(sentence) => json!({"injected": sentence}),
        RunEvent::Finished(report) => json!({"finished": report}),
    }
}

/// A reader that is gone ends nothing.
fn print_line(line: &Value) {
    drop(writeln!(io::stdout().lock(), "{line}"));
}
