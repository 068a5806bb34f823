//! Hosts as network namespaces: two bridges in one, and in each other one an interface on both. One
//! bridge is the cluster's own network, over which members talk; the other is the fabric.
//!
//! Every link of the fabric has the same rate, since links without one are as fast as the processor
//! that they share. Each namespace is held by a process that ends when its stdin does, so nothing is
//! left behind, however the test ends.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use trainyard_core::probe::Report;

/// Bits in a second of every link, and of one that is slow, as `tc` has them, each with the bytes of
/// its bucket: what the link carries in 40 ms. All hosts share the processors of one machine, which
/// stall for tens of milliseconds; whatever was not sent in a stall may then be sent after it.
const RATE: (&str, &str) = ("400mbit", "2m");
const SLOW: (&str, &str) = ("40mbit", "200k");
/// Bytes of the largest packet of the fabric, and of a port that was forgotten.
const MTU: &str = "9000";
const SMALL_MTU: &str = "1500";
/// A filter that takes one of ten packets: the kernel's random number, below a tenth of its range.
const ONE_OF_TEN: &str = "4,32 0 0 4294963256,53 1 0 429496729,6 0 0 4294967295,6 0 0 0";
/// What all members share.
const TOKEN: &str = "of-the-test";
const PORT: &str = "29400";

/// What is wrong with a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Its link has a tenth of the rate of the others.
    SlowLink,
    /// Its interface is not there.
    NoInterface,
    /// The port that it is connected to takes only smaller packets.
    WrongMtu,
    /// One of ten packets to it is lost.
    Drops,
    /// Its member is killed.
    Dead,
}

impl Fault {
    pub(crate) const ALL: [Self; 5] = [
        Self::SlowLink,
        Self::NoInterface,
        Self::WrongMtu,
        Self::Drops,
        Self::Dead,
    ];
}

/// A network namespace.
struct Namespace {
    holder: Child,
}

impl Namespace {
    fn make() -> Self {
        let mut holder = Command::new("unshare")
            .args(["--net", "sh", "-c", "echo ready && exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("`unshare` can be started");
        let mut line = String::new();
        let output = holder.stdout.take().expect("stdout is piped");
        BufReader::new(output).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "only root can make network namespaces");
        Self { holder }
    }

    fn pid(&self) -> u32 {
        self.holder.id()
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net=/proc/{}/ns/net", self.pid()))
            .arg(program);
        command
    }

    /// Runs lines of `ip` or `tc` inside.
    fn batch(&self, program: &str, lines: &[String]) {
        let mut child = self
            .command(program)
            .args(["-batch", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        input
            .write_all((lines.join("\n") + "\n").as_bytes())
            .unwrap();
        drop(input);
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program}: {lines:?}: {said}");
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        drop(self.holder.wait());
    }
}

/// Hosts, and what joins them.
pub(crate) struct Hosts {
    switch: Namespace,
    all: Vec<Namespace>,
}

impl Hosts {
    pub(crate) fn make(count: usize) -> Self {
        let switch = Namespace::make();
        switch.batch(
            "ip",
            &["control", "fabric"].map(|name| format!("link add {name} up type bridge")),
        );
        let hosts = Self {
            switch,
            all: (0..count).map(|_| Namespace::make()).collect(),
        };
        for host in 0..count {
            hosts.connect(host, "control", "eth0", "10.77.0", "1500");
            hosts.connect(host, "fabric", "net1", "10.78.0", MTU);
            hosts.shape(host, RATE);
        }
        hosts
    }

    pub(crate) fn name(host: usize) -> String {
        format!("host-{host}")
    }

    fn connect(&self, host: usize, bridge: &str, interface: &str, network: &str, mtu: &str) {
        let inside = &self.all[host];
        let port = port(bridge, host);
        // The same address after a link was created again, so that no other host caches a wrong one.
        let peer = format!(
            "{interface} address 02:00:00:{:02x}:00:{host:02x} mtu {mtu} netns {}",
            u8::from(bridge == "fabric"),
            inside.pid()
        );
        self.switch.batch(
            "ip",
            &[
                format!("link add {port} mtu {mtu} type veth peer name {peer}"),
                format!("link set {port} master {bridge} up"),
            ],
        );
        inside.batch(
            "ip",
            &[
                "link set lo up".to_owned(),
                format!("address add {network}.{}/24 dev {interface}", host + 1),
                format!("link set {interface} up"),
            ],
        );
    }

    /// Gives the host's link of the fabric a rate, in both directions. The queue is longer than what
    /// TCP ever has on its way, so that nothing is dropped.
    fn shape(&self, host: usize, (rate, bucket): (&str, &str)) {
        let line = |device: &str| {
            vec![format!(
                "qdisc replace dev {device} root tbf rate {rate} burst {bucket} limit 16m"
            )]
        };
        self.all[host].batch("tc", &line("net1"));
        self.switch.batch("tc", &line(&port("fabric", host)));
    }

    fn break_link(&self, host: usize, fault: Fault) {
        let port = port("fabric", host);
        match fault {
            Fault::SlowLink => self.shape(host, SLOW),
            Fault::NoInterface => self.switch.batch("ip", &[format!("link delete {port}")]),
            Fault::WrongMtu => {
                self.switch
                    .batch("ip", &[format!("link set {port} mtu {SMALL_MTU}")]);
            }
            Fault::Drops => {
                let (rate, bucket) = RATE;
                let class = format!("htb rate {rate} burst {bucket} cburst {bucket} quantum 10000");
                self.switch.batch("tc", &[
                    format!("qdisc replace dev {port} root handle 1: htb default 1"),
                    format!("class add dev {port} parent 1: classid 1:1 {class}"),
                    format!("class add dev {port} parent 1: classid 1:2 {class}"),
                    format!("qdisc add dev {port} parent 1:1 handle 10: bfifo limit 16m"),
                    format!("qdisc add dev {port} parent 1:2 handle 20: blackhole"),
                    format!(
                        "filter add dev {port} parent 1: protocol all prio 1 bpf bytecode '{ONE_OF_TEN}' flowid 1:2"
                    ),
                ]);
            }
            Fault::Dead => {}
        }
    }

    fn mend(&self, host: usize) {
        let port = port("fabric", host);
        // A veth goes with its other end, whichever is deleted; it may be gone already.
        let output = self
            .switch
            .command("ip")
            .args(["link", "delete", &port])
            .output();
        drop(output);
        self.connect(host, "fabric", "net1", "10.78.0", MTU);
        self.shape(host, RATE);
    }

    /// Bytes that a host sent over the fabric since its link was made.
    pub(crate) fn sent(&self, host: usize) -> u64 {
        let file = format!("/proc/{}/net/dev", self.all[host].pid());
        let text = fs::read_to_string(file).unwrap();
        let line = text
            .lines()
            .find_map(|line| line.trim_start().strip_prefix("net1:"));
        // Eight numbers of what was received, then those of what was sent, bytes first in both.
        let sent = line.and_then(|line| line.split_whitespace().nth(8)?.parse().ok());
        sent.unwrap_or_else(|| panic!("no counter of `net1` in:\n{text}"))
    }

    /// A preflight among all hosts with these faults. A member that is to die does so once its host
    /// sent `dies_after` bytes: by a clock, a fast preflight would be over before.
    pub(crate) fn preflight(&self, faults: &[(usize, Fault)], dies_after: u64) -> Report {
        for (host, fault) in faults {
            self.break_link(*host, *fault);
        }
        let dead = |(host, fault): &(usize, Fault)| (*fault == Fault::Dead).then_some(*host);
        let dying: Vec<(usize, u64)> = faults
            .iter()
            .filter_map(dead)
            .map(|host| (host, self.sent(host) + dies_after))
            .collect();
        let mut members: Vec<Child> = (0..self.all.len()).map(|host| self.member(host)).collect();
        for (host, sent) in dying {
            while self.sent(host) < sent {
                let ended = members[host].try_wait().unwrap();
                assert!(ended.is_none(), "{} ended alive", Self::name(host));
                thread::sleep(Duration::from_millis(1));
            }
            members[host].kill().unwrap();
        }
        let leader = members.remove(0);
        let output = leader.wait_with_output().unwrap();
        for member in &mut members {
            end(member);
        }
        for (host, fault) in faults {
            if *fault != Fault::Dead {
                self.mend(*host);
            }
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("trainyard-preflight-report: "));
        let said = String::from_utf8_lossy(&output.stderr);
        let line = line.unwrap_or_else(|| panic!("{}: {text} {said}", output.status));
        serde_json::from_str(line).unwrap()
    }

    fn member(&self, host: usize) -> Child {
        let mut command = self.all[host].command(env!("CARGO_BIN_EXE_trainyard"));
        let names: Vec<String> = (0..self.all.len()).map(Self::name).collect();
        command
            .args(["preflight", "--serve"])
            .env("TRAINYARD_PREFLIGHT_NODE", Self::name(host))
            .env("TRAINYARD_PREFLIGHT_TOKEN", TOKEN)
            .env("TRAINYARD_PREFLIGHT_NEEDS", r#"{"interface":"net1"}"#)
            .env("TRAINYARD_PREFLIGHT_GANG", self.all.len().to_string())
            .env("TRAINYARD_PREFLIGHT_NODES", names.join(","))
            .env("TRAINYARD_PREFLIGHT_PORT", PORT)
            .env("TRAINYARD_PREFLIGHT_TIMEOUT", "60")
            .env("TRAINYARD_PREFLIGHT_MEASURE", "80")
            // What a host is made of is tested elsewhere, and takes seconds each time.
            .env("TRAINYARD_PREFLIGHT_ROOT", "/nowhere")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if host > 0 {
            command.env("TRAINYARD_PREFLIGHT_LEAD", format!("10.77.0.1:{PORT}"));
        }
        command.spawn().unwrap()
    }
}

fn port(bridge: &str, host: usize) -> String {
    // At most 15 characters.
    format!("{bridge}{host}")
}

/// Waits for a member, which ends with the leader's goodbye; one that does not is a failure.
fn end(member: &mut Child) {
    let limit = Instant::now() + Duration::from_secs(20);
    while member.try_wait().unwrap().is_none() {
        if Instant::now() > limit {
            let state = fs::read_to_string(format!("/proc/{}/status", member.id()));
            member.kill().unwrap();
            panic!("a member did not end: {state:?}");
        }
        thread::sleep(Duration::from_millis(10));
    }
}
