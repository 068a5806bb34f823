//! What a line says besides numbers.

use memchr::memmem;

use super::Event;

/// The event of a line in lower case.
pub(super) fn of(line: &[u8]) -> Option<Event> {
    let has = |word: &[u8]| memmem::find(line, word).is_some();
    let one_of = |words: &[&[u8]]| words.iter().any(|word| has(word));
    if has(b"sav") && one_of(&[b"checkpoint", b"ckpt", b"model", b"state"]) {
        // An error, or a sentence about the settings.
        if one_of(&[
            b"fail", b"error", b"not sav", b"cannot", b"will ", b"every ", b"save_", b"skip",
            b"load", b"unable",
        ]) {
            return None;
        }
        if one_of(&[
            b"saved checkpoint",
            b"saved a checkpoint",
            b"saved the checkpoint",
            b"saved model checkpoint",
            b"checkpoint saved",
            b"checkpoint was saved",
            b"saved model to",
            b"saved state to",
            b"model weights saved",
            b"model saved",
            b"saved new checkpoint",
        ]) {
            return Some(Event::Saved);
        }
        if one_of(&[
            b"saving checkpoint",
            b"saving a checkpoint",
            b"saving the checkpoint",
            b"saving model",
            b"saving state",
            b"saving current state",
            b"saving ckpt",
            b"saving training state",
            b"saving new checkpoint",
        ]) {
            return Some(Event::Saving);
        }
    }
    let evaluates = one_of(&[
        b"running evaluation",
        b"running prediction",
        b"running validation",
        b"starting evaluation",
        b"start evaluation",
        b"starting validation",
        b"evaluating on",
    ])
        // Paddle.
        || line.starts_with(b"eval begin")
        || line.starts_with(b"predict begin");
    evaluates.then_some(Event::Evaluating)
}
