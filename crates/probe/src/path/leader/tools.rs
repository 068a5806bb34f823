//! External programs: pairs in rounds over RDMA, then the GPUs of each pod by themselves.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use trainyard_core::probe::{
    Check, Needs, Reading,
    pairs::{Pair, Topology},
    search::{Measurement, Search},
    tools::{
        self, Collective, Port, RdmaFound, RdmaPaths, collectives, gpus, nccl, not_measured,
        perftest,
    },
};

use super::{
    super::{
        Conduct, Settings,
        limit::Limit,
        message::{Answer, CollectivePart, RdmaPart, RdmaSide, Request},
    },
    members::Members,
    rounds::Checked,
};

/// The longest that the GPUs of a pod may take: their driver and NCCL need most of it to set themselves up.
const COLLECTIVE: Duration = Duration::from_secs(40);
/// What is kept for them while pairs are measured.
const KEPT: Duration = Duration::from_secs(25);
/// With less time than this they are not begun.
const LEAST: Duration = Duration::from_secs(5);

/// Measures with the programs that members have.
pub(super) fn conduct(
    settings: &Settings,
    conduct: &Conduct,
    members: &mut Members,
    readings: &BTreeMap<String, Reading>,
    limit: Limit,
) -> Checked {
    let programs = programs(members, limit.within(settings.patience()));
    let collective = plan(members, readings, |member, reading| {
        let count = gpus(reading, &settings.needs)?;
        has(
            &programs,
            member,
            &settings.needs,
            nccl::PROGRAM,
            nccl::PACKAGE,
        )?;
        Ok(count)
    });
    let kept = if collective.values().any(Result::is_ok) {
        KEPT
    } else {
        Duration::ZERO
    };
    let ports = plan(members, readings, |member, reading| {
        let port = tools::port(reading, &settings.needs)?;
        has(
            &programs,
            member,
            &settings.needs,
            perftest::PROGRAM,
            perftest::PACKAGE,
        )?;
        Ok(port)
    });
    let mut run = Run {
        settings,
        members,
        limit,
        kept,
        next_id: 1,
    };
    let mut checked = run.pairs(conduct, ports);
    let found = run.collectives(collective);
    for (name, check) in collectives(&found, readings) {
        checked.nodes.entry(name).or_default().push(check);
    }
    checked
}

/// The programs that each member has.
fn programs(members: &mut Members, limit: Limit) -> BTreeMap<usize, BTreeSet<String>> {
    let all = members.present().into_iter();
    let asked = all.map(|member| (member, Request::Programs)).collect();
    let answers = members.ask(asked, limit).into_iter();
    let programs = answers.filter_map(|(member, answer)| match answer {
        Answer::Programs(programs) => Some((member, programs)),
        _ => None,
    });
    programs.collect()
}

/// What each member is to do, or why it is not.
fn plan<T>(
    members: &Members,
    readings: &BTreeMap<String, Reading>,
    one: impl Fn(usize, &Reading) -> Result<T, String>,
) -> BTreeMap<usize, Result<T, String>> {
    let present = members.present().into_iter();
    let planned = present.filter_map(|member| {
        let reading = readings.get(members.name(member))?;
        Some((member, one(member, reading)))
    });
    planned.collect()
}

fn has(
    programs: &BTreeMap<usize, BTreeSet<String>>,
    member: usize,
    needs: &Needs,
    program: &str,
    package: &str,
) -> Result<(), String> {
    let own = programs.get(&member);
    if own.is_some_and(|own| own.contains(program)) {
        return Ok(());
    }
    let next = if needs.asked_by.is_some() {
        format!("install `{package}` there to have it measured")
    } else {
        "the image of a job may have it".to_owned()
    };
    Err(format!("`{program}` is not in `PATH` of the image; {next}"))
}

struct Run<'a> {
    settings: &'a Settings,
    members: &'a mut Members,
    limit: Limit,
    /// What of the time is left to the GPUs.
    kept: Duration,
    next_id: u64,
}

/// Who measures over RDMA, by number in the search.
struct Able {
    member: usize,
    port: Port,
}

impl Run<'_> {
    fn pairs(
        &mut self,
        conduct: &Conduct,
        ports: BTreeMap<usize, Result<Port, String>>,
    ) -> Checked {
        let mut nodes: BTreeMap<String, Vec<Check>> = BTreeMap::new();
        let mut able = Vec::new();
        for (member, port) in ports {
            match port {
                Ok(port) if self.members.address(member).is_some() => {
                    able.push(Able { member, port });
                }
                Ok(_) => self.skip(&mut nodes, member, "it has no address to measure at"),
                Err(why) => self.skip(&mut nodes, member, &why),
            }
        }
        if able.len() < 2 {
            for one in &able {
                self.skip(
                    &mut nodes,
                    one.member,
                    "there is no other node to measure with",
                );
            }
            return Checked {
                nodes,
                ..Checked::default()
            };
        }
        let names: Vec<String> = able
            .iter()
            .map(|one| self.members.name(one.member).to_owned())
            .collect();
        let domains = |name: &String| conduct.domains.get(name).cloned().unwrap_or_default();
        let topology = Topology::new(&names.iter().map(domains).collect::<Vec<_>>());
        let mut search = Search::new(topology);
        let (found, is_whole) = self.rounds(&mut search, &able, &names);
        let ports: Vec<Port> = able.into_iter().map(|one| one.port).collect();
        let paths = RdmaPaths {
            names: &names,
            ports: &ports,
            topology: search.topology(),
            found: &found,
            conclusion: &search.conclude(),
            needs: &self.settings.needs,
            is_whole,
        };
        for (name, check) in names.iter().zip(paths.of_nodes()) {
            nodes.entry(name.clone()).or_default().push(check);
        }
        Checked {
            nodes,
            shared: paths.shared(),
            leave: paths.leave(),
        }
    }

    fn skip(&self, nodes: &mut BTreeMap<String, Vec<Check>>, member: usize, why: &str) {
        let name = self.members.name(member).to_owned();
        nodes.entry(name).or_default().push(not_measured(why));
    }

    /// Whole seconds, since the program knows no others.
    fn seconds(&self) -> u64 {
        let whole = self.settings.measure.as_secs();
        whole + u64::from(self.settings.measure.subsec_nanos() > 0)
    }

    /// What every pair found, and whether all rounds were measured in time.
    fn rounds(
        &mut self,
        search: &mut Search,
        able: &[Able],
        names: &[String],
    ) -> (Vec<RdmaFound>, bool) {
        let patience = self.settings.patience();
        let each = Duration::from_secs(self.seconds());
        // Both directions, and all waiting on the way.
        let longest = (each + patience * 7) * 2;
        let least = (each + patience) * 2;
        let mut found = Vec::new();
        while let Some(round) = search.next_round() {
            let left = self.limit.left().unwrap_or_default();
            let left = left.saturating_sub(self.kept + patience * 2);
            if left < least {
                return (found, false);
            }
            let now = self.round(&round, able, names, left.min(longest));
            // A member that is gone has no result, which is no evidence about links.
            let is_here = |node: usize| self.members.gone(able[node].member).is_none();
            let known = now
                .iter()
                .filter(|found| is_here(found.pair.0) && is_here(found.pair.1));
            let measured: Vec<Measurement> = known.map(RdmaFound::measurement).collect();
            search.record(&measured);
            found.extend(now);
        }
        (found, true)
    }

    fn round(
        &mut self,
        round: &[Pair],
        able: &[Able],
        names: &[String],
        bound: Duration,
    ) -> Vec<RdmaFound> {
        let mut groups = Vec::new();
        for &(a, b) in round {
            let (first, second) = (&able[a], &able[b]);
            let id = self.next_id;
            self.next_id += 1;
            let is_gone = |one: &Able| self.members.gone(one.member).is_some();
            let to = self.members.address(second.member);
            if let Some(to) = to.filter(|_| !is_gone(first) && !is_gone(second)) {
                let side = |one: &Able, to| {
                    let part = RdmaPart {
                        id,
                        to,
                        port: one.port.clone(),
                        seconds: self.seconds(),
                        limit_millis: millis(bound),
                    };
                    (one.member, Request::Rdma(part))
                };
                groups.push(vec![side(second, None), side(first, Some(to))]);
            }
        }
        let patience = self.settings.patience();
        let limit = self.limit.within(bound + patience * 2);
        let mut answers = self.members.ask_together(groups, limit, bound + patience);
        let mut side = |node: usize| {
            let member = able[node].member;
            match answers.remove(&member) {
                Some(Answer::Rdma(side)) => Ok(side),
                _ => Err(self.members.gone(member).unwrap_or("no answer").to_owned()),
            }
        };
        let joined = round.iter().map(|&(a, b)| {
            let sides = (side(a), side(b));
            joined((a, b), sides, |node| {
                names.get(node).map_or("?", String::as_str)
            })
        });
        joined.collect()
    }

    /// The GPUs of every pod at the same time, for they share nothing.
    fn collectives(
        &mut self,
        planned: BTreeMap<usize, Result<u32, String>>,
    ) -> BTreeMap<String, Collective> {
        let patience = self.settings.patience();
        let left = self.limit.left().unwrap_or_default();
        let bound = left.saturating_sub(patience * 2).min(COLLECTIVE);
        let mut found: BTreeMap<String, Collective> = BTreeMap::new();
        let mut requests = Vec::new();
        for (member, planned) in planned {
            let not_run = match planned {
                Ok(_) if self.members.gone(member).is_some() => continue,
                Ok(_) if bound < LEAST => "no time was left for it".to_owned(),
                Ok(gpus) => {
                    let limit_millis = millis(bound);
                    let part = CollectivePart { gpus, limit_millis };
                    requests.push((member, Request::Collective(part)));
                    continue;
                }
                Err(why) => why,
            };
            let name = self.members.name(member).to_owned();
            found.insert(name, Collective::NotRun(not_run));
        }
        let answers = self
            .members
            .ask(requests, self.limit.within(bound + patience * 2));
        for (member, answer) in answers {
            if let Answer::Collective(collective) = answer {
                found.insert(self.members.name(member).to_owned(), collective);
            }
        }
        found
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// What both sides of a pair say together.
fn joined<'a>(
    pair: Pair,
    sides: (Result<RdmaSide, String>, Result<RdmaSide, String>),
    name: impl Fn(usize) -> &'a str,
) -> RdmaFound {
    let none = |trouble: Option<String>| RdmaFound {
        pair,
        bandwidth: 0.0,
        trouble,
    };
    let said = |node: usize, why: Option<String>| why.map(|why| format!("{}: {why}", name(node)));
    let (first, second) = match sides {
        (Ok(first), Ok(second)) => (first, second),
        (Err(why), _) => return none(said(pair.0, Some(why))),
        (_, Err(why)) => return none(said(pair.1, Some(why))),
    };
    if let (Some(there), Some(back)) = (first.sent, second.sent) {
        return RdmaFound {
            pair,
            bandwidth: there.min(back),
            trouble: None,
        };
    }
    // The error of the side that serves explains more than a refused connection.
    let is_refused = first.found_nobody || second.found_nobody;
    let serving = said(pair.0, first.serving_trouble).or(said(pair.1, second.serving_trouble));
    let sending = said(pair.0, first.trouble).or(said(pair.1, second.trouble));
    none(if is_refused {
        serving.or(sending)
    } else {
        sending.or(serving)
    })
}
