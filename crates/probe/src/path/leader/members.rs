//! Who joined, and asking them.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use super::super::{
    Conduct, Settings,
    error::PathError,
    frame,
    limit::Limit,
    message::{Answer, Hello, LARGEST_HELLO, Request, VERSION, same_token},
    socket::accept,
};

/// Connections that may be saying hello at once; more are closed until one of them is done.
const HELLOS: usize = 256;
/// How long a hello may take.
const HELLO: Duration = Duration::from_secs(5);
/// How often it is looked whether joining is over.
const SLICE: Duration = Duration::from_millis(100);

/// Of a member that still answers, but not to this.
static NO_ANSWER: PathError = PathError::NoAnswer;

struct Member {
    name: String,
    stream: TcpStream,
    /// Where others measure with it.
    address: Option<SocketAddr>,
    trouble: Option<String>,
    gone: Option<PathError>,
}

/// Everyone who joined.
pub(super) struct Members {
    all: Vec<Member>,
}

/// A hello with its connection: theirs and our address of it.
struct Arrival {
    hello: Hello,
    stream: TcpStream,
    theirs: IpAddr,
    ours: IpAddr,
}

impl Members {
    /// Waits until all have joined, for half of the time at most.
    pub(super) fn gather(
        listener: TcpListener,
        settings: &Settings,
        conduct: &Conduct,
        limit: Limit,
    ) -> Self {
        let limit = limit.within(settings.timeout / 2);
        let (sender, arrivals) = mpsc::channel();
        let is_over = Arc::new(AtomicBool::new(false));
        let (over, token) = (Arc::clone(&is_over), settings.token.clone());
        let door = thread::spawn(move || greet(&listener, &token, &sender, &over));
        let mut came: Vec<Arrival> = Vec::new();
        while came.len() < conduct.gang.max(1)
            && let Ok(left) = limit.left()
            && let Ok(arrival) = arrivals.recv_timeout(left)
        {
            came.push(arrival);
        }
        is_over.store(true, Ordering::Relaxed);
        // It looks at the flag within a slice of time.
        drop(door.join());
        Self::from_arrivals(came)
    }

    fn from_arrivals(came: Vec<Arrival>) -> Self {
        // The leader's own member came over the loopback device, which others cannot reach. Others
        // reach the leader at the address that they connected to.
        let outside = came.iter().find(|arrival| !arrival.theirs.is_loopback());
        let outside = outside.map(|arrival| arrival.ours);
        let mut names = BTreeSet::new();
        let mut all: Vec<Member> = Vec::new();
        for arrival in came {
            let seen = if arrival.theirs.is_loopback() {
                outside.unwrap_or(arrival.theirs)
            } else {
                arrival.theirs
            };
            let hello = arrival.hello;
            let address = SocketAddr::new(hello.address.unwrap_or(seen), hello.port);
            all.push(Member {
                name: unique(hello.node, &mut names),
                stream: arrival.stream,
                address: hello.trouble.is_none().then_some(address),
                trouble: hello.trouble,
                gone: None,
            });
        }
        // By name, so that the same nodes meet in the same pairs in any order of joining.
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Self { all }
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn name(&self, member: usize) -> &str {
        &self.all[member].name
    }

    /// Those who still answer.
    pub(super) fn present(&self) -> Vec<usize> {
        let all = 0..self.all.len();
        all.filter(|member| self.all[*member].gone.is_none())
            .collect()
    }

    pub(super) fn is_gone(&self, member: usize) -> bool {
        self.all[member].gone.is_some()
    }

    /// Why there is no answer of this member.
    pub(super) fn no_answer(&self, member: usize) -> &PathError {
        self.all[member].gone.as_ref().unwrap_or(&NO_ANSWER)
    }

    pub(super) fn address(&self, member: usize) -> Option<SocketAddr> {
        self.all[member].address
    }

    pub(super) fn trouble(&self, member: usize) -> Option<&str> {
        self.all[member].trouble.as_deref()
    }

    /// Each node with how it was lost, also those who never came.
    pub(super) fn attendance(&self, conduct: &Conduct) -> Vec<(String, Option<String>)> {
        let here: BTreeSet<&str> = self.all.iter().map(|member| member.name.as_str()).collect();
        let never = conduct
            .nodes
            .iter()
            .filter(|name| !here.contains(name.as_str()));
        let never = never.map(|name| (name.clone(), Some("did not join".to_owned())));
        let came = self.all.iter().map(|member| {
            let lost = member.gone.as_ref();
            let lost = lost.map(|error| format!("was lost: {}", error.sentence()));
            (member.name.clone(), lost)
        });
        came.chain(never).collect()
    }

    /// Asks each of these members at the same time, and waits for the answers.
    pub(super) fn ask(
        &mut self,
        requests: Vec<(usize, Request)>,
        limit: Limit,
    ) -> BTreeMap<usize, Answer> {
        let groups = requests.into_iter().map(|request| vec![request]).collect();
        self.ask_together(groups, limit, limit.left().unwrap_or_default())
    }

    /// Asks groups at the same time. Once one of a group has answered, the others of it have only
    /// `grace` left: what they do together ends together.
    pub(super) fn ask_together(
        &mut self,
        groups: Vec<Vec<(usize, Request)>>,
        limit: Limit,
        grace: Duration,
    ) -> BTreeMap<usize, Answer> {
        let all = &self.all;
        let outcomes: Vec<(usize, io::Result<Answer>)> = thread::scope(|scope| {
            let threads: Vec<_> = groups
                .into_iter()
                .map(|group| scope.spawn(move || ask_group(all, group, limit, grace)))
                .collect();
            let joined = threads.into_iter().filter_map(|thread| thread.join().ok());
            joined.flatten().collect()
        });
        let mut answers = BTreeMap::new();
        for (member, outcome) in outcomes {
            match outcome {
                Ok(answer) => {
                    answers.insert(member, answer);
                }
                Err(error) => self.give_up(member, error),
            }
        }
        answers
    }

    fn give_up(&mut self, member: usize, error: io::Error) {
        let member = &mut self.all[member];
        member.gone.get_or_insert(PathError::Answer(error));
        // A late answer would be mistaken for that to a later request.
        drop(member.stream.shutdown(std::net::Shutdown::Both));
    }

    /// Says goodbye.
    pub(super) fn dismiss(&mut self, patience: Duration) {
        let all = self
            .present()
            .into_iter()
            .map(|member| (member, Request::Goodbye));
        self.ask(all.collect(), Limit::after(patience));
    }
}

fn ask_group(
    all: &[Member],
    group: Vec<(usize, Request)>,
    limit: Limit,
    grace: Duration,
) -> Vec<(usize, io::Result<Answer>)> {
    let mut outcomes = Vec::new();
    let mut waiting = Vec::new();
    for (member, request) in group {
        match frame::write(&all[member].stream, &request, limit) {
            Ok(()) => waiting.push(member),
            Err(error) => outcomes.push((member, Err(error))),
        }
    }
    let mut limit = limit;
    while !waiting.is_empty() {
        let next = readable(all, &waiting, limit).unwrap_or(0);
        let member = waiting.remove(next);
        outcomes.push((
            member,
            frame::read(&all[member].stream, frame::LARGEST, limit),
        ));
        limit = limit.within(grace);
    }
    outcomes
}

/// The place of the first who has something to say.
fn readable(all: &[Member], waiting: &[usize], limit: Limit) -> Option<usize> {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use std::os::fd::AsFd;
    let fd = |member: &usize| PollFd::new(all[*member].stream.as_fd(), PollFlags::POLLIN);
    let mut fds: Vec<PollFd<'_>> = waiting.iter().map(fd).collect();
    let timeout = PollTimeout::try_from(limit.left().ok()?.as_millis() + 1).ok()?;
    poll(&mut fds, timeout).ok()?;
    fds.iter().position(|fd| fd.any() == Some(true))
}

/// Takes connections until joining is over, each hello on a thread of its own, so that one that says
/// nothing blocks no other.
fn greet(
    listener: &TcpListener,
    token: &str,
    arrivals: &mpsc::Sender<Arrival>,
    is_over: &AtomicBool,
) {
    let hellos = Arc::new(AtomicUsize::new(0));
    while !is_over.load(Ordering::Relaxed) {
        let Ok((stream, theirs)) = accept(listener, Limit::after(SLICE)) else {
            continue;
        };
        if hellos.fetch_add(1, Ordering::Relaxed) >= HELLOS {
            hellos.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let (token, arrivals, hellos) = (token.to_owned(), arrivals.clone(), Arc::clone(&hellos));
        thread::spawn(move || {
            if let Ok(arrival) = hello(stream, theirs.ip(), &token) {
                // Joining may be over: late connections are closed.
                drop(arrivals.send(arrival));
            }
            hellos.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

fn hello(stream: TcpStream, theirs: IpAddr, token: &str) -> io::Result<Arrival> {
    let hello: Hello = frame::read(&stream, LARGEST_HELLO, Limit::after(HELLO))?;
    if !same_token(token, &hello.token) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    if hello.version != VERSION {
        let own = hello.version;
        let why = format!("it speaks version {own} of the protocol, the leader version {VERSION}");
        frame::write(&stream, &Request::Refused(why), Limit::after(HELLO))?;
        return Err(io::ErrorKind::Unsupported.into());
    }
    let ours = stream.local_addr()?.ip().to_canonical();
    Ok(Arrival {
        hello,
        stream,
        theirs: theirs.to_canonical(),
        ours,
    })
}

/// The name, with a number where another member has it already.
fn unique(name: String, names: &mut BTreeSet<String>) -> String {
    let numbered = (2..).map(|number| format!("{name}#{number}"));
    let mut all = std::iter::once(name.clone()).chain(numbered);
    let free = all.find(|name| !names.contains(name)).unwrap_or(name);
    names.insert(free.clone());
    free
}
