//! The state of a run, and its encoding.
//!
//! The same bytes are a checkpoint file and what rank 0 hands to the other ranks at the start.
//! Numbers are little-endian:
//!
//! ```text
//! magic 8 | version u32 | seed u64 | data u64 | hidden u64 | world size u64 | step u64 | epoch u64
//! position u64 | random u128 | weights f32 … | velocity f32 … | checksum u64 of all before
//! ```
//!
//! Invariant: bytes that decode were written in full; a torn or altered file does not.

use thiserror::Error;

use crate::{digest::Digest, model::Shape, sampler::Cursor};

const MAGIC: [u8; 8] = *b"TYSMOKE\x1a";
const VERSION: u32 = 1;

/// What must be the same for a state to mean the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) seed: u64,
    /// Checksum of the data.
    pub(crate) data: u64,
    pub(crate) shape: Shape,
}

/// A run between two steps.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct State {
    pub(crate) identity: Identity,
    /// Ranks that trained it last.
    pub(crate) world_size: usize,
    /// Steps completed.
    pub(crate) step: u64,
    pub(crate) cursor: Cursor,
    pub(crate) weights: Vec<f32>,
    /// The optimizer's memory, one value per weight.
    pub(crate) velocity: Vec<f32>,
}

/// Why bytes are not a state.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum DecodeError {
    #[error("it is not a checkpoint of this trainer")]
    Magic,
    #[error("it has version {found}; expected {VERSION}")]
    Version { found: u32 },
    #[error("its checksum does not match: it is incomplete or was altered")]
    Checksum,
    #[error("it has the wrong length")]
    Length,
}

impl State {
    /// A run that has not begun.
    pub(crate) fn first(identity: Identity) -> Self {
        Self {
            identity,
            world_size: 0,
            step: 0,
            cursor: Cursor::default(),
            weights: identity.shape.first_weights(identity.seed),
            velocity: vec![0.0; identity.shape.parameters()],
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(128 + 8 * self.weights.len());
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        let numbers = [
            self.identity.seed,
            self.identity.data,
            self.identity.shape.hidden as u64,
            self.world_size as u64,
            self.step,
            self.cursor.epoch,
            self.cursor.position as u64,
        ];
        bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        bytes.extend(self.cursor.random.to_le_bytes());
        for values in [&self.weights, &self.velocity] {
            bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        }
        bytes.extend(Digest::of(&bytes).to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut rest = bytes;
        if take(&mut rest)? != MAGIC {
            return Err(DecodeError::Magic);
        }
        let found = u32::from_le_bytes(take(&mut rest)?);
        if found != VERSION {
            return Err(DecodeError::Version { found });
        }
        let Some((body, checksum)) = bytes.split_last_chunk() else {
            return Err(DecodeError::Length);
        };
        if Digest::of(body) != u64::from_le_bytes(*checksum) {
            return Err(DecodeError::Checksum);
        }
        let mut number = || take(&mut rest).map(u64::from_le_bytes);
        let (seed, data) = (number()?, number()?);
        let shape = Shape {
            hidden: small(number()?)?,
        };
        let world_size = small(number()?)?;
        let (step, epoch) = (number()?, number()?);
        let position = small(number()?)?;
        let random = u128::from_le_bytes(take(&mut rest)?);
        let values = rest.len().checked_sub(checksum.len());
        if values != Some(shape.parameters() * 2 * size_of::<f32>()) {
            return Err(DecodeError::Length);
        }
        let mut vector = || {
            let values = (0..shape.parameters()).map(|_| take(&mut rest).map(f32::from_le_bytes));
            values.collect::<Result<Vec<f32>, _>>()
        };
        Ok(Self {
            identity: Identity { seed, data, shape },
            world_size,
            step,
            cursor: Cursor {
                epoch,
                position,
                random,
            },
            weights: vector()?,
            velocity: vector()?,
        })
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], DecodeError> {
    let (head, tail) = rest.split_first_chunk().ok_or(DecodeError::Length)?;
    *rest = tail;
    Ok(*head)
}

/// A count that no honest file exceeds; larger ones would overflow what is computed from them.
fn small(number: u64) -> Result<usize, DecodeError> {
    let number = u32::try_from(number).map_err(|_| DecodeError::Length)?;
    usize::try_from(number).map_err(|_| DecodeError::Length)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const IDENTITY: Identity = Identity {
        seed: 42,
        data: 0xfeed,
        shape: Shape { hidden: 3 },
    };

    /// A state that looks trained.
    pub(crate) fn state(step: u64) -> State {
        State {
            world_size: 4,
            step,
            cursor: Cursor {
                epoch: 2,
                position: 96,
                random: u128::from(step) << 70,
            },
            velocity: IDENTITY.shape.first_weights(step),
            ..State::first(IDENTITY)
        }
    }

    #[test]
    fn state_round_trips() {
        assert_eq!(State::decode(&state(7).encode()), Ok(state(7)));
    }

    #[test]
    fn a_file_cut_anywhere_is_refused() {
        let bytes = state(7).encode();
        for length in 0..bytes.len() {
            assert!(State::decode(&bytes[..length]).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn a_flipped_bit_anywhere_is_found() {
        let bytes = state(7).encode();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            assert!(State::decode(&damaged).is_err(), "byte {at}");
        }
    }

    #[test]
    fn what_is_refused_says_why() {
        let sealed = |mut bytes: Vec<u8>| {
            bytes.extend(Digest::of(&bytes).to_le_bytes());
            State::decode(&bytes)
        };
        let bytes = state(7).encode();
        let body = &bytes[..bytes.len() - 8];
        let mut newer = body.to_vec();
        newer[8] = 9;
        let mut absurd = body.to_vec();
        absurd[28..36].fill(0xff);
        let cases = [
            (
                "another file",
                State::decode(b"#!/bin/sh\nexit 0\n"),
                DecodeError::Magic,
            ),
            ("newer", sealed(newer), DecodeError::Version { found: 9 }),
            (
                "longer",
                sealed([body, &[0; 4]].concat()),
                DecodeError::Length,
            ),
            ("absurd width", sealed(absurd), DecodeError::Length),
            ("empty", State::decode(b""), DecodeError::Length),
        ];
        for (name, found, wanted) in cases {
            assert_eq!(found, Err(wanted), "{name}");
        }
    }
}
