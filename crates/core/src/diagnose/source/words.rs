//! Lines that need more than one rule: exits, launchers, watchdogs and tracebacks.

use super::{
    ExitSeen, Line, MAX_EVIDENCE, MAX_NAMES, Raised, Rule, Seen, Source, WATCHED_LINES, bounded,
    lossy, numbers, shown, signal_number, torch,
};

impl Source {
    pub(super) fn exit(&mut self, rule: &Rule, line: &Line<'_>, number: u64) {
        let captures = rule.regex().and_then(|regex| regex.captures(line.text));
        let get = |name: &str| {
            let found = captures.as_ref()?.name(name)?;
            Some(lossy(found.as_bytes()))
        };
        let signal = get("signal").and_then(|word| signal_number(&word));
        let code: Option<i64> = get("code").and_then(|word| word.parse().ok());
        let (code, signal) = match code {
            Some(code @ -64..0) => (None, Some(-code)),
            Some(code @ 129..=192) if signal.is_none() => (Some(code), Some(code - 128)),
            code => (code, signal),
        };
        if code == Some(0) {
            return;
        }
        let mut ranks: Vec<Option<u32>> = get("rank")
            .or_else(|| get("ranks"))
            .map(|word| numbers(&word).into_iter().map(Some).collect())
            .unwrap_or_default();
        if ranks.is_empty() {
            ranks.push(
                line.rank
                    .or(self.block_rank.take())
                    .or_else(|| self.default_rank(line)),
            );
        }
        let mut evidence = self.evidence(line, number);
        evidence.node = get("node").or(self.block_node.take()).or(evidence.node);
        let waited_for = !matches!(rule.id.as_str(), "srun-signal" | "shell-killed");
        for rank in ranks {
            if self.exits.len() < MAX_NAMES {
                let evidence = evidence.clone();
                self.exits.push(ExitSeen {
                    rank,
                    code,
                    signal,
                    waited_for,
                    evidence,
                });
            }
        }
        self.failure_line = number;
    }

    /// The lines of torchelastic's summary that name rank and host before the exit code.
    pub(super) fn elastic(&mut self, text: &[u8]) {
        let text = text.trim_ascii_start();
        let value = |key: &[u8]| {
            let rest = text.strip_prefix(key)?.trim_ascii_start();
            Some(lossy(rest.strip_prefix(b":")?.trim_ascii()))
        };
        if let Some(rank) = value(b"rank ") {
            self.block_rank = numbers(rank.split(' ').next().unwrap_or_default())
                .first()
                .copied();
        } else if let Some(host) = value(b"host ") {
            self.block_node = Some(host);
        }
    }

    /// `mpirun -np 8 …` in a transcript.
    pub(super) fn launcher(&mut self, text: &[u8]) {
        if memchr::memmem::find(text, b"mpirun ").is_none()
            && memchr::memmem::find(text, b"mpiexec ").is_none()
        {
            return;
        }
        let mut words = text
            .split(|byte| *byte == b' ')
            .filter(|word| !word.is_empty());
        while let Some(word) = words.next() {
            if matches!(word, b"-np" | b"-n" | b"--np" | b"-c")
                && let Some(count) = words.next().map(lossy).and_then(|word| word.parse().ok())
            {
                self.asked_processes.get_or_insert(count);
                return;
            }
        }
    }

    pub(super) fn watchdog(&mut self, line: &Line<'_>) {
        let work = torch::work(line.text);
        let status = torch::status(line.text);
        if work.is_none() && status.is_none() {
            return;
        }
        let Some(rank) = line.rank.or_else(|| torch::rank(line.text)).or(self.rank) else {
            return;
        };
        let group = torch::group(line.text);
        let index = self.member_of_rank(rank);
        if let Some(member) = self.members.get_mut(index) {
            member.touch(line.stamp);
            if member.work.is_none() {
                member.work = work;
            }
            if let Some((enqueued, completed)) = status
                && member.enqueued.is_none()
            {
                member.enqueued = Some(enqueued);
                member.completed = Some(completed);
                member.group = group;
            }
        }
    }

    /// An exception without its traceback: the log is an excerpt, or the program printed no more.
    fn bare(&mut self, line: &Line<'_>, number: u64, rank: Option<u32>, text: String) {
        let evidence = self.evidence(line, number);
        let stamp = line.stamp.or(self.last_stamp);
        self.notable += 1;
        let seen = self
            .bare_error
            .get_or_insert_with(|| Seen::new(number, stamp));
        seen.count += 1;
        seen.last_line = number;
        bounded(&mut seen.ranks, rank);
        if seen.evidence.len() < MAX_EVIDENCE {
            seen.evidence.push(evidence);
        }
        seen.fields.entry("detail".to_owned()).or_insert(text);
    }

    /// Follows tracebacks; an exception that no rule claims is the user's own.
    pub(super) fn python(&mut self, line: &Line<'_>, number: u64, claimed: bool) {
        let text = line.text;
        let trimmed = text.trim_ascii_start();
        let key = line.rank;
        if trimmed.starts_with(b"Traceback (most recent call last)") {
            self.traces.entry(key).or_default().begin();
            return;
        }
        if trimmed.starts_with(b"Exception ignored in") || trimmed.starts_with(b"--- Logging error")
        {
            self.traces.entry(key).or_default().ignore();
            return;
        }
        if trimmed.starts_with(b"File \"") {
            if let Some(trace) = self.traces.get_mut(&key) {
                trace.frame(text);
                // Not every exception is called an error.
                self.watched = self.watched.max(WATCHED_LINES);
            }
            return;
        }
        let Some(name) = torch::exception(trimmed) else {
            return;
        };
        // `torch.multiprocessing` re-raises the exception of its child, which follows.
        if trimmed.trim_ascii() == b"Exception:" {
            return;
        }
        let rank = key.or_else(|| self.default_rank(line));
        let Some(trace) = self.traces.get_mut(&key) else {
            let last = name.ends_with("Error") || name.ends_with("Exception");
            if last && !claimed && trimmed.len() > name.len() + 2 {
                self.bare(line, number, rank, shown(trimmed));
            }
            return;
        };
        let Some(frames) = trace.end() else { return };
        self.traces.remove(&key);
        let raised = Raised {
            text: shown(trimmed),
            frame: frames.shown,
        };
        // An end of file while a checkpoint is read says only where it happened.
        let cut_short = frames.loads && name == "EOFError";
        let index = self.member_of_line(line);
        let evidence = self.evidence(line, number);
        if let Some(member) = self.members.get_mut(index) {
            member.touch(line.stamp);
            if member.raised.is_none() {
                member.raised = Some(raised.clone());
            }
        }
        if claimed {
            return;
        }
        self.notable += 1;
        self.failure_line = number;
        let stamp = line.stamp.or(self.last_stamp);
        let kept = if cut_short {
            &mut self.cut_checkpoint
        } else {
            &mut self.user_error
        };
        let seen = kept.get_or_insert_with(|| Seen::new(number, stamp));
        seen.count += 1;
        seen.last_line = number;
        bounded(&mut seen.ranks, rank);
        if seen.evidence.len() < MAX_EVIDENCE {
            seen.evidence.push(evidence);
        }
        seen.fields
            .entry("detail".to_owned())
            .or_insert(raised.text);
        if let Some(frame) = raised.frame {
            seen.fields.entry("frame".to_owned()).or_insert(frame);
        }
    }
}
