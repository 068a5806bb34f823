//! What GPUs and recorders show of ranks that run, or have just ended.
//!
//! Owns reading. What it says of a rank is [`trainyard_core::watch`]'s. The local engine and the supervisor of a pod call it.
//!
//! Invariant: where there is no device and no recorder, nothing is loaded, started or read again; a driver that hangs holds no thread of
//! the caller.

mod flight;
mod gpu;
mod gpu_memory;
mod gpu_power;
mod network;
mod ras;

pub use self::{
    flight::FlightRecorder,
    gpu_memory::{GpuMemory, MemoryWait, Waited},
    gpu_power::{GpuPower, PowerSample},
    network::network_bytes,
    ras::{ADDRESS as RAS_ADDRESS, Ras},
};
