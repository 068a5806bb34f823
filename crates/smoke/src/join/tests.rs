use std::{
    io::{Read, Write},
    net::Ipv4Addr,
    sync::mpsc,
    thread,
    time::Instant,
};

use super::*;

const LIMIT: Duration = Duration::from_secs(20);
const TOKEN: u64 = 77;

/// A port that was free a moment ago.
fn free_port() -> io::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?.port())
}

fn member(rank: usize, size: usize, port: u16) -> Member {
    Member {
        rank,
        size,
        master_host: "127.0.0.1".to_owned(),
        master_port: port,
        interface: None,
    }
}

/// Joins as `member`; the ring, or the sentence.
fn try_join(
    member: &Member,
    token: u64,
    join_limit: Duration,
    stop: &Stop,
) -> Result<Ring, String> {
    let joining = Joining {
        member,
        token,
        join_limit,
        peer_limit: LIMIT,
        stop,
    };
    join(joining, &mut |_| Ok(())).map_err(|error| error.to_string())
}

/// A connection to rank 0, once it listens.
fn connect(port: u16) -> TcpStream {
    loop {
        if let Ok(stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, port))
            && stream.local_addr().ok() != stream.peer_addr().ok()
        {
            return stream;
        }
        thread::yield_now();
    }
}

/// Says hello by hand, and returns the connection.
fn say_hello(port: u16, hello: &Hello) -> io::Result<TcpStream> {
    let mut stream = connect(port);
    stream.write_all(&hello.encode())?;
    Ok(stream)
}

/// What rank 0 answers on a connection.
fn answer(stream: &mut TcpStream) -> io::Result<Option<Answer>> {
    let mut header = [0; ANSWER_HEADER_BYTES];
    stream.read_exact(&mut header)?;
    let (kind, length) = Answer::decode_header(header);
    let mut payload = vec![0; length];
    stream.read_exact(&mut payload)?;
    Ok(Answer::decode(kind, &payload))
}

fn hello(rank: usize, size: usize) -> Hello {
    Hello {
        token: TOKEN,
        session: 0,
        rank,
        size,
        address: SocketAddr::from((Ipv4Addr::LOCALHOST, 9)),
    }
}

#[test]
fn neighbours_connect_on_the_named_interface() -> io::Result<()> {
    let port = free_port()?;
    let stop = Stop::default();
    let on = |rank: usize, name: &str| Member {
        interface: Some(name.to_owned()),
        ..member(rank, 2, port)
    };
    let join = |rank| try_join(&on(rank, "lo"), TOKEN, LIMIT, &stop).map(drop);
    let rings = thread::scope(|scope| {
        let first = scope.spawn(|| join(0));
        let second = join(1);
        (first.join().expect("a rank does not panic"), second)
    });
    assert_eq!(rings, (Ok(()), Ok(())));
    let missing = try_join(&on(0, "no-such-one"), TOKEN, LIMIT, &stop).map(drop);
    let sentence = missing.unwrap_err();
    assert!(
        sentence.starts_with(
            "Unable to find address for: no-such-one (`GLOO_SOCKET_IFNAME` names it, this host has "
        ),
        "{sentence}"
    );
    Ok(())
}

#[test]
fn ranks_meet_in_any_order() -> io::Result<()> {
    for (size, last) in [(2, 0), (2, 1), (5, 0), (5, 3)] {
        let port = free_port()?;
        let stop = Stop::default();
        let sums = thread::scope(|scope| {
            let join_and_sum = |rank: usize| {
                let mut ring = try_join(&member(rank, size, port), TOKEN, LIMIT, &stop)?;
                let mut values = [crate::model::count(rank)];
                ring.sum(&mut values)
                    .map_err(|error| format!("{error:?}"))?;
                Ok(values[0])
            };
            let early = (0..size).filter(|rank| *rank != last);
            let early: Vec<_> = early
                .map(|rank| scope.spawn(move || join_and_sum(rank)))
                .collect();
            let late = join_and_sum(last);
            let mut sums: Vec<Result<f32, String>> = early
                .into_iter()
                .map(|rank| rank.join().expect("no rank panics"))
                .collect();
            sums.push(late);
            sums
        });
        let wanted = crate::model::count(size * (size - 1) / 2);
        assert_eq!(sums, vec![Ok(wanted); size], "{size} ranks, {last} last");
    }
    Ok(())
}

#[test]
fn missing_ranks_are_named_to_all() -> io::Result<()> {
    let port = free_port()?;
    let stop = Stop::default();
    let limit = Duration::from_secs(2);
    let (host, guest) = thread::scope(|scope| {
        let guest = scope.spawn(|| try_join(&member(2, 5, port), TOKEN, LIMIT, &stop).err());
        let host = try_join(&member(0, 5, port), TOKEN, limit, &stop).err();
        (host, guest.join().expect("no rank panics"))
    });
    let missing = "waited 2 s for 5 ranks: ranks 1, 3 and 4 did not join";
    assert_eq!(host.as_deref(), Some(missing));
    assert_eq!(guest, Some(format!("rank 0 refused rank 2: {missing}")));
    Ok(())
}

#[test]
fn unreachable_rank_0_is_named() -> io::Result<()> {
    let port = free_port()?;
    let limit = Duration::from_secs(1);
    let sentence = try_join(&member(1, 2, port), TOKEN, limit, &Stop::default()).err();
    let wanted = format!("rank 1 could not reach rank 0 at `127.0.0.1:{port}` within 1 s");
    assert_eq!(sentence, Some(wanted));
    Ok(())
}

#[test]
fn strangers_are_refused_and_ranks_still_join() -> io::Result<()> {
    let cases = [
        (
            "other options",
            Hello {
                token: 1,
                ..hello(1, 2)
            },
            "rank 1 has different options than rank 0",
        ),
        (
            "another world",
            hello(1, 3),
            "its world size is 3, that of rank 0 is 2",
        ),
        (
            "a second rank 0",
            hello(0, 2),
            "it is rank 0, expected 1 to 1",
        ),
        (
            "an older attempt",
            Hello {
                session: 5,
                ..hello(1, 2)
            },
            "it belongs to an older attempt",
        ),
    ];
    let port = free_port()?;
    let stop = Stop::default();
    thread::scope(|scope| -> io::Result<()> {
        let host = scope.spawn(|| try_join(&member(0, 2, port), TOKEN, LIMIT, &stop));
        for (name, hello, why) in cases {
            let answered = answer(&mut say_hello(port, &hello)?)?;
            assert_eq!(answered, Some(Answer::Refused(why.to_owned())), "{name}");
        }
        // One that sends nothing, one that stops in the middle and one with another protocol must
        // not get in the way.
        let _silent = connect(port);
        let mut half = connect(port);
        half.write_all(&hello(1, 2).encode()[..20])?;
        let mut other = connect(port);
        other.write_all(&[b'G'; 200])?;
        let guest = try_join(&member(1, 2, port), TOKEN, LIMIT, &stop);
        assert!(guest.is_ok(), "{guest:?}");
        let host = host.join().expect("no rank panics");
        assert!(host.is_ok(), "{host:?}");
        Ok(())
    })
}

#[test]
fn restarted_rank_replaces_itself() -> io::Result<()> {
    let port = free_port()?;
    let stop = Stop::default();
    thread::scope(|scope| -> io::Result<()> {
        let host = scope.spawn(|| try_join(&member(0, 3, port), TOKEN, LIMIT, &stop));
        // The first process of rank 2 hangs, the second comes while it does.
        let mut older = say_hello(port, &hello(2, 3))?;
        let second = say_hello(port, &hello(2, 3))?;
        let why = "a newer process of the same rank has connected".to_owned();
        assert_eq!(answer(&mut older)?, Some(Answer::Refused(why)));
        // The second ends, and the third comes to stay.
        drop(second);
        let third = scope.spawn(|| try_join(&member(2, 3, port), TOKEN, LIMIT, &stop));
        let first = try_join(&member(1, 3, port), TOKEN, LIMIT, &stop);
        for ring in [Ok(first), third.join(), host.join()] {
            let ring = ring.expect("no rank panics");
            assert!(ring.is_ok(), "{ring:?}");
        }
        Ok(())
    })
}

#[test]
fn rank_lost_while_connecting_ends_the_others() -> io::Result<()> {
    let port = free_port()?;
    let stop = Stop::default();
    let begun = Instant::now();
    thread::scope(|scope| -> io::Result<()> {
        let host = scope.spawn(|| try_join(&member(0, 3, port), TOKEN, LIMIT, &stop).err());
        let guest = scope.spawn(|| try_join(&member(1, 3, port), TOKEN, LIMIT, &stop).err());
        // Rank 2 listens for its neighbour, is welcomed, and ends.
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let hello = Hello {
            address: listener.local_addr()?,
            ..hello(2, 3)
        };
        let mut stream = say_hello(port, &hello)?;
        assert!(matches!(answer(&mut stream)?, Some(Answer::Welcome { .. })));
        drop(stream);
        let lost = "lost rank 2 while the ranks were connecting: its connection closed";
        let host = host.join().expect("no rank panics");
        assert_eq!(host.as_deref(), Some(lost));
        let guest = guest.join().expect("no rank panics");
        assert_eq!(guest, Some(format!("rank 0 refused rank 1: {lost}")));
        assert!(begun.elapsed() < LIMIT / 2, "{:?}", begun.elapsed());
        Ok(())
    })
}

#[test]
fn neighbour_of_another_session_is_refused() -> io::Result<()> {
    let port = free_port()?;
    let stop = Stop::default();
    thread::scope(|scope| -> io::Result<()> {
        let host = scope.spawn(|| try_join(&member(0, 2, port), TOKEN, LIMIT, &stop));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let guest = Hello {
            address: listener.local_addr()?,
            ..hello(1, 2)
        };
        let mut stream = say_hello(port, &guest)?;
        let Some(Answer::Welcome { session, addresses }) = answer(&mut stream)? else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let mut stray = TcpStream::connect(addresses[0])?;
        let other = Hello {
            session: session ^ 1,
            ..guest
        };
        stray.write_all(&other.encode())?;
        // Closed without a word.
        assert_eq!(stray.read(&mut [0; 1])?, 0);
        let mut right = TcpStream::connect(addresses[0])?;
        right.write_all(&Hello { session, ..guest }.encode())?;
        stream.write_all(&Answer::Ready.encode())?;
        assert_eq!(answer(&mut stream)?, Some(Answer::Go));
        assert!(host.join().expect("no rank panics").is_ok());
        Ok(())
    })
}

#[test]
fn a_port_in_use_is_waited_for() -> io::Result<()> {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = taken.local_addr()?.port();
    let stop = Stop::default();
    let (sender, notices) = mpsc::channel();
    thread::scope(|scope| {
        let host = scope.spawn(|| {
            let member = member(0, 2, port);
            let joining = Joining {
                member: &member,
                token: TOKEN,
                join_limit: LIMIT,
                peer_limit: LIMIT,
                stop: &stop,
            };
            let sender = sender;
            join(joining, &mut |sentence| {
                sender.send(sentence.to_owned()).map_err(io::Error::other)
            })
            .is_ok()
        });
        let sentence = notices.recv().expect("rank 0 says that it waits");
        assert_eq!(
            sentence,
            format!("port {port} is in use: waiting until it is free")
        );
        drop(taken);
        assert!(try_join(&member(1, 2, port), TOKEN, LIMIT, &stop).is_ok());
        assert!(host.join().expect("no rank panics"));
    });
    Ok(())
}

#[test]
fn stop_request_ends_the_wait() -> io::Result<()> {
    for rank in [0, 1] {
        let stop = Stop::default();
        stop.request();
        let sentence = try_join(&member(rank, 2, free_port()?), TOKEN, LIMIT, &stop).err();
        let wanted = "asked to stop before all ranks had joined";
        assert_eq!(sentence.as_deref(), Some(wanted), "rank {rank}");
    }
    Ok(())
}

#[test]
fn many_ranks_are_named_briefly() {
    assert_eq!(ranks(&[3]), "rank 3");
    assert_eq!(ranks(&[1, 2]), "ranks 1 and 2");
    assert_eq!(ranks(&[1, 2, 9]), "ranks 1, 2 and 9");
    let many: Vec<usize> = (1..=20).collect();
    assert_eq!(ranks(&many), "ranks 1, 2, 3, 4, 5, 6, 7, 8 and 12 more");
}
