//! The suite `hosts`: a preflight between network namespaces of this machine.

use std::process::{Command, Stdio};

use crate::{
    Failure,
    step::{self, harness::counted},
};

/// What only root can do, and only where the kernel and the programs are there: a namespace, a pair of
/// interfaces in it, and a rate and a filter on one of them.
const NEEDED: &str = "set -e; ip link add name one type veth peer name two; \
     ip link add name three type bridge; \
     tc qdisc add dev one root tbf rate 1mbit burst 32k limit 1m; \
     tc qdisc add dev two root handle 1: htb default 1; \
     tc class add dev two parent 1: classid 1:2 htb rate 1mbit quantum 10000; \
     tc qdisc add dev two parent 1:2 handle 20: blackhole; \
     tc filter add dev two parent 1: protocol all prio 1 bpf bytecode '1,6 0 0 0' flowid 1:2";

pub(super) fn suite() -> Result<String, Failure> {
    available()?;
    counted(
        step::shared("test")
            .args(["--test", "hosts"])
            .args(["--", "--nocapture"])
            .env("TRAINYARD_TEST_HOSTS", "1"),
    )
}

/// Whether hosts can be made here.
pub(crate) fn available() -> Result<(), Failure> {
    let output = Command::new("unshare")
        .args(["--net", "sh", "-c", NEEDED])
        .stdin(Stdio::null())
        .output();
    let hint = "\n\nhint: run it as root; Debian has the programs in `util-linux` and `iproute2`";
    match output {
        Err(error) => Err(Failure::CouldNotRun(format!(
            "cannot start `unshare`: {error}{hint}"
        ))),
        Ok(output) if !output.status.success() => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(Failure::CouldNotRun(format!(
                "cannot make hosts with links of their own: {}{hint}",
                said.trim()
            )))
        }
        Ok(_) => Ok(()),
    }
}
