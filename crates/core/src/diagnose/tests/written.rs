//! Short logs that we wrote in the form in which programs print these failures.

use serde::Deserialize;

use super::*;

#[derive(Deserialize)]
struct Written {
    log: Vec<Log>,
}

#[derive(Deserialize)]
struct Log {
    name: String,
    want: Vec<String>,
    ranks: Option<Vec<u32>>,
    text: String,
}

#[test]
fn written_logs() {
    let bytes = file("../written.toml");
    let written: Written = toml::from_str(std::str::from_utf8(&bytes).unwrap()).unwrap();
    let empty = doctor();
    let mut wrong = Vec::new();
    for log in &written.log {
        let mut doctor = empty.clone();
        let id = doctor.source("job.log");
        doctor.bytes(id, log.text.as_bytes());
        let report = doctor.finish();
        let have = labels(&report);
        if !log.want.iter().any(|want| have[0] == want) {
            wrong.push(format!("{}: want {:?}, have {have:?}", log.name, log.want));
        }
        let ranks = &report.verdicts[0].ranks;
        if log.ranks.as_ref().is_some_and(|want| want != ranks) {
            wrong.push(format!("{}: names ranks {ranks:?}", log.name));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
