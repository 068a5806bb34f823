//! A connection that this side makes, and makes again: of a member to the leader, or of the leader to the operator.
//!
//! When it is dialled again is the machines' decision ([`trainyard_core::barrier`]); this does it.

use std::{
    net::TcpStream,
    os::fd::{AsFd as _, BorrowedFd},
    time::Duration,
};

use nix::poll::PollFlags;
use rustls::ClientConnection;

use super::{
    channel::{Arrived, Channel},
    dial::Dialer,
    frame::{Frame, Kind},
    seldom::Seldom,
};

/// For looking up the name and connecting.
const DIAL_WITHIN: Duration = Duration::from_secs(15);
/// For both sides to authenticate.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);

/// Tries that reach nobody before that is logged: 15 seconds.
const WORTH_A_LINE: u32 = 5;

/// Makes the TLS side of a connection, with the frame that is sent first. Called for each one, so that files are read again.
pub(crate) type Secure = Box<dyn Fn() -> Result<(ClientConnection, Option<Frame>), String>>;

/// What happened.
#[derive(Debug)]
pub(crate) enum News {
    /// Both sides have authenticated.
    Opened,
    /// A frame arrived.
    Frame(Frame),
    /// The connection is over, or could not be made.
    Lost,
}

enum State {
    Waiting {
        until: Option<Duration>,
    },
    Dialing {
        until: Duration,
    },
    Shaking {
        channel: Box<Channel>,
        until: Duration,
    },
    Open {
        channel: Box<Channel>,
    },
}

/// One peer that is dialled.
pub(crate) struct Outgoing {
    what: &'static str,
    dialer: Dialer,
    secure: Secure,
    state: State,
    seldom: Seldom,
    /// Tries that reached nobody, since the last one that did.
    unreached: u32,
}

impl Outgoing {
    /// Dials at once. `what` begins the log lines about it.
    pub(crate) fn new(what: &'static str, dialer: Dialer, secure: Secure) -> Self {
        Self {
            what,
            dialer,
            secure,
            state: State::Waiting {
                until: Some(Duration::ZERO),
            },
            seldom: Seldom::default(),
            unreached: 0,
        }
    }

    /// Closes the connection, and dials again after a pause.
    pub(crate) fn redial(&mut self, after: Duration, now: Duration) {
        self.dialer.give_up();
        self.state = State::Waiting {
            until: Some(now + after),
        };
    }

    /// Sends a frame, where there is a connection.
    pub(crate) fn send(&mut self, kind: Kind, content: Vec<u8>) {
        if let State::Open { channel } = &mut self.state {
            channel.send(kind, content);
        }
    }

    /// Whether a frame of this kind would reach the peer and replace no other one.
    pub(crate) fn takes(&self, kind: Kind) -> bool {
        match &self.state {
            State::Open { channel } => !channel.is_waiting(kind),
            State::Waiting { .. } | State::Dialing { .. } | State::Shaking { .. } => false,
        }
    }

    /// What to wait for.
    pub(crate) fn wanted(&self) -> [Option<(BorrowedFd<'_>, PollFlags)>; 2] {
        let channel = match &self.state {
            State::Shaking { channel, .. } | State::Open { channel } => {
                Some((channel.as_fd(), channel.wanted()))
            }
            State::Waiting { .. } | State::Dialing { .. } => None,
        };
        [Some((self.dialer.as_fd(), PollFlags::POLLIN)), channel]
    }

    /// When [`Outgoing::step`] has something to do, at the latest.
    pub(crate) fn wake_at(&self) -> Option<Duration> {
        match self.state {
            State::Waiting { until } => until,
            State::Dialing { until } | State::Shaking { until, .. } => Some(until),
            State::Open { .. } => None,
        }
    }

    /// Does what is due and reads what has arrived.
    pub(crate) fn step(&mut self, now: Duration) -> Vec<News> {
        let dialled = self.dialer.take();
        match &mut self.state {
            State::Waiting { until } => {
                if until.is_some_and(|until| now >= until) {
                    if !self.dialer.ask() {
                        return self.miss("the last try is still under way");
                    }
                    let until = now + DIAL_WITHIN;
                    self.state = State::Dialing { until };
                }
                Vec::new()
            }
            State::Dialing { until } => match dialled {
                Some(Ok(socket)) => match self.begin(socket, now) {
                    Ok(()) => self.step(now),
                    Err(why) => self.lose(&why),
                },
                Some(Err(error)) => self.miss(&error.to_string()),
                None if now >= *until => {
                    self.dialer.give_up();
                    self.miss("no connection in time")
                }
                None => Vec::new(),
            },
            State::Shaking { channel, until } => {
                let late = now >= *until;
                let arrived = channel.exchange(now);
                if let Some(why) = arrived.over {
                    return self.lose(&why);
                }
                if !channel.is_open() {
                    return if late {
                        self.lose("no TLS handshake in time")
                    } else {
                        Vec::new()
                    };
                }
                let State::Shaking { channel, .. } =
                    std::mem::replace(&mut self.state, State::Waiting { until: None })
                else {
                    return Vec::new();
                };
                self.state = State::Open { channel };
                let frames = arrived.frames.into_iter().map(News::Frame);
                [News::Opened].into_iter().chain(frames).collect()
            }
            State::Open { channel } => {
                let Arrived { frames, over } = channel.exchange(now);
                let mut news: Vec<News> = frames.into_iter().map(News::Frame).collect();
                if !news.is_empty() {
                    self.seldom.forget(self.what);
                }
                if let Some(why) = over {
                    news.extend(self.lose(&why));
                }
                news
            }
        }
    }

    /// The peer was not reached. Pods of a gang do not start at once, so the first tries are no news.
    fn miss(&mut self, why: &str) -> Vec<News> {
        self.unreached = self.unreached.saturating_add(1);
        if self.unreached >= WORTH_A_LINE {
            return self.lose(why);
        }
        self.state = State::Waiting { until: None };
        vec![News::Lost]
    }

    fn begin(&mut self, socket: TcpStream, now: Duration) -> Result<(), String> {
        self.unreached = 0;
        let (tls, first) = (self.secure)()?;
        let channel = Channel::new(tls, socket, now);
        let mut channel = Box::new(channel.map_err(|error| error.to_string())?);
        if let Some(Frame { kind, content }) = first {
            channel.send(kind, content);
        }
        let until = now + HANDSHAKE_WITHIN;
        self.state = State::Shaking { channel, until };
        Ok(())
    }

    /// The machine that owns the connection says when it is dialled again.
    fn lose(&mut self, why: &str) -> Vec<News> {
        self.state = State::Waiting { until: None };
        self.seldom.log(self.what, why);
        vec![News::Lost]
    }
}
