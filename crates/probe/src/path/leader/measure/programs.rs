//! The programs of the image: pairs over RDMA, and the GPUs of each pod.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use trainyard_core::probe::{
    Reading,
    paths::Method,
    tools::{self, Collective, Port, Unmeasured, collectives, gpus, nccl, perftest},
};

use super::{
    super::super::message::{Answer, Measure, Part, Request},
    Checked, Measuring,
};

/// The longest that the GPUs of a pod may take: their driver and NCCL need most of it to set themselves up.
const COLLECTIVE: Duration = Duration::from_secs(40);
/// What is kept for them while pairs are measured over RDMA.
const KEPT: Duration = Duration::from_secs(25);
/// With less time than this they are not begun.
const LEAST: Duration = Duration::from_secs(5);

impl Measuring<'_> {
    /// What the programs of the image measure: pairs over RDMA, and the GPUs of each pod.
    pub(in super::super) fn programs(&mut self, readings: &BTreeMap<String, Reading>) -> Checked {
        let installed = self.installed();
        let needs = &self.settings.needs;
        let has = |member: usize, program: &'static str, package: &'static str| {
            let own = installed.get(&member);
            if own.is_some_and(|own| own.contains(program)) {
                return Ok(());
            }
            Err(if needs.asked_by.is_some() {
                Unmeasured::NotInJobImage { program, package }
            } else {
                Unmeasured::NotInImage(program)
            })
        };
        let collective = self.plan(readings, |member, reading| {
            let count = gpus(reading, needs)?;
            has(member, nccl::PROGRAM, nccl::PACKAGE)?;
            Ok(count)
        });
        let ports = self.plan(readings, |member, reading| {
            let port = tools::port(reading, needs)?;
            has(member, perftest::PROGRAM, perftest::PACKAGE)?;
            let address = self.members.address(member);
            address.map(|_| port).ok_or(Unmeasured::NoAddress)
        });
        let is_any = collective.values().any(Result::is_ok);
        let mut checked = self.rdma(ports, if is_any { KEPT } else { Duration::ZERO });
        let found = self.collectives(collective);
        for (name, check) in collectives(&found, readings) {
            checked.nodes.entry(name).or_default().push(check);
        }
        checked
    }

    /// The programs that each member has.
    fn installed(&mut self) -> BTreeMap<usize, BTreeSet<String>> {
        let all = self.members.present().into_iter();
        let asked = all.map(|member| (member, Request::Programs)).collect();
        let limit = self.limit.within(self.settings.patience());
        let answers = self.members.ask(asked, limit).into_iter();
        let programs = answers.filter_map(|(member, answer)| match answer {
            Answer::Programs(programs) => Some((member, programs)),
            _ => None,
        });
        programs.collect()
    }

    /// What each member is to do, or why it is not.
    fn plan<T>(
        &self,
        readings: &BTreeMap<String, Reading>,
        one: impl Fn(usize, &Reading) -> Result<T, Unmeasured>,
    ) -> BTreeMap<usize, Result<T, Unmeasured>> {
        let present = self.members.present().into_iter();
        let planned = present.filter_map(|member| {
            let reading = readings.get(self.members.name(member))?;
            Some((member, one(member, reading)))
        });
        planned.collect()
    }

    fn rdma(
        &mut self,
        planned: BTreeMap<usize, Result<Port, Unmeasured>>,
        kept: Duration,
    ) -> Checked {
        let alone = planned.values().filter(|port| port.is_ok()).count() < 2;
        let mut nodes = BTreeMap::new();
        let (mut able, mut ports) = (Vec::new(), Vec::new());
        for (member, port) in planned {
            let why = match port {
                Ok(_) if alone => Unmeasured::Alone,
                Ok(port) => {
                    able.push(member);
                    ports.push(port);
                    continue;
                }
                Err(why) => why,
            };
            let check = Method::Rdma(Vec::new()).not_measured(&why.to_string());
            nodes.insert(self.members.name(member).to_owned(), vec![check]);
        }
        if able.is_empty() {
            return Checked {
                nodes,
                ..Checked::default()
            };
        }
        let mut pairs = self.pairs(Method::Rdma(ports), able, kept);
        let is_whole = self.rounds(&mut pairs);
        self.checked(nodes, &pairs, None, is_whole)
    }

    /// The GPUs of every pod at the same time, for they share nothing.
    fn collectives(
        &mut self,
        planned: BTreeMap<usize, Result<u32, Unmeasured>>,
    ) -> BTreeMap<String, Collective> {
        let patience = self.settings.patience();
        let left = self.limit.left().unwrap_or_default();
        let bound = left.saturating_sub(patience * 2).min(COLLECTIVE);
        let mut found: BTreeMap<String, Collective> = BTreeMap::new();
        let mut requests = Vec::new();
        for (member, planned) in planned {
            let not_run = match planned {
                Ok(_) if self.members.is_gone(member) => continue,
                Ok(_) if bound < LEAST => Unmeasured::NoTime,
                Ok(gpus) => {
                    let part = Part {
                        id: self.next_id(),
                        to: None,
                        limit: bound,
                        measure: Measure::Collective(gpus),
                    };
                    requests.push((member, Request::Measure(part)));
                    continue;
                }
                Err(why) => why,
            };
            let name = self.members.name(member).to_owned();
            found.insert(name, Collective::NotRun(not_run.to_string()));
        }
        let limit = self.limit.within(bound + patience * 2);
        for (member, answer) in self.members.ask(requests, limit) {
            if let Answer::Collective(collective) = answer {
                found.insert(self.members.name(member).to_owned(), collective);
            }
        }
        found
    }
}
