//! `trainyard plan`: what fits, how fast, what it costs.
//!
//! Words and wiring; every figure is worked out in `core::plan`.

mod calibrate;
mod emit;
mod list;
mod request;
mod rows;
mod svg;
mod text;

use serde::Serialize;
use trainyard_core::plan::{
    answer::{self, Bound, Cost, Misfit, Point, WhatIf},
    confidence::{self, Interval, RESIDUALS},
    groups::{self, Axis, Order},
    hardware::TABLE_VERSION,
    recovery::{self, Component, Outlay, Recovery},
    search::{Candidate, Found, Request, search},
    tuning::Tuning,
};

use crate::{
    args::{Emit, Format, GroupOrder, Plan},
    failure::{Exit, Failure},
    printer::Printer,
};

/// Groups of more ranks than this are left out of the text; JSON has them all.
const RANKS_SHOWN: u32 = 256;

/// The JSON form. Documented in `docs/reference/json.md`; fields are only ever added.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    version: u32,
    table_version: u32,
    model: Model,
    cluster: trainyard_core::plan::hardware::Cluster,
    software: &'static str,
    sequence: u32,
    global_batch: u32,
    tuning: Tuning,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    assumptions: Vec<String>,
    tried: usize,
    fitting: usize,
    layouts: Vec<Candidate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    misfit: Option<Misfit>,
    #[serde(skip_serializing_if = "Option::is_none")]
    best: Option<Best>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    what_if: Vec<WhatIf>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    scaling: Vec<Point>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Model {
    name: String,
    parameters: f64,
    active_parameters: f64,
    shape: trainyard_core::plan::shape::Shape,
}

/// What is printed about the best layout only.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Best {
    #[serde(rename = "do")]
    advice: String,
    interval: Interval,
    trained_parameters: f64,
    host_bytes: f64,
    bound: Bound,
    convention: &'static str,
    parallelism: String,
    recovery: Outlay,
    failure_rates: Vec<Component>,
    cost: Cost,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    groups: Vec<AxisGroups>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mesh: Option<String>,
}

#[derive(Debug, Serialize)]
struct AxisGroups {
    axis: Axis,
    groups: Vec<Vec<u32>>,
}

/// Answers the question.
pub(super) fn run(args: &Plan, printer: &mut Printer) -> Result<Exit, Failure> {
    if let Some(path) = &args.rows {
        return rows::run(path, printer);
    }
    if args.calibrate {
        return calibrate::calibrate(&args.python, printer);
    }
    if !args.learn.is_empty() {
        return calibrate::learn(args, printer);
    }
    if let Some(what) = args.list {
        printer.data(list::list(what).as_bytes())?;
        return Ok(Exit::Done);
    }
    let (name, request) = request::of(args)?;
    if args.emit.is_some() && request.tuning != Tuning::default() {
        let message = "`--emit job` writes a job that trains all weights with AdamW on the GPU";
        let hint = "leave out `--lora`, `--qlora`, `--optimizer` and `--offload`";
        return Err(Failure::new(message).hint(hint));
    }
    let found = search(&request);
    let report = report(args, name, &request, &found)?;
    if let Some(folder) = &args.svg {
        svg::write(folder, &report, &request)?;
    }
    match (&args.emit, args.format) {
        (Some(Emit::Job), _) => {
            let Some(best) = &report.best else {
                printer.error(&nothing_fits(&report, &request));
                return Ok(Exit::Failed);
            };
            let file = emit::job(&request, &report.layouts[0], best, &report.model.name)?;
            printer.data(file.as_bytes())?;
        }
        (None, Format::Json) => {
            let json = serde_json::to_string_pretty(&report).map_err(anyhow::Error::from)?;
            printer.data(format!("{json}\n").as_bytes())?;
        }
        (None, Format::Text) => {
            if report.best.is_none() {
                printer.error(&nothing_fits(&report, &request));
                return Ok(Exit::Failed);
            }
            let paint = printer.stdout_paint();
            let text = text::render(&report, &request, args, printer.width(), paint);
            printer.data(text.as_bytes())?;
        }
    }
    Ok(if report.best.is_some() {
        Exit::Done
    } else {
        Exit::Failed
    })
}

fn nothing_fits(report: &Report, request: &Request) -> Failure {
    let Some(misfit) = &report.misfit else {
        return Failure::new("nothing fits");
    };
    let failure = Failure::new(misfit.sentence(&request.cluster));
    match &misfit.change {
        Some(change) => failure.hint(change.clone()),
        None => failure,
    }
}

fn report(args: &Plan, name: String, request: &Request, found: &Found) -> Result<Report, Failure> {
    let best = match found.ranked.first() {
        Some(candidate) => Some(best(args, request, candidate)?),
        None => None,
    };
    let candidate = found.ranked.first();
    Ok(Report {
        version: 1,
        table_version: TABLE_VERSION,
        model: Model {
            name,
            parameters: request.shape.parameters(),
            active_parameters: request.shape.active_parameters(),
            shape: request.shape.clone(),
        },
        cluster: request.cluster.clone(),
        software: request.software.name,
        sequence: request.sequence,
        global_batch: request.global_batch,
        tuning: request.tuning,
        assumptions: request::assumptions(args, request),
        tried: found.tried,
        fitting: found.ranked.len(),
        layouts: found.ranked.iter().take(args.top.max(1)).copied().collect(),
        misfit: candidate.is_none().then(|| answer::misfit(request, found)),
        best,
        what_if: match candidate {
            Some(candidate) if args.what_if => answer::what_ifs(request, candidate),
            _ => Vec::new(),
        },
        scaling: if candidate.is_some() && (args.scaling || args.svg.is_some()) {
            answer::scaling(request)
        } else {
            Vec::new()
        },
    })
}

fn best(args: &Plan, request: &Request, candidate: &Candidate) -> Result<Best, Failure> {
    let tokens = request::tokens(args, request)?;
    let hourly = args.on.price.unwrap_or(request.cluster.gpu.hourly);
    let hourly = request::not_negative("--price", hourly)?;
    let rates = request::rates(&args.recovery)?;
    let trained_parameters = request.tuning.trained(&request.shape);
    let storage = request::storage(args, request);
    let outlay = recovery::recovery(&Recovery {
        gpus: request.cluster.gpus,
        per_node: request.cluster.gpu.per_node,
        parameters: trained_parameters,
        rate: rates.iter().map(|component| component.rate).sum(),
        storage: 1e9 * request::positive("--storage", storage)?,
        saving: request::saving(args.recovery.saving),
        restart_seconds: request::not_negative("--restart", args.recovery.restart)?,
        train_seconds: tokens / candidate.tokens_per_second,
        repair_seconds: 3_600.0 * request::not_negative("--repair", args.recovery.repair)?,
    });
    let order = args.groups.map(|order| match order {
        GroupOrder::Megatron => Order::Megatron,
        GroupOrder::DeviceMesh => Order::DeviceMesh,
    });
    let interval = confidence::interval(&confidence::planned(request), RESIDUALS.iter());
    Ok(Best {
        advice: text::advice(request, candidate, &outlay, &interval),
        interval,
        trained_parameters,
        host_bytes: request
            .tuning
            .host_bytes(&request.shape, request.software.optimizer_bytes),
        bound: answer::bound(candidate, request),
        convention: trainyard_core::plan::flops::Convention::Model.name(),
        parallelism: groups::annotation(&candidate.layout),
        recovery: outlay,
        failure_rates: rates,
        cost: answer::cost(request, candidate, tokens, outlay.ettr, hourly),
        groups: match order {
            Some(_) => Axis::ALL
                .into_iter()
                .map(|axis| AxisGroups {
                    axis,
                    groups: groups::groups(&candidate.layout, axis),
                })
                .collect(),
            None => Vec::new(),
        },
        mesh: order.map(|order| order.mesh(&candidate.layout)),
    })
}
