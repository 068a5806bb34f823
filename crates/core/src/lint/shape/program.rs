//! Commands that are no program, and programs whose failure nobody sees or that never end.
//!
//! Owns how the script of a shell is divided into its commands. It knows quotes and no more of the language: of a script
//! with an `if`, a loop or a function it judges nothing.

use k8s_openapi::api::core::v1::Container;

use super::super::{
    Rule,
    advice::{Advice, Look, RISKY, WRONG, rule},
    command::{SHELLS, base_name, is_script_option},
    scene::{Pod, Scene},
};
use crate::spec::{Place, Role};

/// The rules.
pub(in crate::lint) static RULES: &[Advice] = &[
    Advice {
        rule: rule(
            "TY180",
            WRONG,
            "command that is no program",
            "The first item of `command` is the name of a program, and every further item is one argument. A whole line in one item is \
             the name of a program that does not exist, and `&&` or `|` in an item of its own is an argument: only a shell reads them, \
             in the one script after `-c`. What comes after that script is not a part of it, but `$0`, `$1` and so on.",
        ),
        look: Look::Job(no_program),
    },
    Advice {
        rule: rule(
            "TY181",
            RISKY,
            "failure that nobody sees",
            "The exit code of a container is that of the last command of its script. Of `train | tee log` that is the one of `tee` \
             unless `pipefail` is set, after `|| true` or a last `echo` it is always 0, and with a `&` at the end nobody waits for the \
             program. The job counts as succeeded though the training failed, and is not restarted.",
        ),
        look: Look::Job(lost_exit_code),
    },
    Advice {
        rule: rule(
            "TY182",
            RISKY,
            "job that never ends",
            "`sleep infinity` or `tail -f /dev/null` keeps a container for somebody to enter. A job with it never ends, and keeps its \
             GPUs whether or not the training is done.",
        ),
        look: Look::Job(never_ends),
    },
];

/// Marks that only a shell knows.
const OPERATORS: [&str; 7] = ["&&", "||", "|", ">", ">>", "2>&1", "&>"];

fn no_program(rule: &Rule, scene: &Scene<'_>) {
    const LINE: &str = "write every word as an item of its own, or `[sh, -c, \"…\"]` with the whole line as the script";
    for pod in scene.pods.iter().filter(|pod| !is_of_ray(pod)) {
        for (container, place) in pod.containers() {
            let items = items(container, &place);
            let Some((program, at)) = items.first().filter(|_| container.command.is_some()) else {
                continue;
            };
            if program.contains(['$', '{', '<']) {
                continue;
            }
            let is_shell = SHELLS.contains(&base_name(program));
            if program.trim().contains(char::is_whitespace) {
                let message = format!("there is no program with the name `{}`", shown(program));
                at.report_with(rule, message, LINE);
            } else if is_shell && let Some((text, at)) = unused(&items) {
                let message = format!("the shell does not run `{}`", shown(text));
                at.report_with(rule, message, "write the whole line as one item after `-c`");
            } else if !is_shell {
                let mark = items.iter().find(|(text, _)| OPERATORS.contains(text));
                if let Some((text, at)) = mark.filter(|_| base_name(program) != "find") {
                    let message =
                        format!("`{program}` is given `{text}` as an argument, there is no shell");
                    at.report_with(rule, message, LINE);
                }
            }
        }
    }
}

/// Whether the operator of Ray makes one line of what the container has, for a shell.
fn is_of_ray(pod: &Pod<'_>) -> bool {
    let path = pod.template_at().path;
    path.contains("headGroupSpec") || path.contains("workerGroupSpecs")
}

/// The items of `command` and `args` with their places.
fn items<'a>(container: &'a Container, place: &Place<'a>) -> Vec<(&'a str, Place<'a>)> {
    let parts = [("command", &container.command), ("args", &container.args)];
    let mut found = Vec::new();
    for (key, items) in parts {
        let list = place.key(key);
        let items = items.iter().flatten().enumerate();
        found.extend(items.map(|(index, text)| (text.as_str(), list.index(index))));
    }
    found
}

/// The beginning of a text, for a message.
fn shown(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    let mut short: String = line.chars().take(40).collect();
    if short.len() < text.trim().len() {
        short.push('…');
    }
    short
}

/// The script after the option at `at`: further options may come before it.
fn script_after(items: &[(&str, Place<'_>)], at: usize) -> Option<usize> {
    let after = items.iter().enumerate().skip(at + 1);
    let mut scripts = after.filter(|(_, (text, _))| !text.starts_with(['-', '+']));
    scripts.next().map(|(index, _)| index)
}

/// The item that a shell does not read as a part of its script, though it was meant so.
fn unused<'i, 'a>(items: &'i [(&'a str, Place<'a>)]) -> Option<&'i (&'a str, Place<'a>)> {
    let at = items.iter().position(|(text, _)| is_script_option(text));
    let Some(option) = at else {
        // Without `-c` the first word is the file of a script.
        let file = items.get(1)?;
        let is_line = !file.0.starts_with('-') && file.0.trim().contains(' ');
        return is_line.then_some(file);
    };
    let at = script_after(items, option)?;
    let (script, _) = items.get(at)?;
    let next = items.get(at + 1)?;
    let takes = [
        "$@", "$*", "$#", "$0", "${@", "${*", "${#", "shift", "getopts",
    ];
    let counted = |text: &str| {
        let mut parts = text.split('$').skip(1);
        parts.any(|part| {
            part.trim_start_matches('{')
                .starts_with(|c: char| c.is_ascii_digit())
        })
    };
    let reads = takes.iter().any(|mark| script.contains(mark)) || counted(script);
    let is_one_word = !script.trim().contains(char::is_whitespace);
    let is_name = matches!(next.0, "--" | "-" | "_") || SHELLS.contains(&base_name(next.0));
    let lost = next.0.starts_with("--") || is_one_word;
    (!reads && !script.contains('$') && lost && !is_name).then_some(next)
}

/// What stands between a command and the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    And,
    Or,
    Pipe,
    Next,
    Background,
    End,
}

/// The commands of a script in their order, each with what follows it; `None` where the script decides what it runs.
fn commands(script: &str) -> Option<Vec<(String, Then)>> {
    const DECIDING: [&str; 16] = [
        "case", "do", "done", "else", "exec", "fi", "for", "function", "if", "then", "trap",
        "until", "wait", "while", "{", "[[",
    ];
    let mut found: Vec<(String, Then)> = Vec::new();
    let mut text = String::new();
    let mut quote: Option<char> = None;
    let mut depth = 0_u32;
    let mut chars = script.chars().peekable();
    let mut last = '\n';
    let mut end = |text: &mut String, then: Then| {
        let command = text.trim().to_owned();
        text.clear();
        if !command.is_empty() {
            found.push((command, then));
        } else if let Some(before) = found.last_mut()
            && !matches!(then, Then::Next | Then::End)
        {
            // A line may end with what stands between two commands.
            before.1 = then;
        }
    };
    while let Some(c) = chars.next() {
        let before = std::mem::replace(&mut last, c);
        if let Some(open) = quote {
            text.push(c);
            if c == '\\' && open == '"' {
                text.extend(chars.next());
            } else if c == open {
                quote = None;
            }
            continue;
        }
        match c {
            '\\' if chars.peek() == Some(&'\n') => {
                chars.next();
                text.push(' ');
            }
            '\\' => {
                text.push(c);
                text.extend(chars.next());
            }
            '\'' | '"' => {
                quote = Some(c);
                text.push(c);
            }
            '#' if before.is_whitespace() => {
                while chars.peek().is_some_and(|next| *next != '\n') {
                    chars.next();
                }
            }
            '<' if chars.peek() == Some(&'<') => return None,
            '(' => {
                depth += 1;
                text.push(c);
            }
            ')' => {
                depth = depth.saturating_sub(1);
                text.push(c);
            }
            _ if depth > 0 => text.push(c),
            '&' if chars.peek() == Some(&'&') => {
                chars.next();
                end(&mut text, Then::And);
            }
            '&' if before == '>' || before == '<' || chars.peek() == Some(&'>') => text.push(c),
            '&' => end(&mut text, Then::Background),
            '|' if chars.peek() == Some(&'|') => {
                chars.next();
                end(&mut text, Then::Or);
            }
            '|' if before == '>' => text.push(c),
            '|' => {
                if chars.peek() == Some(&'&') {
                    chars.next();
                }
                end(&mut text, Then::Pipe);
            }
            ';' | '\n' => end(&mut text, Then::Next),
            _ => text.push(c),
        }
    }
    end(&mut text, Then::End);
    if let Some((_, then)) = found.last_mut()
        && *then == Then::Next
    {
        *then = Then::End;
    }
    let mut firsts = found
        .iter()
        .filter_map(|(command, _)| command.split_whitespace().next());
    let decides = quote.is_some() || depth > 0 || firsts.any(|word| DECIDING.contains(&word));
    (!decides && !script.contains("$?") && !script.contains("PIPESTATUS")).then_some(found)
}

/// The program of a command: the first word that sets no variable.
fn program(command: &str) -> &str {
    const BEFORE: [&str; 5] = ["env", "nice", "nohup", "time", "stdbuf"];
    let mut words = command.split_whitespace();
    let found = words.find(|word| {
        let sets = word.split_once('=').is_some_and(|(name, _)| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        });
        !sets && !BEFORE.contains(word) && !word.starts_with('-')
    });
    base_name(found.unwrap_or_default())
}

/// Programs that train.
const TRAINING: [&str; 9] = [
    "accelerate",
    "colossalai",
    "deepspeed",
    "horovodrun",
    "mpiexec",
    "mpirun",
    "python",
    "python3",
    "torchrun",
];

/// Commands that never fail.
const ALWAYS_SUCCEED: [&str; 5] = [":", "date", "echo", "sleep", "true"];

/// Whether a command waits for nobody.
fn waits_forever(command: &str) -> bool {
    let words: Vec<&str> = command.split_whitespace().collect();
    match words.as_slice() {
        ["sleep", "infinity" | "inf"] | ["tail", "-f", "/dev/null"] => true,
        ["sleep", time] => time
            .trim_end_matches('d')
            .parse::<u64>()
            .is_ok_and(|count| count >= 86_400 || time.ends_with('d')),
        _ => false,
    }
}

/// The script of a shell with its place, and whether a failure ends it and whether a pipe passes one on.
struct Script<'a> {
    text: &'a str,
    place: Place<'a>,
    ends_at_failure: bool,
    passes_on: bool,
}

fn script<'a>(pod: &Pod<'a>) -> Option<Script<'a>> {
    let items = items(pod.trainer, &pod.trainer_at());
    let (program, _) = items.first()?;
    let at = items.iter().position(|(text, _)| is_script_option(text))?;
    if !SHELLS.contains(&base_name(program)) {
        return None;
    }
    let at = script_after(&items, at)?;
    let options: Vec<&str> = items.iter().take(at).map(|(text, _)| *text).collect();
    let (text, place) = items.get(at)?;
    let sets = |letter: char| {
        text.lines().flat_map(|line| line.split(';')).any(|part| {
            let mut words = part.split_whitespace();
            let letters = words.find(|word| word.starts_with('-')).unwrap_or_default();
            part.trim_start().starts_with("set ") && letters.contains(letter)
        })
    };
    let by_option = options
        .iter()
        .skip(1)
        .any(|option| option.starts_with('-') && option.contains('e'));
    Some(Script {
        ends_at_failure: by_option || sets('e') || text.contains("errexit"),
        passes_on: text.contains("pipefail") || options.contains(&"pipefail"),
        text,
        place: place.clone(),
    })
}

fn lost_exit_code(rule: &Rule, scene: &Scene<'_>) {
    for pod in &scene.pods {
        let Some(script) = script(pod) else {
            continue;
        };
        let Some(commands) = commands(script.text) else {
            continue;
        };
        let Some(at) = commands
            .iter()
            .rposition(|(command, _)| TRAINING.contains(&program(command)))
        else {
            continue;
        };
        let Some((last, rest)) = commands.get(at).zip(commands.get(at + 1..)) else {
            continue;
        };
        let name = program(&last.0);
        let succeeds = |command: &str| {
            ALWAYS_SUCCEED.contains(&program(command)) || command.trim() == "exit 0"
        };
        let found = match last.1 {
            Then::Pipe if !script.passes_on => {
                let to = rest.first().map_or("", |(command, _)| program(command));
                Some((
                    format!(
                        "a failure of `{name}` is lost in the pipe, the exit code is that of `{to}`"
                    ),
                    "write `set -o pipefail` first, which `bash` knows",
                ))
            }
            Then::Or if rest.first().is_some_and(|(command, _)| succeeds(command)) => Some((
                format!("a failure of `{name}` is turned into a success by `||`"),
                "remove what comes after `||`",
            )),
            Then::Background => Some((
                format!("the script does not wait for `{name}`, which runs in the background"),
                "remove the `&`, or end the script with `wait`",
            )),
            Then::Next if !script.ends_at_failure => {
                let last = rest.last().map(|(command, _)| command.as_str());
                last.filter(|command| succeeds(command)).map(|command| {
                    (
                        format!(
                            "a failure of `{name}` is lost, the exit code is that of `{}`",
                            shown(command)
                        ),
                        "write `set -e` first",
                    )
                })
            }
            _ => None,
        };
        if let Some((message, hint)) = found {
            script.place.report_with(rule, message, hint);
        }
    }
}

fn never_ends(rule: &Rule, scene: &Scene<'_>) {
    // What starts ranks in other pods enters them while they wait.
    let enters = |pod: &Pod<'_>| {
        let names = [
            "mpirun",
            "mpiexec",
            "horovodrun",
            "deepspeed",
            "kubectl",
            "ssh",
            "pdsh",
            "ray",
        ];
        pod.command().call(&names).is_some()
    };
    let entered = scene.pods.iter().any(enters);
    for pod in scene.pods.iter().filter(|pod| pod.gpus() > 0) {
        if entered || scene.job.kind.is_mpi() && pod.role == Role::Worker {
            continue;
        }
        let words = pod.command();
        let (last, place) = if let Some(script) = script(pod) {
            let commands = commands(script.text).unwrap_or_default();
            let last = commands.last().map(|(command, _)| command.clone());
            (last.unwrap_or_default(), script.place)
        } else {
            let texts: Vec<&str> = words.words.iter().map(|word| word.text).collect();
            (texts.join(" "), pod.command_at(0))
        };
        if waits_forever(&last) {
            place.report_with(
                rule,
                format!("`{last}` never ends, and keeps the GPUs of the pod"),
                "let the training be the last command",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_divided_into_commands() {
        use Then::{And, Background, End, Next, Or, Pipe};
        type Case<'a> = (&'a str, Option<&'a [(&'a str, Then)]>);
        let cases: &[Case<'_>] = &[
            (
                "a; b\n# c\nd",
                Some(&[("a", Next), ("b", Next), ("d", End)]),
            ),
            ("a && b || c", Some(&[("a", And), ("b", Or), ("c", End)])),
            ("a 2>&1 | tee x", Some(&[("a 2>&1", Pipe), ("tee x", End)])),
            ("a &> x", Some(&[("a &> x", End)])),
            ("a \\\n --b", Some(&[("a   --b", End)])),
            ("a &&\n b", Some(&[("a", And), ("b", End)])),
            ("a 'x; y' \"z | w\"", Some(&[("a 'x; y' \"z | w\"", End)])),
            ("a $(b; c) &", Some(&[("a $(b; c)", Background)])),
            ("a; echo done", Some(&[("a", Next), ("echo done", End)])),
            ("if a; then b; fi", None),
            ("cat <<EOF\na\nEOF", None),
            ("a; test $? = 0", None),
            ("a 'b", None),
        ];
        for (script, want) in cases {
            let want = want.map(|want| {
                let owned = want.iter().map(|(text, then)| ((*text).to_owned(), *then));
                owned.collect::<Vec<_>>()
            });
            assert_eq!(commands(script), want, "{script:?}");
        }
    }

    #[test]
    fn programs_are_found_behind_what_is_set() {
        let cases = [
            ("A=1 B=2 torchrun a.py", "torchrun"),
            ("nohup /usr/bin/python3 a.py", "python3"),
            ("  ", ""),
            ("time python a.py", "python"),
        ];
        for (command, want) in cases {
            assert_eq!(program(command), want, "{command:?}");
        }
        for (command, want) in [
            ("sleep infinity", true),
            ("sleep 86400", true),
            ("sleep 1d", true),
            ("sleep 30", false),
            ("tail -f /dev/null", true),
            ("tail -f /logs/a", false),
        ] {
            assert_eq!(waits_forever(command), want, "{command:?}");
        }
    }
}
