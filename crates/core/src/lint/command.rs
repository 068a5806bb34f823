//! What a container runs, word by word, also where a shell is given a script.
//!
//! Owns how options are found in a command line. It does not expand variables: a word that holds
//! one is a word whose value is not known.

use k8s_openapi::api::core::v1::Container;

use crate::spec::placeholder::is_variable;

/// A command line.
#[derive(Debug)]
pub(super) struct Command<'a> {
    pub(super) words: Vec<Word<'a>>,
    /// Whether a shell reads the words, and may therefore do anything with them.
    pub(super) is_shell: bool,
}

/// One word of a command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word<'a> {
    pub(super) text: &'a str,
    /// The item of `command` and `args` it is from.
    pub(super) item: usize,
}

/// Programs that take a script as the argument after `-c`.
pub(super) const SHELLS: [&str; 5] = ["sh", "bash", "dash", "zsh", "ash"];

impl<'a> Command<'a> {
    pub(super) fn of(container: &'a Container) -> Self {
        let command = container.command.iter().flatten();
        let items: Vec<&str> = command
            .chain(container.args.iter().flatten())
            .map(String::as_str)
            .collect();
        let is_shell = items.first().is_some_and(|program| {
            SHELLS.contains(&base_name(program))
                && items.iter().skip(1).any(|item| is_script_option(item))
        });
        let words = items.iter().enumerate().flat_map(|(item, text)| {
            let parts: Vec<&str> = if is_shell {
                text.lines()
                    .filter(|line| !line.trim_start().starts_with('#'))
                    .flat_map(str::split_whitespace)
                    .map(|word| word.trim_matches(['"', '\'', ';', '(', ')']))
                    .filter(|word| !word.is_empty() && *word != "\\")
                    .collect()
            } else {
                vec![*text]
            };
            parts.into_iter().map(move |text| Word { text, item })
        });
        Self {
            words: words.collect(),
            is_shell,
        }
    }

    /// Whether there is no command at all.
    pub(super) fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The place of the first word that calls one of `programs`, by whatever path.
    pub(super) fn call(&self, programs: &[&str]) -> Option<usize> {
        self.words
            .iter()
            .position(|word| programs.contains(&base_name(word.text)))
    }

    /// The place of `module` in `-m module`.
    pub(super) fn module(&self, module: &str) -> Option<usize> {
        self.words
            .windows(2)
            .position(|pair| matches!(pair, [m, name] if m.text == "-m" && name.text == module))
            .map(|at| at + 1)
    }

    /// The place of the word that starts torchrun.
    pub(super) fn torchrun(&self) -> Option<usize> {
        self.call(&["torchrun"])
            .or_else(|| self.module("torch.distributed.run"))
    }

    /// The place of the word that starts one process for each GPU of a pod, by whatever launcher.
    pub(super) fn node_launcher(&self) -> Option<usize> {
        self.torchrun()
            .or_else(|| self.module("torch.distributed.launch"))
            .or_else(|| self.call(&["accelerate", "deepspeed"]))
    }

    /// The place of the word that starts `mpirun`.
    pub(super) fn mpirun(&self) -> Option<usize> {
        self.call(&["mpirun", "mpiexec", "mpiexec.hydra"])
    }

    /// The value of `mpirun`'s own option with one of `names`: what comes after the program that it
    /// starts belongs to that program.
    pub(super) fn mpirun_option(&self, names: &[&str]) -> Option<Word<'a>> {
        let mut words = self.words.iter().skip(self.mpirun()? + 1);
        while let Some(word) = words.next() {
            if !word.text.starts_with('-') {
                return None;
            }
            if names.contains(&word.text) {
                return words.next().copied();
            }
            for _ in 0..values_of(word.text) {
                words.next();
            }
        }
        None
    }

    /// What a shell script or the options of `mpirun` set: the word after the name and `=`.
    ///
    /// `export NAME=value`, `NAME=value program` and `-x NAME=value` all have that form.
    pub(super) fn assignments(&self) -> impl Iterator<Item = (&'a str, Word<'a>)> {
        let sets = self.is_shell || self.mpirun().is_some();
        self.words.iter().filter(move |_| sets).filter_map(|word| {
            // An option and its value in one item is another rule's, and means the same.
            let text = word.text.strip_prefix("-x ").unwrap_or(word.text).trim();
            let (name, value) = text.split_once('=')?;
            let value = Word {
                text: value.trim_matches(['"', '\'']),
                item: word.item,
            };
            is_variable(name).then_some((name, value))
        })
    }

    /// The value of the option with one of `names`, as `--name value` or `--name=value`. Names are
    /// compared as torchrun does: `-` and `_` are the same.
    pub(super) fn option(&self, names: &[&str]) -> Option<Word<'a>> {
        let same = |left: &str, right: &str| {
            left.len() == right.len()
                && left
                    .bytes()
                    .zip(right.bytes())
                    .all(|(a, b)| a == b || matches!((a, b), (b'-' | b'_', b'-' | b'_')))
        };
        let known = |text: &str| names.iter().any(|name| same(name, text));
        self.words.iter().enumerate().find_map(|(at, word)| {
            if known(word.text) {
                return self.words.get(at + 1).copied();
            }
            let (name, value) = word.text.split_once('=')?;
            known(name).then_some(Word {
                text: value,
                item: word.item,
            })
        })
    }
}

/// Words that an option of `mpirun` takes, of Open MPI and of those with Hydra.
fn values_of(option: &str) -> usize {
    const TWO: [&str; 6] = ["mca", "gmca", "omca", "prtemca", "pmixmca", "genv"];
    const ONE: [&str; 42] = [
        "N",
        "H",
        "bind-to",
        "bootstrap",
        "c",
        "cpu-list",
        "cpu-set",
        "cpus-per-proc",
        "cpus-per-rank",
        "default-hostfile",
        "f",
        "genvlist",
        "host",
        "hostfile",
        "hosts",
        "iface",
        "launcher",
        "launcher-exec",
        "machinefile",
        "map-by",
        "n",
        "np",
        "npernode",
        "output",
        "output-filename",
        "path",
        "perhost",
        "personality",
        "ppn",
        "prefix",
        "rank-by",
        "rankfile",
        "report-uri",
        "rf",
        "stdin",
        "timeout",
        "tune",
        "wd",
        "wdir",
        "x",
        "xterm",
        "app",
    ];
    let name = option.trim_start_matches('-');
    if TWO.contains(&name) {
        2
    } else {
        usize::from(ONE.contains(&name))
    }
}

/// The name of a program without its folders.
pub(super) fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// `-c`, or a bundle of options with it, such as `-lc` or `-euxc`.
pub(super) fn is_script_option(item: &str) -> bool {
    item.strip_prefix('-').is_some_and(|letters| {
        letters.ends_with('c') && letters.bytes().all(|byte| byte.is_ascii_lowercase())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(items: &[&str]) -> Container {
        Container {
            command: Some(items.iter().map(|item| (*item).to_owned()).collect()),
            ..Container::default()
        }
    }

    #[test]
    fn options_are_found_however_they_are_written() {
        let cases: &[(&str, &[&str], Option<u64>)] = &[
            ("two words", &["torchrun", "--nnodes", "4", "t.py"], Some(4)),
            ("one word", &["torchrun", "--nnodes=4", "t.py"], Some(4)),
            ("a variable", &["torchrun", "--nnodes=$(N)", "t.py"], None),
            ("absent", &["torchrun", "t.py"], None),
            ("without value", &["torchrun", "--nnodes"], None),
            (
                "a script",
                &["bash", "-ec", "cd /a && torchrun --nnodes 4 t.py"],
                Some(4),
            ),
            ("no script", &["bash", "run --nnodes 4"], None),
            ("another name", &["torchrun", "--nnodesx=4"], None),
        ];
        for (name, items, want) in cases {
            let container = container(items);
            let found = Command::of(&container).option(&["--nnodes"]);
            let number = found.and_then(|word| word.text.parse().ok());
            assert_eq!(number, *want, "{name}");
        }
        let dashes = container(&["torchrun", "--nproc-per-node=2"]);
        assert!(Command::of(&dashes).option(&["--nproc_per_node"]).is_some());
    }

    #[test]
    fn options_of_mpirun_end_at_its_program() {
        let cases: &[(&str, &[&str], Option<&str>)] = &[
            ("before others", &["mpirun", "-np", "4", "ring"], Some("4")),
            (
                "after options with values",
                &[
                    "mpirun", "-v", "--mca", "btl", "^openib", "-x", "A=1", "-n", "4", "ring",
                ],
                Some("4"),
            ),
            (
                "of the program",
                &["mpirun", "-v", "ring", "-n", "100"],
                None,
            ),
            ("of the shell", &["bash", "-c", "mpirun ring -n 100"], None),
            (
                "of mpirun in a script",
                &["sh", "-ec", "cd /w\nmpirun \\\n  -np 4 \\\n  ring -n 100"],
                Some("4"),
            ),
            (
                "in a comment",
                &["sh", "-c", "# mpirun -np 9 ring\nmpirun -np 4 ring"],
                Some("4"),
            ),
            ("no mpirun", &["ring", "-np", "4"], None),
        ];
        for (name, items, want) in cases {
            let container = container(items);
            let found = Command::of(&container).mpirun_option(&["-np", "-n"]);
            assert_eq!(found.map(|word| word.text), *want, "{name}");
        }
    }

    #[test]
    fn what_a_command_sets_is_found() {
        type Case<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)]);
        let cases: &[Case<'_>] = &[
            (&["mpirun", "-x", "A=1", "-x", "B", "ring"], &[("A", "1")]),
            (
                &["sh", "-c", "export A=\"1\"; B=2 train --lr=3 4=5"],
                &[("A", "1"), ("B", "2")],
            ),
            (&["train", "A=1"], &[]),
        ];
        for (items, want) in cases {
            let container = container(items);
            let command = Command::of(&container);
            let found: Vec<(&str, &str)> = command
                .assignments()
                .map(|(name, word)| (name, word.text))
                .collect();
            assert_eq!(found, *want, "{items:?}");
        }
    }

    #[test]
    fn programs_are_found_by_any_path() {
        let full = container(&["/usr/local/bin/torchrun", "t.py"]);
        assert_eq!(Command::of(&full).torchrun(), Some(0));
        let module = container(&["python", "-m", "torch.distributed.run", "t.py"]);
        assert_eq!(Command::of(&module).torchrun(), Some(2));
        let other = container(&["python", "torchrun.py"]);
        assert_eq!(Command::of(&other).torchrun(), None);
    }
}
