//! The power of GPUs while a job trains, sampled every five seconds.
//!
//! Only NVIDIA's library is asked: a static program would have to run `nvidia-smi` each time, which costs too much. The thread ends
//! when nobody takes samples any more.

use std::{
    sync::mpsc::{Receiver, TrySendError, sync_channel},
    thread,
    time::Duration,
};

use super::gpu::{self, Source, has_device};

/// Between two samples.
const EVERY: Duration = Duration::from_secs(5);
const STACK: usize = 512 * 1024;

/// A sample of one GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PowerSample {
    pub(super) index: u32,
    pub(super) uuid: String,
    /// What it draws now.
    pub milliwatts: u32,
    /// What it may draw.
    pub limit_milliwatts: u32,
}

impl PowerSample {
    /// Whether `name` is its number, or the beginning of its name.
    pub fn is_named(&self, name: &str) -> bool {
        gpu::is_named(self.index, &self.uuid, name)
    }
}

/// Samples of all GPUs.
#[derive(Debug)]
pub struct GpuPower {
    samples: Receiver<Vec<PowerSample>>,
}

impl GpuPower {
    /// Begins to sample. `None` where there is no GPU, or no thread.
    pub fn start() -> Option<Self> {
        if !has_device() {
            return None;
        }
        let (sender, samples) = sync_channel(1);
        let work = move || {
            let source = Source::open();
            while let Ok(all) = source.power() {
                // One that was not taken is not replaced: it is seconds old at most.
                if let Err(TrySendError::Disconnected(_)) = sender.try_send(all) {
                    return;
                }
                thread::sleep(EVERY);
            }
        };
        let thread = thread::Builder::new().name("gpu-power".to_owned());
        thread.stack_size(STACK).spawn(work).ok()?;
        Some(Self { samples })
    }

    /// The next sample of each GPU; nothing where there is none yet.
    pub fn take(&self) -> Vec<PowerSample> {
        self.samples.try_recv().unwrap_or_default()
    }
}
