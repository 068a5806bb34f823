//! `trainyard exec`: a command in the pod of a rank.

use crate::{
    args::Exec,
    cluster::{RankPods, connect},
    failure::{Exit, Failure},
    printer::Printer,
    stored,
};

/// What is run where no command is given.
const SHELL: &str = "sh";

/// Runs the command and returns its exit code.
pub(super) fn run(args: &Exec, printer: &mut Printer) -> Result<Exit, Failure> {
    let job = &args.job;
    if args.place.is_cluster() {
        return on_cluster(args, printer);
    }
    let hint = format!(
        "`trainyard logs {job} --rank {}` prints what it wrote",
        args.rank
    );
    let run = stored::live_for(job, &args.state, "run a command in", &hint)?;
    // The command writes to the same streams.
    printer.flush()?;
    let ended = run
        .folder
        .exec(args.rank, args.container.as_deref(), &command(args));
    let code = ended.map_err(stored::refused)?;
    Ok(Exit::Code(u8::try_from(code).unwrap_or(u8::MAX)))
}

/// The command, or a shell.
fn command(args: &Exec) -> Vec<String> {
    match args.command.as_slice() {
        [] => vec![SHELL.to_owned()],
        command => command.to_vec(),
    }
}

/// The same in a pod of a cluster.
fn on_cluster(args: &Exec, printer: &mut Printer) -> Result<Exit, Failure> {
    let site = connect(&args.place)?;
    let job = site.find(&args.job)?;
    let pods = RankPods::find(&site, &job)?;
    let pod = pods.running(args.rank)?;
    let container = args.container.as_deref().unwrap_or(&pod.facts.container);
    if !pod.containers.iter().any(|name| name == container) {
        return Err(Failure::new(format!(
            "pod `{}` has no container `{container}`",
            pod.facts.name
        ))
        .hint(format!("it has {}", pod.containers.join(", "))));
    }
    // The command writes to the same streams.
    printer.flush()?;
    let code = site.enter(&pod.facts.name, container, &command(args))?;
    Ok(Exit::Code(code))
}
