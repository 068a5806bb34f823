//! Where the steps of a trace begin and end.
//!
//! `torch.profiler` marks steps itself (`ProfilerStep#3`). A trace on demand has no such marks, but Kineto's hook annotates every
//! `Optimizer.step`, so a step is what lies between the ends of two of them.

use std::collections::BTreeMap;

use crate::{
    intervals::Interval,
    trace::{Span, Trace},
};

/// How `PyTorch` names what the backward pass does.
const BACKWARD: &str = "autograd::engine::evaluate_function";

/// One whole step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// The number that the program gave it.
    pub(crate) number: Option<u64>,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// The steps of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Steps {
    /// In order of time; they touch.
    pub(crate) steps: Vec<Step>,
    /// The thread that trains.
    pub(crate) thread: Option<u32>,
}

impl Steps {
    pub(crate) fn of(trace: &Trace) -> Self {
        let marked = marked_steps(trace);
        if marked.steps.is_empty() {
            optimizer_steps(trace)
        } else {
            marked
        }
    }

    /// From the start of the first to the end of the last.
    pub(crate) fn window(&self) -> Option<Interval> {
        Some((self.steps.first()?.start, self.steps.last()?.end))
    }

    /// The index of the step in which `at` lies.
    pub(crate) fn at(&self, at: u64) -> Option<usize> {
        let index = self.steps.partition_point(|step| step.end <= at);
        let step = self.steps.get(index)?;
        (step.start <= at).then_some(index)
    }
}

/// The steps that the program itself marked.
fn marked_steps(trace: &Trace) -> Steps {
    let mut marks: Vec<(u64, u64, u64, u32)> = Vec::new();
    for span in &trace.annotations {
        let number = trace.name(span.name).strip_prefix("ProfilerStep#");
        if let Some(number) = number.and_then(|number| number.parse().ok()) {
            marks.push((span.start, span.start + span.duration, number, span.thread));
        }
    }
    marks.sort_unstable();
    marks.dedup_by_key(|mark| mark.2);
    let starts: Vec<u64> = marks.iter().map(|mark| mark.0).collect();
    let steps = marks.iter().enumerate().map(|(at, mark)| Step {
        number: Some(mark.2),
        start: mark.0,
        end: starts.get(at + 1).copied().unwrap_or(mark.1),
    });
    Steps {
        steps: steps.filter(|step| step.start < step.end).collect(),
        thread: marks.first().map(|mark| mark.3),
    }
}

/// The steps between the ends of `Optimizer.step`. Optimizers with no backward pass between them belong to one step.
fn optimizer_steps(trace: &Trace) -> Steps {
    let is_mark = trace.names_where(|name| name.starts_with("Optimizer.step#"));
    let marks = trace.annotations.iter();
    let marks: Vec<&Span> = marks.filter(|span| is_mark.contains(span.name)).collect();
    let mut threads: BTreeMap<u32, usize> = BTreeMap::new();
    for mark in &marks {
        *threads.entry(mark.thread).or_default() += 1;
    }
    let thread = threads.iter().max_by_key(|(_, count)| **count);
    let Some(thread) = thread.map(|(thread, _)| *thread) else {
        return Steps::default();
    };
    let own = marks.iter().filter(|mark| mark.thread == thread);
    let mut own: Vec<Interval> = own
        .map(|mark| (mark.start, mark.start + mark.duration))
        .collect();
    own.sort_unstable();
    let is_backward = trace.names_where(|name| name.starts_with(BACKWARD));
    let operators = trace.operators.iter();
    let backward = operators.filter(|span| is_backward.contains(span.name));
    let mut backward: Vec<u64> = backward.map(|span| span.start).collect();
    backward.sort_unstable();
    let separates = |from: u64, to: u64| {
        let next = backward.get(backward.partition_point(|at| *at < from));
        backward.is_empty() || next.is_some_and(|at| *at < to)
    };
    let mut cuts: Vec<u64> = Vec::new();
    let next_starts = own.iter().skip(1).map(|next| Some(next.0)).chain([None]);
    for (mark, next) in own.iter().zip(next_starts) {
        if next.is_none_or(|next| separates(mark.1, next)) {
            cuts.push(mark.1);
        }
    }
    // One optimizer may call another.
    cuts.sort_unstable();
    cuts.dedup();
    let steps = cuts.iter().zip(cuts.iter().skip(1));
    Steps {
        steps: steps
            .map(|(start, end)| Step {
                number: None,
                start: *start,
                end: *end,
            })
            .collect(),
        thread: Some(thread),
    }
}

/// Threads that run the backward pass.
pub(crate) fn backward_threads(trace: &Trace) -> Vec<u32> {
    let is_backward = trace.names_where(|name| name.starts_with(BACKWARD));
    let operators = trace.operators.iter();
    let backward = operators.filter(|span| is_backward.contains(span.name));
    let mut threads: Vec<u32> = backward.map(|span| span.thread).collect();
    threads.sort_unstable();
    threads.dedup();
    threads
}
