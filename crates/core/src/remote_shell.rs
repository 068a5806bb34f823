//! The command lines with which `mpirun` and its scripts reach another pod.
//!
//! Open MPI and Hydra call what they believe to be ssh or rsh; the script of an `MPIJob` v1 calls
//! `kubectl exec`. A replacement for one of them reads its arguments here. This module runs
//! nothing.

/// A command for another pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteCommand {
    /// The pod, by one of its names.
    pub host: String,
    /// The container of the pod, where one is named.
    pub container: Option<String>,
    /// What is to run there.
    pub command: Words,
}

/// What is to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Words {
    /// A line for the shell, as ssh has it.
    Line(String),
    /// A program with its arguments.
    Program(Vec<String>),
}

/// `exec POD [--container NAME] [-i] [-t] -- COMMAND…`.
pub fn read_kubectl(arguments: &[String]) -> Option<RemoteCommand> {
    let mut arguments = arguments.iter();
    if arguments.next()? != "exec" {
        return None;
    }
    let (mut host, mut container) = (None, None);
    for argument in arguments.by_ref() {
        match argument.as_str() {
            "--" => break,
            "--container" | "-c" => container = Some(None),
            "-i" | "-t" | "-it" | "--stdin" | "--tty" => {}
            word if container == Some(None) => container = Some(Some(word.to_owned())),
            word => host = host.or_else(|| Some(word.to_owned())),
        }
    }
    let program: Vec<String> = arguments.cloned().collect();
    if program.is_empty() {
        return None;
    }
    Some(RemoteCommand {
        host: host?,
        container: container.flatten(),
        command: Words::Program(program),
    })
}

/// `[-OPTION [VALUE]]… HOST [-OPTION [VALUE]]… COMMAND…`; the words of the command are a line for the
/// shell, as ssh has it.
pub fn read_ssh(arguments: &[String]) -> Option<RemoteCommand> {
    /// Options of ssh that take a value; `l` is one of rsh, too.
    const WITH_VALUE: &str = "BbcDEeFIiJLlmOoPpQRSWw";
    let mut host = None;
    let mut rest = arguments;
    while let Some((argument, after)) = rest.split_first() {
        match argument.strip_prefix('-') {
            Some("-") if host.is_some() => {
                rest = after;
                break;
            }
            Some(option) => {
                let takes_value =
                    option.chars().count() == 1 && option.chars().all(|c| WITH_VALUE.contains(c));
                rest = if takes_value { after.get(1..)? } else { after };
            }
            // Hydra writes options after the host as well.
            None if host.is_none() => {
                host = Some(argument);
                rest = after;
            }
            None => break,
        }
    }
    let host = host?;
    // `user@host` names the same pod: it has one user.
    let host = host
        .rsplit_once('@')
        .map_or(host.as_str(), |(_, host)| host);
    if rest.is_empty() {
        return None;
    }
    Some(RemoteCommand {
        host: host.to_owned(),
        container: None,
        command: Words::Line(rest.join(" ")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(reader: fn(&[String]) -> Option<RemoteCommand>, line: &str) -> Option<String> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let read = reader(&words)?;
        Some(format!(
            "{} {:?} {:?}",
            read.host, read.container, read.command
        ))
    }

    #[test]
    fn arguments_of_ssh() {
        let cases = [
            (
                "-x w-0 orted -mca a b",
                Some(r#"w-0 None Line("orted -mca a b")"#),
            ),
            ("w-0 orted", Some(r#"w-0 None Line("orted")"#)),
            (
                "-o ConnectionAttempts=10 w-0 ls -l",
                Some(r#"w-0 None Line("ls -l")"#),
            ),
            (
                "-q -l me me@w-0.j.n.svc true",
                Some(r#"w-0.j.n.svc None Line("true")"#),
            ),
            ("w-0 -l me -n ls -l", Some(r#"w-0 None Line("ls -l")"#)),
            ("w-0 -- -x", Some(r#"w-0 None Line("-x")"#)),
            ("w-0", None),
            ("w-0 -n", None),
            ("-o", None),
            ("", None),
        ];
        for (line, want) in cases {
            assert_eq!(read(read_ssh, line).as_deref(), want, "{line:?}");
        }
    }

    #[test]
    fn arguments_of_kubectl() {
        let cases = [
            (
                "exec w-0 -- /bin/sh -c x",
                Some(r#"w-0 None Program(["/bin/sh", "-c", "x"])"#),
            ),
            (
                "exec w-0 --container main -- x",
                Some(r#"w-0 Some("main") Program(["x"])"#),
            ),
            ("exec -it w-0 -- x", Some(r#"w-0 None Program(["x"])"#)),
            ("exec w-0 --", None),
            ("get pods", None),
        ];
        for (line, want) in cases {
            assert_eq!(read(read_kubectl, line).as_deref(), want, "{line:?}");
        }
    }
}
