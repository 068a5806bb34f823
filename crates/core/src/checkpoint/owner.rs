//! Which replica writes a part of a tensor.

use super::layout::{Region, fnv1a};

/// The rank among `replicas` that writes the part of `tensor` they all have. `divided` is what the splits divide, not what one rank
/// has of it: so all shards of a tensor have their owner at the same place of the replica axis, and ranks there share a layout.
/// `None` where there are no replicas.
///
/// The place follows from a hash, so writers are balanced; it does not move when other tensors are added.
pub fn owner(tensor: &str, divided: &Region, replicas: &[u32]) -> Option<u32> {
    let mut key = tensor.as_bytes().to_vec();
    for number in divided.offsets.iter().chain(&divided.sizes) {
        key.extend_from_slice(&number.to_le_bytes());
    }
    // The low bits of the hash alone follow short keys too closely.
    let hash = fnv1a(&key);
    let mixed = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let place = mixed % (replicas.len().max(1) as u64);
    replicas.get(usize::try_from(place).unwrap_or(0)).copied()
}
