//! Progress bars: tqdm and those that Lightning makes with it or with rich, and those of Keras.

use memchr::memmem;

use super::{fields, names};

/// How long a bar can be; a longer text is read when its line ends.
const MAX_BAR: usize = 2 << 10;

/// A bar of tqdm, or one that looks like it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bar<'a> {
    /// What stands before it.
    pub(super) title: Title,
    pub(super) place: u64,
    pub(super) total: Option<u64>,
    pub(super) step_seconds: Option<f64>,
    /// Names and values behind the time.
    pub(super) rest: &'a [u8],
}

/// What the text before a bar says it counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Title {
    /// Nothing.
    None,
    /// Steps of the training.
    Training,
    /// Steps of one epoch, and the number of epochs where it is said.
    Epoch(u64, Option<u64>),
    /// Whole epochs.
    Epochs,
    /// Steps of an evaluation.
    Evaluation,
    /// Anything else: files, examples, layers.
    Other,
}

/// Whether a line without an end is a bar that is complete.
pub(super) fn is_whole(begun: &[u8]) -> bool {
    begun.len() <= MAX_BAR && end(begun).is_some()
}

/// Where the first bar in `line` ends: behind the bracket that closes its time and values.
pub(super) fn end(line: &[u8]) -> Option<usize> {
    let open = time(line)?;
    let mut depth = 0_u32;
    for (at, byte) in line.iter().enumerate().skip(open) {
        match byte {
            b'[' => depth += 1,
            b']' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

/// What was written behind a bar on the same line, or behind the last of several: the bar ends without a newline, and the shell or another process
/// continues there. `35%|##  | 35/100 [00:35<01:00, 1.72it/s, loss=0.3]Killed`.
pub(crate) fn after(line: &[u8]) -> Option<&[u8]> {
    let mut rest = line.get(end(line)?..)?;
    while let Some(next) = end(rest) {
        rest = rest.get(next..)?;
    }
    let bars = line.len() - rest.len();
    let is_bar = memmem::find(line.get(..bars)?, b"%|").is_some();
    let rest = rest.trim_ascii();
    (is_bar && !rest.is_empty()).then_some(rest)
}

/// Where the time of a bar of tqdm opens: the bracket in `10/100 [00:01<00:09` and in `10it [00:01`.
fn time(line: &[u8]) -> Option<usize> {
    memmem::find_iter(line, b" [")
        .map(|space| space + 1)
        .find(|open| {
            let count = line.get(..open - 1).unwrap_or_default();
            let counts = match count.last() {
                Some(byte) if byte.is_ascii_digit() || *byte == b'?' => {
                    let total = trailing(count, |byte| byte.is_ascii_digit() || byte == b'?');
                    count.get(..count.len() - total).is_some_and(|before| {
                        before.last() == Some(&b'/')
                            && before
                                .get(..before.len() - 1)
                                .is_some_and(|before| trailing(before, |b| b.is_ascii_digit()) > 0)
                    })
                }
                Some(b't') => count
                    .strip_suffix(b"it")
                    .is_some_and(|before| before.last().is_some_and(u8::is_ascii_digit)),
                _ => false,
            };
            let inside = line.get(open + 1..).unwrap_or_default();
            let digits = inside.iter().take_while(|b| b.is_ascii_digit()).count();
            counts && digits > 0 && inside.get(digits) == Some(&b':')
        })
}

fn trailing(text: &[u8], is: impl Fn(u8) -> bool) -> usize {
    text.iter().rev().take_while(|byte| is(**byte)).count()
}

/// The bar of tqdm in a line in lower case.
pub(super) fn tqdm(line: &[u8]) -> Option<Bar<'_>> {
    let open = time(line)?;
    let before = line.get(..open - 1)?;
    let digits = |text: &[u8]| trailing(text, |byte| byte.is_ascii_digit());
    let (place, total, head) = if let Some(before) = before.strip_suffix(b"it") {
        let (head, place) = before.split_at(before.len() - digits(before));
        (place, None, head)
    } else {
        let slash = memchr::memrchr(b'/', before)?;
        let (head, total) = (before.get(..slash)?, before.get(slash + 1..)?);
        let (head, place) = head.split_at(head.len() - digits(head));
        (place, fields::count(total), head)
    };
    // Numbers with a unit, `1.2k/3.4k`, count no steps.
    if head.ends_with(b".") {
        return None;
    }
    let place = fields::count(place)?;
    if total.is_some_and(|total| place > total) {
        return None;
    }
    let head = match memmem::find(head, b"%|") {
        Some(percent) => {
            let head = head.get(..percent)?;
            head.get(..head.len() - digits(head))?
        }
        None => memchr::memchr(b'|', head)
            .and_then(|at| head.get(..at))
            .unwrap_or(head),
    };
    let inside = line.get(open + 1..)?;
    let inside = inside.strip_suffix(b"]").unwrap_or(inside);
    let comma = memchr::memchr(b',', inside);
    let rest = comma
        .and_then(|at| inside.get(at + 1..))
        .unwrap_or_default();
    let (rate, unit) = rate(rest);
    let mut title = title(head);
    // What counts in another unit than steps: bytes, examples, files.
    if unit.is_some_and(|unit| !is_step_unit(unit)) {
        title = Title::Other;
    }
    Some(Bar {
        title,
        place,
        total,
        step_seconds: rate.and_then(|rate| fields::step_seconds(rate, unit.unwrap_or_default())),
        rest,
    })
}

/// `  8.50it/s` before the values of a bar.
fn rate(rest: &[u8]) -> (Option<f64>, Option<&str>) {
    let text = rest.trim_ascii_start();
    let number = text
        .iter()
        .take_while(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'?'))
        .count();
    let (number, unit) = text.split_at(number);
    let length = unit
        .iter()
        .take_while(|byte| !matches!(byte, b',' | b']'))
        .count();
    let unit = std::str::from_utf8(unit.get(..length).unwrap_or_default()).ok();
    let unit = unit.map(str::trim).filter(|_| !number.is_empty());
    (fields::number(number), unit)
}

fn is_step_unit(unit: &str) -> bool {
    let unit = unit.strip_suffix("/s").or_else(|| unit.strip_prefix("s/"));
    matches!(
        unit,
        Some("it" | "step" | "steps" | "batch" | "batches" | "ba" | "iter" | "iters")
    )
}

/// What the text before a bar says.
fn title(head: &[u8]) -> Title {
    let text = String::from_utf8_lossy(head);
    let text = text.trim().trim_end_matches(':').trim();
    if text.is_empty() {
        return Title::None;
    }
    let words = || {
        text.split(|c: char| !c.is_ascii_alphanumeric())
            .filter(|word| !word.is_empty())
    };
    if words().any(names::is_evaluation) {
        return Title::Evaluation;
    }
    if words().any(is_preparation) {
        return Title::Other;
    }
    let mut epoch = None;
    let mut rest = words();
    while let Some(word) = rest.next() {
        if word == "epoch" || word == "epochs" {
            let mut numbers = rest.clone().map_while(|word| word.parse::<u64>().ok());
            let slash = text.contains('/');
            epoch = Some(match numbers.next() {
                Some(number) => Title::Epoch(number, numbers.next().filter(|_| slash)),
                None => Title::Epochs,
            });
            break;
        }
    }
    if let Some(epoch) = epoch.or_else(|| row_of_yolo(text)) {
        return epoch;
    }
    let known = |word: &str| {
        word.starts_with("train")
            || word.ends_with("training")
            || matches!(
                word,
                "step"
                    | "steps"
                    | "iteration"
                    | "iterations"
                    | "iter"
                    | "iters"
                    | "loss"
                    | "finetuning"
                    | "pretraining"
                    | "batch"
                    | "batches"
            )
    };
    if words().any(known) {
        return Title::Training;
    }
    Title::Other
}

/// `242/299      2.3G   0.0227 …`: YOLO writes epoch and GPU memory before its losses, under a header of its own.
fn row_of_yolo(text: &str) -> Option<Title> {
    let mut words = text.split_whitespace();
    let (epoch, epochs) = words.next()?.split_once('/')?;
    let memory = words.next()?.strip_suffix(['g', 'm'])?;
    memory.parse::<f64>().ok()?;
    Some(Title::Epoch(
        epoch.parse().ok()?,
        Some(epochs.parse().ok()?),
    ))
}

/// Words of bars that prepare a training, or follow it.
fn is_preparation(word: &str) -> bool {
    const STARTS: [&str; 30] = [
        "download",
        "upload",
        "load",
        "fetch",
        "generat",
        "tokeniz",
        "tokenis",
        "map",
        "filter",
        "sav",
        "writ",
        "read",
        "pack",
        "group",
        "creat",
        "convert",
        "extract",
        "process",
        "preprocess",
        "cach",
        "shard",
        "dataset",
        "compil",
        "captur",
        "quantiz",
        "merg",
        "comput",
        "checkpoint",
        "sampl",
        "warm",
    ];
    STARTS.iter().any(|start| word.starts_with(start))
}

/// The bar of Lightning that rich draws: `Epoch 0/9 ━━━╸━━ 12/100 0:00:01 • 0:00:10 8.50it/s train_loss: 0.5`.
pub(super) fn rich(line: &[u8]) -> Option<Bar<'_>> {
    let drawn = "━".as_bytes();
    let first = memmem::find(line, drawn)?;
    let last = memmem::rfind(line, drawn)? + drawn.len();
    memmem::find(line.get(last..)?, "•".as_bytes())?;
    let title = title(line.get(..first)?);
    let after = line.get(last..)?.trim_ascii_start();
    let (place, total, rest) = place(after)?;
    let rest = rest.trim_ascii_start();
    // Only a time may follow; `1.2/3.4 MB` is a download.
    if !rest.first().is_some_and(u8::is_ascii_digit) {
        return None;
    }
    let dot = memmem::rfind(rest, "•".as_bytes())? + "•".len();
    Some(Bar {
        title,
        place,
        total: Some(total),
        step_seconds: None,
        rest: rest.get(dot..)?,
    })
}

/// `12/100` at the beginning of a text.
fn place(text: &[u8]) -> Option<(u64, u64, &[u8])> {
    let digits = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (place, rest) = text.split_at(digits(text));
    let rest = rest.strip_prefix(b"/")?;
    let (total, rest) = rest.split_at(digits(rest));
    let (place, total) = (fields::count(place)?, fields::count(total)?);
    (place <= total).then_some((place, total, rest))
}

/// The bar of Keras: its place, how many there are, and the names and values behind it.
///
/// `12/100 ━━━━━━━━ 1s 8ms/step - loss: 0.5`, `12/100 [==>...] - ETA: 5s - loss: 0.5`, `100/100 - 3s - loss: 0.5`.
pub(super) fn keras(line: &[u8]) -> Option<(u64, u64, &[u8])> {
    let (place, total, rest) = place(line.trim_ascii_start())?;
    let rest = rest.strip_prefix(b" ")?;
    let drawn = rest.starts_with("━".as_bytes())
        || rest.starts_with(b"[=")
        || rest.starts_with(b"[>")
        || rest.starts_with(b"[.")
        || rest.starts_with(b"- ");
    let timed = [&b"s/step"[..], b"eta:", b" - loss:", b"s - "]
        .iter()
        .any(|word| memmem::find(rest, word).is_some());
    (drawn && timed).then_some((place, total, rest))
}

/// The same of Paddle's `Model.fit`: `step 10/30 [====>.....] - loss: 0.5 - ETA: 0s - 2ms/step`, `step 10/30 - loss: 0.5 - 2ms/step`.
pub(super) fn paddle(line: &[u8]) -> Option<(u64, u64, &[u8])> {
    let line = line.trim_ascii();
    if !line.ends_with(b"s/step") {
        return None;
    }
    keras(line.strip_prefix(b"step ")?)
}

/// The line of a boosting library: `[5]\ttrain-rmse:0.5\teval-rmse:0.6`, `[10]\ttraining's l2: 0.5`. The round, and
/// the loss of the training data where there is one.
pub(super) fn boosting(line: &[u8]) -> Option<(u64, Option<f64>)> {
    let close = memmem::find(line, b"]\t")?;
    let head = line.get(..close)?;
    let (before, round) = head.split_at(head.len() - trailing(head, |b| b.is_ascii_digit()));
    if before.last() != Some(&b'[') {
        return None;
    }
    let round = fields::count(round)?;
    let mut metrics = 0;
    let mut loss = None;
    for metric in line.get(close + 2..)?.split(|byte| *byte == b'\t') {
        let colon = memchr::memrchr(b':', metric)?;
        let name = std::str::from_utf8(metric.get(..colon)?).ok()?.trim();
        let value = std::str::from_utf8(metric.get(colon + 1..)?).ok()?.trim();
        // The deviation of a cross validation stands behind `+` and ` + `.
        let value = value.split(['+', ' ']).next().unwrap_or(value);
        let value = fields::number(value.as_bytes())?;
        let (data, metric) = name.split_once("'s ").or_else(|| name.split_once('-'))?;
        metrics += 1;
        if loss.is_none() && data.starts_with("train") && is_loss(metric) {
            loss = Some(value);
        }
    }
    (metrics > 0).then_some((round, loss))
}

/// Whether a metric of a boosting library falls while it learns.
fn is_loss(metric: &str) -> bool {
    let higher = [
        "auc",
        "acc",
        "map",
        "ndcg",
        "precision",
        "recall",
        "f1",
        "r2",
    ];
    !higher.iter().any(|start| metric.starts_with(start))
}
