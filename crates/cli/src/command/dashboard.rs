//! The dashboard of this machine.

#[cfg_attr(
    not(test),
    expect(
        dead_code,
        reason = "the command that serves these answers is not here yet"
    )
)]
pub(crate) mod local;
