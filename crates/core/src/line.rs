//! One line without its prefixes: rank, host, time and text.
//!
//! Owns the prefixes of container runtimes, `kubectl`, Slurm, `mpirun`, Ray, torchrun, syslog and the
//! kernel, escape sequences, and the rank in the name of a file. Does not know what the text means.
//!
//! Invariant: any bytes are a line; nothing here fails, and nothing is longer than it was, except that
//! it is decoded.

pub(crate) mod stamp;

use stamp::Stamp;

/// A parsed line.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Line<'a> {
    pub(crate) text: &'a [u8],
    pub(crate) stamp: Option<Stamp>,
    /// From the prefix.
    pub(crate) rank: Option<u32>,
    /// Host or pod, from the prefix.
    pub(crate) node: Option<&'a [u8]>,
}

/// Parses `raw`; `scratch` holds the text where it had to be decoded.
pub(crate) fn read<'a>(raw: &'a [u8], scratch: &'a mut Vec<u8>) -> Line<'a> {
    let docker = raw.starts_with(b"{") && raw.ends_with(b"}") && record(raw, scratch);
    if docker || memchr::memchr(0x1b, raw).is_some() {
        if !docker {
            scratch.clear();
            plain(raw, scratch);
        } else if memchr::memchr(0x1b, scratch).is_some() {
            let coloured = std::mem::take(scratch);
            plain(&coloured, scratch);
        }
        let mut line = prefixes(scratch);
        if docker && line.stamp.is_none() {
            line.stamp = docker_time(raw);
        }
        return line;
    }
    prefixes(raw)
}

/// The rank in the name of a file: `rank3.log`, `rank_3`, `worker-1.log`, `out.12`, `3/stderr.log`.
pub(crate) fn rank_of_name(name: &str) -> Option<u32> {
    let lower = name.to_ascii_lowercase();
    for marker in ["global_rank", "rank", "task", "proc"] {
        let mut rest = lower.as_str();
        while let Some((_, after)) = rest.split_once(marker) {
            let digits = after.trim_start_matches(['_', '-', '.', '=', '/']);
            let length = digits.bytes().take_while(u8::is_ascii_digit).count();
            if let Some(rank) = digits.get(..length).and_then(|text| text.parse().ok()) {
                return Some(rank);
            }
            rest = after;
        }
    }
    // Of torchrun: `…/attempt_0/3/stderr.log`.
    let mut parts = lower.rsplit('/');
    let file = parts.next()?;
    if matches!(file, "stderr.log" | "stdout.log" | "stderr" | "stdout") {
        return parts.next()?.parse().ok();
    }
    None
}

fn prefixes(raw: &[u8]) -> Line<'_> {
    let mut line = Line {
        text: raw.strip_prefix(b"\xef\xbb\xbf").unwrap_or(raw),
        ..Line::default()
    };
    // Each prefix can follow another one: a runtime's stamp, then
    // a launcher's rank, then the program's stamp.
    for _ in 0..6 {
        let before = line.text.len();
        strip(&mut line);
        if line.text.len() == before {
            break;
        }
    }
    // Behind the prefixes of a launcher that is not known.
    let head = line
        .text
        .get(..line.text.len().min(100))
        .unwrap_or_default();
    if let Some(at) = memchr::memmem::find(head, b"[rank")
        && at > 0
        && let Some((rank, rest)) = global_rank(line.text.get(at..).unwrap_or_default())
    {
        line.rank = Some(rank);
        line.text = rest;
    }
    if line.stamp.is_none() {
        line.stamp = stamp::mlperf(line.text);
    }
    line
}

fn strip(line: &mut Line<'_>) {
    let text = line.text;
    let Some(first) = text.first() else { return };
    match first {
        b'[' => {
            if let Some((rank, rest)) = global_rank(text) {
                // The program knows its rank better than whoever passes its output on.
                line.rank = Some(rank);
                line.text = rest;
            } else if let Some((rank, rest)) = mpirun(text).or_else(|| elastic(text)) {
                line.rank.get_or_insert(rank);
                line.text = rest;
            } else if let Some((pod, rest)) = kubectl(text) {
                line.node.get_or_insert(pod);
                line.text = rest;
            } else if let Some((host, rank, rest)) = host_and_rank(text) {
                line.node.get_or_insert(host);
                line.rank.get_or_insert(rank);
                line.text = rest;
            } else if let Some((stamp, _)) = text.get(1..).and_then(stamp::glog) {
                // The text keeps the source location, which distinguishes versions.
                line.stamp.get_or_insert(stamp);
            } else if let Some((stamp, end)) = stamp::leading(text) {
                line.stamp.get_or_insert(stamp);
                line.text = text.get(end..).unwrap_or_default();
                program(line);
            }
        }
        b'(' => {
            if let Some(rest) = ray(text) {
                line.text = rest;
            } else if let Some((rank, rest)) = bracketed_rank(text) {
                line.rank.get_or_insert(rank);
                line.text = rest;
            }
        }
        b'0'..=b'9' | b' ' => {
            let inside = text.trim_ascii_start();
            if let Some((rank, rest)) = mpirun(inside).filter(|_| inside.starts_with(b"[")) {
                line.rank.get_or_insert(rank);
                line.text = rest;
            } else if let Some((rank, rest)) = slurm(text).filter(|_| line.rank.is_none()) {
                // Behind the rank of another launcher it is text: `2: [tensor]` of Horovod.
                line.rank = Some(rank);
                line.text = rest;
            } else if let Some((host, rest)) = address(text).filter(|_| line.node.is_none()) {
                line.node = Some(host);
                line.text = rest;
            } else if let Some((stamp, end)) = stamp::leading(text) {
                line.stamp.get_or_insert(stamp);
                line.text = text.get(end..).unwrap_or_default();
                container_runtime(line);
                program(line);
            }
        }
        b'I' | b'W' | b'E' | b'F' => {
            if let Some((stamp, _)) = stamp::glog(text) {
                line.stamp.get_or_insert(stamp);
            }
        }
        b'A'..=b'Z' => {
            if let Some((stamp, end)) = stamp::leading(text) {
                line.stamp.get_or_insert(stamp);
                line.text = text.get(end..).unwrap_or_default();
                program(line);
            }
        }
        b'a'..=b'z' if line.node.is_none() => {
            if let Some((service, rest)) = compose(text) {
                line.node = Some(service);
                line.text = rest;
            }
        }
        b'<' => {
            // The priority of a kernel or syslog line.
            let close = text.iter().take(5).position(|byte| *byte == b'>');
            if let Some(close) = close.filter(|close| text.get(1..*close).is_some_and(digits)) {
                line.text = text.get(close + 1..).unwrap_or_default();
            }
        }
        _ => {}
    }
}

/// `stdout F ` behind the stamp of a container runtime.
fn container_runtime(line: &mut Line<'_>) {
    for stream in [&b"stdout "[..], b"stderr "] {
        if let Some(rest) = line.text.strip_prefix(stream)
            && let [b'F' | b'P', b' ', rest @ ..] = rest
        {
            line.text = rest;
            return;
        }
    }
}

/// `node-7 kernel: `, `node-7 kubelet[123]: ` behind the stamp of syslog.
fn program<'a>(line: &mut Line<'a>) {
    let text: &'a [u8] = line.text;
    let Some(space) = text.iter().take(80).position(|byte| *byte == b' ') else {
        return;
    };
    let (host, rest) = text.split_at(space);
    let Some(colon) = memchr::memmem::find(rest, b": ").filter(|at| *at < 60) else {
        return;
    };
    let name = rest.get(1..colon).unwrap_or_default();
    let known = name == b"kernel"
        || (name.ends_with(b"]")
            && name
                .iter()
                .all(|byte| byte.is_ascii_alphanumeric() || b"[]-_./@".contains(byte)));
    let is_host = !host.is_empty()
        && host
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(byte));
    if known && is_host {
        line.node.get_or_insert(host);
        line.text = rest.get(colon + 2..).unwrap_or_default();
    }
}

/// `[1,3]<stdout>:`, and with the name of the launcher in front of the numbers.
fn mpirun(text: &[u8]) -> Option<(u32, &[u8])> {
    let close = text.iter().take(80).position(|byte| *byte == b']')?;
    let rest = text.get(close + 1..)?;
    let rest = rest
        .strip_prefix(b"<stdout>:")
        .or_else(|| rest.strip_prefix(b"<stderr>:"))?;
    let inside = text.get(1..close)?;
    // `horovodrun` writes the rank alone.
    let rank = memchr::memrchr(b',', inside).map_or(0, |comma| comma + 1);
    let rank = number(inside.get(rank..)?)?;
    Some((rank, rest.strip_prefix(b" ").unwrap_or(rest)))
}

/// `[rank3]:`, `[default3]:`, `[trainer3]:`.
fn elastic(text: &[u8]) -> Option<(u32, &[u8])> {
    let close = text.iter().take(40).position(|byte| *byte == b']')?;
    let rest = text.get(close + 1..)?.strip_prefix(b":")?;
    let inside = text.get(1..close)?;
    let letters = inside
        .iter()
        .take_while(|byte| byte.is_ascii_alphabetic())
        .count();
    let rank = number(inside.get(letters..)?)?;
    (letters > 2).then(|| (rank, rest.strip_prefix(b" ").unwrap_or(rest)))
}

/// `[rank3]:` and `[Rank 3]: `, the rank in the world.
fn global_rank(text: &[u8]) -> Option<(u32, &[u8])> {
    let inside = text
        .get(1..5)
        .filter(|word| word.eq_ignore_ascii_case(b"rank"))?;
    let rest = text.get(1 + inside.len()..)?;
    let rest = rest.strip_prefix(b" ").unwrap_or(rest);
    let close = rest.iter().take(10).position(|byte| *byte == b']')?;
    let rank = number(rest.get(..close)?)?;
    let rest = rest.get(close + 1..)?.strip_prefix(b":")?;
    Some((rank, rest.strip_prefix(b" ").unwrap_or(rest)))
}

/// `[node-1:3]: ` of launchers that tag lines with host and rank. `[train.py:88]:` is a place in a program, and `[cuda:0]:`, `[epoch:3]:` and
/// `[train:88]:` are what a program counts: names of hosts of a cluster have a digit, a dash or a dot.
fn host_and_rank(text: &[u8]) -> Option<(&[u8], u32, &[u8])> {
    const SOURCES: [&[u8]; 7] = [b".py", b".cc", b".cpp", b".cu", b".h", b".rs", b".go"];
    let close = text.iter().take(100).position(|byte| *byte == b']')?;
    let rest = text.get(close + 1..)?.strip_prefix(b":")?;
    let inside = text.get(1..close)?;
    let colon = memchr::memrchr(b':', inside)?;
    let (host, rank) = (inside.get(..colon)?, number(inside.get(colon + 1..)?)?);
    let is_host = host.first().is_some_and(u8::is_ascii_alphabetic)
        && host
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(byte))
        && host
            .iter()
            .any(|byte| byte.is_ascii_digit() || b"-.".contains(byte))
        && !SOURCES.iter().any(|ending| host.ends_with(ending));
    is_host.then(|| (host, rank, rest.strip_prefix(b" ").unwrap_or(rest)))
}

/// `worker-1  | ` of `docker compose`, where the service is padded: its name.
fn compose(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let bar = text.iter().take(64).position(|byte| *byte == b'|')?;
    let name = text.get(..bar)?.strip_suffix(b" ")?.trim_ascii_end();
    let is_name = name.first().is_some_and(u8::is_ascii_lowercase)
        && name
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
        && ends_with_number(name);
    let rest = text.get(bar + 1..)?;
    is_name.then(|| (name, rest.strip_prefix(b" ").unwrap_or(rest)))
}

/// Whether a name ends as `-1` or `_1` does: `step10 | loss 2` is a line of a trainer.
fn ends_with_number(name: &[u8]) -> bool {
    let digits = name.iter().rev().take_while(|byte| byte.is_ascii_digit());
    let before = name.len().checked_sub(digits.count() + 1);
    let before = before.filter(|at| at + 1 < name.len());
    before.is_some_and(|at| matches!(name.get(at), Some(b'-' | b'_')))
}

/// `[pod/NAME/CONTAINER] `.
fn kubectl(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let inside = text.strip_prefix(b"[pod/")?;
    let close = inside.iter().take(300).position(|byte| *byte == b']')?;
    let (name, rest) = inside.split_at(close);
    let pod = name.split(|byte| *byte == b'/').next()?;
    Some((pod, rest.strip_prefix(b"] ")?))
}

/// `(WorkerDict pid=3490362, ip=10.0.0.1) `.
fn ray(text: &[u8]) -> Option<&[u8]> {
    let close = memchr::memmem::find(text.get(..text.len().min(120))?, b") ")?;
    let inside = text.get(1..close)?;
    memchr::memmem::find(inside, b"pid=")?;
    let text = text.get(close + 2..)?;
    // ` [repeated 15x across cluster] (Ray deduplicates logs …)`.
    let end = memchr::memmem::rfind(text, b" [repeated ").filter(|at| {
        let rest = text.get(*at..).unwrap_or_default();
        memchr::memmem::find(rest, b"x across cluster]").is_some()
    });
    text.get(..end.unwrap_or(text.len()))
}

/// `(rank 3) ` and `(rank3): ` of programs that tag what they print.
fn bracketed_rank(text: &[u8]) -> Option<(u32, &[u8])> {
    let close = text.iter().take(16).position(|byte| *byte == b')')?;
    let inside = text.get(1..close)?;
    let word = inside.get(..4)?.eq_ignore_ascii_case(b"rank");
    let rank = number(inside.get(4..)?.trim_ascii_start()).filter(|_| word)?;
    let rest = text.get(close + 1..)?;
    let rest = rest.strip_prefix(b":").unwrap_or(rest);
    Some((rank, rest.strip_prefix(b" ")?))
}

/// `10.0.0.5: ` of `pdsh`, which `DeepSpeed` uses: the address.
fn address(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = memchr::memmem::find(text.get(..text.len().min(17))?, b": ")?;
    let (host, rest) = text.split_at(end);
    let mut parts = host.split(|byte| *byte == b'.');
    let is_part = |part: &[u8]| (1..=3).contains(&part.len()) && digits(part);
    let is_address = parts.clone().count() == 4 && parts.all(is_part);
    is_address.then(|| (host, rest.get(2..).unwrap_or_default()))
}

/// `12: ` of `srun --label`, padded with spaces.
fn slurm(text: &[u8]) -> Option<(u32, &[u8])> {
    let spaces = text
        .iter()
        .take(6)
        .take_while(|byte| **byte == b' ')
        .count();
    let rest = text.get(spaces..)?;
    let length = rest
        .iter()
        .take(7)
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let rank = number(rest.get(..length)?)?;
    let rest = rest.get(length..)?.strip_prefix(b":")?;
    match rest.strip_prefix(b" ") {
        Some(rest) => Some((rank, rest)),
        None => rest.is_empty().then_some((rank, rest)),
    }
}

fn digits(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(u8::is_ascii_digit)
}

fn number(text: &[u8]) -> Option<u32> {
    if text.len() > 9 || !digits(text) {
        return None;
    }
    Some(
        text.iter()
            .fold(0, |value, digit| value * 10 + u32::from(digit - b'0')),
    )
}

/// Copies `raw` without escape sequences and other control characters.
fn plain(raw: &[u8], into: &mut Vec<u8>) {
    let mut bytes = raw.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            0x1b => match bytes.next() {
                Some(b'[') => {
                    // Parameters, then one letter.
                    for byte in bytes.by_ref() {
                        if (0x40..=0x7e).contains(&byte) {
                            break;
                        }
                    }
                }
                Some(b']') => {
                    // A title or a link, up to the bell or a terminator.
                    while let Some(byte) = bytes.next() {
                        if byte == 7 || (byte == 0x1b && bytes.next().is_some()) {
                            break;
                        }
                    }
                }
                _ => {}
            },
            byte if byte >= b' ' || byte == b'\t' => into.push(byte),
            _ => {}
        }
    }
}

/// Decodes the text of one JSON line of a container runtime or of a collector of logs. The records of a program, such as
/// steps, are left as they are.
fn record(raw: &[u8], into: &mut Vec<u8>) -> bool {
    #[derive(serde::Deserialize)]
    struct Entry<'a> {
        #[serde(borrow, alias = "textPayload", alias = "MESSAGE")]
        log: std::borrow::Cow<'a, str>,
    }
    let head = raw.get(..raw.len().min(512)).unwrap_or_default();
    let keys = [&b"\"log\""[..], b"\"textPayload\"", b"\"MESSAGE\""];
    let has_key = |text: &[u8]| {
        keys.iter()
            .any(|key| memchr::memmem::find(text, key).is_some())
    };
    if !has_key(head) && !has_key(raw) {
        return false;
    }
    let Ok(entry) = serde_json::from_slice::<Entry<'_>>(raw) else {
        return false;
    };
    into.clear();
    into.extend_from_slice(entry.log.trim_end_matches(['\n', '\r']).as_bytes());
    true
}

fn docker_time(raw: &[u8]) -> Option<Stamp> {
    let keys = [&b"\"time\""[..], b"\"timestamp\"", b"\"@timestamp\""];
    let key = keys
        .iter()
        .find_map(|key| Some(memchr::memmem::rfind(raw, key)? + key.len()))?;
    let rest = raw.get(key..)?.trim_ascii_start().strip_prefix(b":")?;
    let rest = rest.trim_ascii_start().strip_prefix(b"\"")?;
    stamp::leading(rest).map(|(stamp, _)| stamp)
}

#[cfg(test)]
mod tests;
