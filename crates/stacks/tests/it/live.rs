//! Programs of real interpreters, read while they stand, run and end.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::program::{PATIENCE, Program, interpreters, short};
use trainyard_stacks::{
    Error, Stacks,
    process::{Process, State},
    python::MOST_FRAMES,
    waits::{Wait, wait_of},
};

/// What every script begins with. `stop` has a line of its own, so that a stack can be expected in it.
const START: &str = "\
import sys, threading
def stop():
    print('ready', flush=True)
    sys.stdin.read()  # stop
";

fn each(script: &str, check: impl Fn(&mut Program)) {
    for python in interpreters() {
        eprintln!("with {}", python.display());
        check(&mut Program::start(&python, &format!("{START}{script}")));
    }
}

#[test]
fn versions_that_are_tested() {
    let versions: Vec<(u8, u8)> = interpreters()
        .iter()
        .map(|python| {
            let program = Program::start(python, &format!("{START}stop()\n"));
            program.until(|stack| !stack.frames.is_empty());
            Stacks::open(program.pid()).unwrap().version()
        })
        .collect();
    let skipped: Vec<String> = (9..=14)
        .filter(|minor| !versions.contains(&(3, *minor)))
        .map(|minor| format!("3.{minor}"))
        .collect();
    println!("tested {versions:?}; skipped for want of an interpreter: {skipped:?}");
    assert!(
        versions
            .iter()
            .all(|version| ((3, 9)..=(3, 14)).contains(version)),
        "{versions:?}"
    );
}

#[test]
fn calls_lambdas_and_methods() {
    let script = "\
class Trainer:
    def step(self, call):
        x = [1,
             call()]  # step
        return x
def main():
    a = 1


    Trainer().step(lambda: stop())  # main
main()  # module
";
    each(script, |program| {
        let stack = program.stack_of(&[
            ("stop", "stop"),
            ("<lambda>", "main"),
            ("step", "step"),
            ("main", "main"),
            ("<module>", "module"),
        ]);
        assert_eq!(stack.frames.len(), 5, "{stack:#?}");
        assert!(stack.main && !stack.torn && !stack.truncated, "{stack:#?}");
        assert_eq!(stack.task, Some(program.pid()));
        assert!(stack.name.is_some());
        assert_eq!(stack.holds_gil, Some(false), "it reads a pipe");
    });
}

#[test]
fn lines_far_away_and_names_that_are_not_ascii() {
    // Lines that jump by more than a byte, backwards, and code that is longer than a byte can say.
    let blank = "\n".repeat(300);
    let long = "    x = x + 1\n".repeat(200);
    let script = format!(
        "\
def größe():
    stop()  # latin
def 模型(x):
{long}
    y = (größe(),{blank}         x)  # end
    return y  # far
模型(0)  # module
"
    );
    each(&script, |program| {
        let stack = program.until(|stack| stack.frames.first().is_some_and(|f| short(f) == "stop"));
        let names: Vec<&str> = stack.frames.iter().map(short).collect();
        assert_eq!(names, ["stop", "größe", "模型", "<module>"]);
        assert!(
            program.is_at(&stack.frames[1], "größe", "latin"),
            "{stack:#?}"
        );
        // The call is in the first line of a statement that ends 300 lines later.
        let first = program.line("end") - 300;
        assert_eq!(stack.frames[2].line, Some(first), "{stack:#?}");
        assert!(
            program.is_at(&stack.frames[3], "<module>", "module"),
            "{stack:#?}"
        );
    });
}

#[test]
fn generators_and_comprehensions() {
    let script = "\
def numbers():
    yield 1
    yield stop()  # numbers
def outer():
    yield from numbers()  # outer
def main():
    for number in outer():  # main
        pass
main()  # module
";
    each(script, |program| {
        program.stack_of(&[
            ("stop", "stop"),
            ("numbers", "numbers"),
            ("outer", "outer"),
            ("main", "main"),
            ("<module>", "module"),
        ]);
    });
}

#[test]
fn coroutines() {
    let script = "\
import asyncio
async def inner():
    await asyncio.sleep(0)
    stop()  # inner
async def work():
    await inner()  # work
asyncio.run(work())  # module
";
    each(script, |program| {
        let stack = program.stack_of(&[("stop", "stop"), ("inner", "inner"), ("work", "work")]);
        let last = stack.frames.last().unwrap();
        assert!(program.is_at(last, "<module>", "module"), "{stack:#?}");
    });
}

#[test]
fn threads() {
    let script = "\
import time
gate = threading.Lock()
gate.acquire()
def waits():
    gate.acquire()  # waits
def sleeps():
    while True:
        time.sleep(1000)  # sleeps
for target in [waits, waits, waits, sleeps]:
    threading.Thread(target=target, daemon=True).start()
stop()  # module
";
    each(script, |program| {
        program.stack_of(&[("waits", "waits")]);
        let sleeps = program.stack_of(&[("sleeps", "sleeps")]);
        assert!(!sleeps.main);
        let main = program.stack_of(&[("stop", "stop"), ("<module>", "module")]);
        assert!(main.main);
        let all = Stacks::of(program.pid()).unwrap();
        assert_eq!(all.len(), 5, "{all:#?}");
        assert!(all[0].main, "the oldest comes first");
        let waiting = all.iter().filter(|stack| {
            stack
                .frames
                .first()
                .is_some_and(|frame| program.is_at(frame, "waits", "waits"))
        });
        assert_eq!(waiting.count(), 3, "{all:#?}");
        // Before 3.11 the thread state does not say which task it is.
        if Stacks::open(program.pid()).unwrap().version() >= (3, 11) {
            let process = Process::read(program.pid()).unwrap();
            let task = process.task(sleeps.task.unwrap());
            assert_eq!(wait_of(&sleeps.frames, task), Wait::Sleep, "{task:#?}");
        }
    });
}

#[test]
fn deep_recursion_is_cut() {
    let script = "\
sys.setrecursionlimit(10000)
def down(depth):
    if depth == 0:
        stop()  # bottom
    else:
        down(depth - 1)  # down
down(900)
";
    each(script, |program| {
        let stack = program.stack_of(&[("stop", "stop"), ("down", "bottom"), ("down", "down")]);
        assert_eq!(stack.frames.len(), MOST_FRAMES);
        assert!(stack.truncated && !stack.torn);
    });
}

#[test]
fn a_forked_child() {
    let script = "\
import os
child = os.fork()
if child == 0:
    stop()  # child
    os._exit(0)
os.wait()  # parent
";
    each(script, |program| {
        program.stack_of(&[("<module>", "parent")]);
        let children = Process::read(program.pid()).unwrap().children;
        assert_eq!(children.len(), 1);
        let deadline = Instant::now() + PATIENCE;
        let stacks = loop {
            let stacks = Stacks::of(children[0]).unwrap();
            if stacks[0].frames.len() == 2 {
                break stacks;
            }
            assert!(Instant::now() < deadline, "{stacks:#?}");
        };
        assert!(
            program.is_at(&stacks[0].frames[1], "<module>", "child"),
            "{stacks:#?}"
        );
        assert_eq!((stacks[0].main, stacks[0].task), (true, Some(children[0])));
    });
}

#[test]
fn a_busy_loop_is_read_without_an_impossible_stack() {
    const READS: u32 = 1000;
    // Whoever is called has a name one longer than its caller.
    let script = "\
def ab(n):
    abc(n); abC(n)
def abc(n):
    abcd(n)
def abC(n):
    return [abCd(i) for i in range(n % 4)]
def abcd(n):
    return abCd(n)
def abCd(n):
    return sorted((lambda x: -x)(i) for i in range(n % 7))
def a():
    n = 0
    while True:
        n += 1
        ab(n)
print('ready', flush=True)
a()
";
    let callers = [
        ("a", "<module>"),
        ("ab", "a"),
        ("abc", "ab"),
        ("abC", "ab"),
        ("abcd", "abc"),
        ("abCd", "abcd"),
        ("abCd", "<listcomp>"),
        ("<listcomp>", "abC"),
        // Comprehensions have no frame from 3.12 on.
        ("abCd", "abC"),
        ("<genexpr>", "abCd"),
        ("<lambda>", "<genexpr>"),
    ];
    each(script, |program| {
        program.until(|stack| stack.frames.iter().any(|frame| short(frame) == "ab"));
        let stacks = Stacks::open(program.pid()).unwrap();
        let (mut torn, mut held, mut impossible) = (0, 0, 0);
        let mut before = Vec::new();
        for _ in 0..READS {
            let read = stacks.read().unwrap();
            assert_eq!(read.len(), 1, "{read:#?}");
            held += u32::from(read[0].holds_gil == Some(true));
            if read[0].torn {
                torn += 1;
                continue;
            }
            let names: Vec<&str> = read[0].frames.iter().map(short).collect();
            let called = names
                .windows(2)
                .all(|pair| callers.contains(&(pair[0], pair[1])));
            let is_possible = called && names.last() == Some(&"<module>");
            // Equal ones in a row count once: the process may have been preempted between two steps of the interpreter.
            if !is_possible && before != read[0].frames {
                eprintln!("impossible: {names:?}");
                impossible += 1;
            }
            before.clone_from(&read[0].frames);
        }
        eprintln!("{torn} of {READS} torn, {held} with the lock");
        assert!(torn < READS, "no stack was read");
        assert!(impossible <= READS / 100, "{impossible} impossible stacks");
        assert!(held > 0, "a busy loop holds the lock");
    });
}

#[test]
fn a_stopped_process() {
    let script = "\
def work():
    print('ready', flush=True)
    while True:
        pass
work()
";
    each(script, |program| {
        program.until(|stack| {
            stack
                .frames
                .first()
                .is_some_and(|frame| short(frame) == "work")
        });
        kill(Pid::from_raw(program.pid().cast_signed()), Signal::SIGSTOP).unwrap();
        let deadline = Instant::now() + PATIENCE;
        let process = loop {
            let process = Process::read(program.pid()).unwrap();
            if process.state == State::Stopped {
                break process;
            }
            assert!(Instant::now() < deadline, "{process:#?}");
        };
        let stacks = Stacks::of(program.pid()).unwrap();
        assert!(!stacks[0].torn);
        assert_eq!(short(&stacks[0].frames[0]), "work");
        assert_eq!(
            wait_of(&stacks[0].frames, process.task(program.pid())),
            Wait::Stopped
        );
    });
}

#[test]
fn a_process_that_ends_while_it_is_read() {
    each("stop()\n", |program| {
        program.until(|stack| stack.frames.len() == 2);
        let stacks = Stacks::open(program.pid()).unwrap();
        program.release();
        let deadline = Instant::now() + PATIENCE;
        let error = loop {
            match stacks.read() {
                Ok(_) | Err(Error::NotStarted { .. } | Error::Runtime { .. }) => {}
                Err(error) => break error,
            }
            assert!(Instant::now() < deadline, "it does not end");
        };
        // It is a zombie until it is collected, and unknown to the kernel then.
        assert!(matches!(error, Error::Gone { .. }), "{error:?}");
        program.child.wait().unwrap();
        assert!(matches!(stacks.read(), Err(Error::Gone { .. })));
        assert!(matches!(Stacks::of(program.pid()), Err(Error::Gone { .. })));
    });
}

#[test]
fn a_process_that_starts_while_it_is_read() {
    for python in interpreters() {
        let mut child = std::process::Command::new(&python)
            .args(["-c", "import sys; sys.stdin.read()"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + PATIENCE;
        let mut reads = 0;
        loop {
            match Stacks::of(child.id()) {
                Ok(stacks)
                    if stacks[0]
                        .frames
                        .first()
                        .is_some_and(|f| f.file == "<string>") =>
                {
                    break;
                }
                // A shell that becomes Python, the memory before `exec`, the linker, an interpreter that is being made.
                Ok(_)
                | Err(
                    Error::Gone { .. }
                    | Error::NotPython { .. }
                    | Error::NotStarted { .. }
                    | Error::Runtime { .. },
                ) => {}
                Err(error) => panic!("{error:?}"),
            }
            reads += 1;
            assert!(
                Instant::now() < deadline,
                "{reads} reads of {}",
                python.display()
            );
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn reading_is_fast_enough_to_compare_ranks() {
    // A hundred times what was measured on a loaded machine with two cores: 0.15 ms, without optimization.
    const MOST: Duration = Duration::from_millis(15);
    let program = Program::start(Path::new("python3"), &format!("{START}stop()\n"));
    program.until(|stack| stack.frames.len() == 2);
    let stacks = Stacks::open(program.pid()).unwrap();
    let fastest = (0..50).map(|_| {
        let start = Instant::now();
        stacks.read().unwrap();
        start.elapsed()
    });
    let fastest = fastest.min().unwrap();
    assert!(fastest < MOST, "{fastest:?}");
}
