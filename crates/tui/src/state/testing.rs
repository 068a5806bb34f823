//! Documents as the program writes them, and states that they were answered to.

use super::{Ask, Event, Source, State};
use crate::{
    document::{Answer, Trouble},
    keys::Key,
    look::Look,
};

/// A moment after the documents: 2026-11-18T20:10:00Z.
pub(crate) const NOW: i64 = 1_795_032_600_000;

const JOBS: &str = r#"{"version":1,"rows":[
{"id":"a.pretrain","job":"pretrain","namespace":"research","kind":"PyTorchJob","state":"running","ranks":64,"accelerators":64,"attempt":2,
 "step":1200,"steps":5000,"day":[[1,1000],[5,1000],[0,20000],[12,10],[8,500],[0,20000]],"trainedRatio":0.941,"startedAt":"2026-11-18T18:10:00Z","live":true},
{"id":"b.損失","job":"損失-\u001b[2J\u202e","namespace":"default","kind":"JAXJob","state":"failed","ranks":8,"attempt":3,"step":7,"day":[[5,100],[12,1]],
 "line":"cuda_oom on rank 3: \u001b]52;c;AAAA\u0007a smaller batch fits","lineKind":"verdict","startedAt":"2026-11-16T20:10:00Z","endedAt":"2026-11-16T20:20:00Z","live":false},
{"id":"c.eval","job":"eval","namespace":"default","kind":"MPIJob","state":"waiting","ranks":32,"attempt":0,"day":[],"line":"needs 4 nodes",
 "startedAt":"2026-11-18T20:09:30Z","live":true}],
"counts":{"running":1,"failed":1,"waiting":1},"total":3,"unreadable":[{"run":"x.y","why":"`status.json` is empty"}]}"#;

const JOB: &str = r#"{"version":1,"run":"a.smoke","row":{"id":"a.smoke","job":"smoke","namespace":"default","kind":"PyTorchJob","state":"succeeded",
"ranks":4,"attempt":2,"step":784,"steps":784,"day":[],"trainedRatio":0.8778,"startedAt":"2026-11-18T19:59:18.216Z","endedAt":"2026-11-18T19:59:39.262Z","live":false},
"status":{"progress":{"loss":"0.0301","stepSeconds":"0.0202"}},"runs":[{}],"warnings":[{}],"notes":["the order of 5 ms was not observed"]}"#;

const STRIP: &str = r#"{"run":"a.smoke","version":1,"from":1795031958221,"to":1795031979260,"columns":60,"bucketMillis":1,
"rows":[[707,3,1300,5,4405,0,24,8,15,3,525,5,14063,0],[707,3,1300,5,4405,0,24,8,15,3,525,5,14057,0,6,14],
[707,3,1300,5,4405,0,4,12,20,8,15,3,525,5,14057,0,6,14]],"of":[0,1,2,1],
"labels":[{"from":0,"to":0,"pod":"Master 0","pods":1,"node":"vm"},{"from":1,"to":1,"pod":"Worker 0","pods":1,"node":"vm"},
{"from":2,"to":2,"pod":"Worker 1","pods":1,"node":"vm"},{"from":3,"to":3,"pod":"Worker 2","pods":1,"node":"vm"}],
"job":[707,3,1300,5,4405,0,1,12,38,8,525,5,14063,0],
"marks":[{"t":1795031964633,"kind":"failed","n":1},{"t":1795031964633,"kind":"failed","row":2,"rank":2,"n":1},{"t":1795031958221,"kind":"attempt","n":1},
{"t":1795031964633,"kind":"attempt","n":2},{"t":1795031970000,"kind":"saved","n":400}],"marksLeftOut":0,"exact":true,"mixed":0}"#;

const LEDGER: &str = r#"{"wall":21039,"phases":[{"phase":"training","millis":18468},{"phase":"starting","millis":1825},{"phase":"creating","millis":707},
{"phase":"restarting","millis":39}],"notObserved":5,"ettr":{"all":0.8778,"lastHour":0.8778},"losses":[{"phase":"starting","attempt":1,"millis":1825,"gpuHours":0.2,
"why":"programs run and have not reported a step of their attempt","wouldWin":{"change":"half the time to the first step","points":3.98}}]}"#;

const VERDICTS: &str = r#"{"verdicts":[{"at":1795031964633,"rank":2,"attempt":1,"label":"killed_from_outside",
"sentence":"a process was killed from outside: rank 2 (pod `smoke-worker-1`)","account":"user","retry":"may_help","confidence":"high",
"next":"find who sent SIGKILL","evidence":[{"file":"smoke-worker-1","line":0,"text":"rank 2 was killed by signal 9"}],
"refutedBy":"an `oom-kill` line in the kernel log at that time"}]}"#;

const LOGS: &str = r#"{"attempt":2,"firstFailure":{"rank":2,"at":1795031964633,"text":"RuntimeError: \u001b[31mboom\u202e","before":["step 199"]},
"firstFailureAt":{"pod":"smoke-worker-1"},"groups":[
{"template":"rank # of # ready","example":"rank 0 of 4 ready","count":4,"ranks":"0-3","firstAt":1795031964699,"severity":"info","role":"other"},
{"example":"RuntimeError: boom","count":3,"ranks":"0-1,3","firstAt":1795031964699,"severity":"error","role":"cause"},
{"example":"step 225/784 loss 0.1183","count":4,"ranks":"0","firstAt":1795031964700,"severity":"info","role":"progress"}],"leftOut":2,"bytesLeftOut":5}"#;

const EVENTS: &str = r#"{"events":[{"at":1795031979260,"kind":"ended","sentence":"the job succeeded"},
{"at":1795031964633,"kind":"failed","sentence":"attempt 1 failed after step 200: pod `smoke-worker-1`: it ended with exit code 137","attempt":1}],"cursor":"2"}"#;

const FAILURES: &str = r#"{"rows":[{"label":"cuda_oom","place":"train.py:166","times":14,"jobs":6,"nodes":[{"node":"gpu-064","times":9}],
"firstAt":"2026-10-12T00:00:00Z","lastAt":"2026-11-18T18:10:00Z","account":"user","newest":{"run":"b.x","job":"sft","namespace":"team-a","attempt":3,
"sentence":"rank 3 ran out of memory"}},{"label":"other","times":1,"jobs":1,"firstAt":"2026-11-18T00:00:00Z","lastAt":"2026-11-18T20:09:00Z","account":"platform"}]}"#;

const NODES: &str = r#"{"version":1,"levels":[{"key":"rack"}],"asOf":"2026-11-18T20:10:00Z","warnings":["pods of 2 namespaces cannot be listed"],
"cluster":{"level":"cluster","name":null,"nodes":3,"accelerators":{"total":24,"free":9,"held":10,"foreign":1,"out":4},"hosts":[],"areas":[
{"level":"rack","name":"r1","nodes":2,"accelerators":{"total":16,"free":5,"held":10,"foreign":1,"out":0},"areas":[],"hosts":[
{"name":"gpu-001","state":null,"accelerators":{"total":8,"free":0,"held":8,"foreign":0,"out":0},"cpu":[1000,96000],"holders":[{"gang":"research/pretrain","accelerators":8}]},
{"name":"gpu-002-\u001b[2J","state":null,"accelerators":{"total":8,"free":5,"held":2,"foreign":1,"out":0},"cpu":[1000,96000],"holders":[{"gang":"default/eval","accelerators":2}]}]},
{"level":"rack","name":null,"nodes":1,"accelerators":{"total":8,"free":4,"held":0,"foreign":0,"out":4},"areas":[],"hosts":[
{"name":"gpu-003","state":"cordoned","probationUntil":"2026-11-18T22:10:00Z","accelerators":{"total":-3,"free":4,"held":9223372036854775807,"foreign":0,"out":4},"cpu":[0,0],"holders":[]}]}]}}"#;

const QUEUE: &str = r#"{"version":1,"rows":[
{"id":"u-1","job":"pretrain-損失","namespace":"research","createdAt":"2026-11-18T16:10:00Z","pods":64,"accelerators":512,"reason":"needs 64 nodes in one block, 60 are free","code":"NoRoom","queue":"big"},
{"id":"u-2","job":"eval","namespace":"default","pods":1}],"rowsLeftOut":7,"unreadable":[{"run":"mpijobs","why":"403: may not be listed"}]}"#;

/// The document that answers a question.
pub(crate) fn document(ask: &Ask) -> &'static str {
    match ask {
        Ask::Jobs { .. } => JOBS,
        Ask::Job { .. } => JOB,
        Ask::Strip { .. } => STRIP,
        Ask::Ledger { .. } => LEDGER,
        Ask::Verdicts { .. } => VERDICTS,
        Ask::Logs { .. } => LOGS,
        Ask::Events { .. } => EVENTS,
        Ask::Failures => FAILURES,
        Ask::Nodes => NODES,
        Ask::Queue => QUEUE,
    }
}

/// The event of an answer; this machine has no nodes and no queue.
pub(crate) fn answered(ask: &Ask) -> Event {
    let answer = match ask {
        Ask::Nodes | Ask::Queue => Err(Trouble {
            message: "this dashboard shows the runs of one machine, which has no queue".to_owned(),
            hint: "run `trainyard ps --all-namespaces` against a cluster".to_owned(),
        }),
        ask => Answer::read(ask, document(ask).as_bytes()).map(Box::new),
    };
    Event::Answered {
        ask: ask.clone(),
        answer,
    }
}

/// Answers everything that is asked, until nothing is.
pub(crate) fn settle(state: &mut State, mut asks: Option<Vec<Ask>>) {
    while let Some(all) = asks.take() {
        for ask in all {
            let effects = state.update(answered(&ask));
            asks = effects.ask.or(asks);
        }
    }
}

/// A state after these keys, with all answers.
pub(crate) fn after(size: (u16, u16), look: Look, keys: &[Key]) -> State {
    after_keys(State::new(source(), size, look, NOW, crate::measure), keys)
}

/// A state of a cluster after the key of a page, its answer, and these keys.
pub(crate) fn after_in_cluster(size: (u16, u16), page: Key, keys: &[Key]) -> State {
    let cluster = Source {
        name: "namespace `research`".to_owned(),
        no_jobs: "no jobs".to_owned(),
    };
    let mut state = after_keys(
        State::new(cluster, size, Look::PLAIN, NOW, crate::measure),
        &[page],
    );
    for ask in [Ask::Nodes, Ask::Queue] {
        let answer = Answer::read(&ask, document(&ask).as_bytes()).map(Box::new);
        state.update(Event::Answered { ask, answer });
    }
    for key in keys {
        state.update(Event::Key(*key));
    }
    state
}

/// The runs of a folder.
pub(crate) fn source() -> Source {
    Source {
        name: "runs below .trainyard".to_owned(),
        no_jobs: "no runs here yet; `trainyard run job.yaml` starts one".to_owned(),
    }
}

fn after_keys(mut state: State, keys: &[Key]) -> State {
    let asks = state.start().ask;
    settle(&mut state, asks);
    for key in keys {
        let asks = state.update(Event::Key(*key)).ask;
        settle(&mut state, asks);
    }
    state
}
