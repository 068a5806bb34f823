//! The form of the frames between supervisors, and between the leader and the operator, which both programs must agree on: a length, a kind of one
//! byte, the content.

/// Bytes of the length, big-endian, which counts the kind and the content.
pub const LENGTH_BYTES: usize = 4;

/// From the leader to the operator, first: the token of its pod.
pub const TOKEN: u8 = b'T';
/// From the leader to the operator: `Envelope<Summary>`.
pub const SUMMARY: u8 = b'S';
/// From the operator to the leader: `Envelope<OperatorMessage>`.
pub const ORDER: u8 = b'O';

/// Bytes of a token, at most. Those of Kubernetes have about 1 KiB.
pub const MAX_TOKEN: usize = 16 * 1024;
