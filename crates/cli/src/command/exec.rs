//! `trainyard exec`: a command in the pod of a rank of a job that runs here.

use crate::{
    args::Exec,
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
        return Err(
            Failure::new("`exec` enters only pods of runs on this machine").hint(format!(
                "`kubectl exec POD -- COMMAND` enters a pod of a cluster; `trainyard status {job} --cluster` lists them"
            )),
        );
    }
    let hint = format!(
        "`trainyard logs {job} --rank {}` prints what it wrote",
        args.rank
    );
    let run = stored::live_for(job, &args.state, "run a command in", &hint)?;
    // The command writes to the same streams.
    printer.flush()?;
    let shell = [SHELL.to_owned()];
    let command = match args.command.as_slice() {
        [] => &shell,
        command => command,
    };
    let ended = run
        .folder
        .exec(args.rank, args.container.as_deref(), command);
    let code = ended.map_err(stored::refused)?;
    Ok(Exit::Code(u8::try_from(code).unwrap_or(u8::MAX)))
}
