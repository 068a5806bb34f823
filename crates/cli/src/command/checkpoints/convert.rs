//! `trainyard checkpoints convert`: the same tensors in another format.

use std::sync::Arc;

use serde_json::json;
use trainyard_checkpoint_engine::formats::{
    self,
    convert::{Options, convert},
    open,
};

use super::{diff::cannot, work::with_progress};
use crate::{
    args::{CheckpointsConvert, ConvertTo, Format},
    failure::{Exit, Failure},
    printer::Printer,
    words,
};

/// Converts and prints what was written.
pub(super) fn run(args: &CheckpointsConvert, printer: &mut Printer) -> Result<Exit, Failure> {
    let to = match args.to {
        ConvertTo::Safetensors => formats::Format::Safetensors,
        ConvertTo::Hf => formats::Format::Hf,
        ConvertTo::Dcp => formats::Format::Dcp,
        ConvertTo::Trainyard => formats::Format::Trainyard,
    };
    let found = open::format(&args.source).map_err(|error| cannot(&error))?;
    let is_ours = found == formats::Format::Trainyard;
    let number = args.step.as_ref().and_then(|step| step.parse::<u64>().ok());
    if args.step.is_some() && !is_ours && (to != formats::Format::Trainyard || number.is_none()) {
        return Err(Failure::new(
            "`--step` needs a folder of checkpoints as SRC, or a number with `--to trainyard`",
        ));
    }
    let step = args.step.as_deref().filter(|_| is_ours);
    let mut contents = open(&args.source, step).map_err(|error| cannot(&error))?;
    let had = contents.tensors.len();
    let had_state = contents.state.is_some();
    contents
        .select(args.only.as_deref(), args.strip.as_deref())
        .map_err(|error| cannot(&error))?;
    if contents.tensors.is_empty() && had > 0 {
        return Err(Failure::new(format!(
            "no name of the {} begins with `{}`",
            words::counted(had as u64, "tensor"),
            args.only.as_deref().unwrap_or_default()
        )));
    }
    let is_selected = args.only.is_some() || args.strip.is_some();
    let options = Options {
        to,
        max_shard_bytes: args.max_shard_size,
        step: contents.step.or(number).unwrap_or(0),
        force: args.force,
    };
    let total = contents.bytes().saturating_mul(2);
    let contents = Arc::new(contents);
    let (source, destination) = (args.source.clone(), args.destination.clone());
    let mut converted = with_progress(total, "written and read back", printer, move |done| {
        convert(&contents, &source, &destination, &options, done)
    })?
    .map_err(|error| cannot(&error))?;
    if is_selected && had_state {
        converted
            .left_out
            .push("small state, because tensors were selected or renamed".into());
    }
    if args.format == Format::Json {
        printer.json(&json!({
            "version": 1,
            "from": found.name(),
            "to": to.name(),
            "destination": args.destination,
            "tensors": converted.tensors,
            "bytes": converted.bytes,
            "leftOut": converted.left_out,
        }))?;
    } else {
        printer.data(
            format!(
                "wrote `{}` ({}): {}, {} bytes, read back\n",
                args.destination.display(),
                to.name(),
                words::counted(converted.tensors, "tensor"),
                words::grouped(converted.bytes)
            )
            .as_bytes(),
        )?;
        for left_out in &converted.left_out {
            printer.summary(&format!("left out: {left_out}"));
        }
    }
    Ok(Exit::Done)
}
