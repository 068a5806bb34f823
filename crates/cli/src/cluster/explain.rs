//! `trainyard explain JOB --cluster`: gathers what is known.

use trainyard_core::explain::Facts;

use super::{connect, refused};
use crate::{args::Explain, failure::Failure};

/// What is known of the job.
pub(crate) fn facts(args: &Explain) -> Result<Facts, Failure> {
    let site = connect(&args.place)?;
    let job = site.find(&args.which.job)?;
    let words = site.words(&args.which.job);
    site.look.facts(&job, &words).map_err(refused)
}
