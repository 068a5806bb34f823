use std::{
    io::{self, Write},
    net::{Ipv4Addr, TcpListener},
    thread,
};

use super::*;
use crate::{patience::prepare, sampler::share};

const LIMIT: Duration = Duration::from_secs(20);

/// The connections of `size` ranks, each from the previous and to the next rank.
fn connections(size: usize) -> io::Result<Vec<(TcpStream, TcpStream)>> {
    let mut previous = Vec::new();
    let mut next = Vec::new();
    for _ in 0..size {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let out = TcpStream::connect(listener.local_addr()?)?;
        let (into, _) = listener.accept()?;
        prepare(&out)?;
        prepare(&into)?;
        next.push(out);
        previous.push(into);
    }
    // What rank r writes, rank r + 1 reads.
    previous.rotate_right(1);
    Ok(previous.into_iter().zip(next).collect())
}

/// A ring of `size` ranks in this process.
fn rings(size: usize, stop: &Stop) -> io::Result<Vec<Ring>> {
    if size == 1 {
        return Ok(vec![Ring::alone(stop)]);
    }
    let ring =
        |(rank, (previous, next))| Ring::between(Place { rank, size }, previous, next, LIMIT, stop);
    Ok(connections(size)?
        .into_iter()
        .enumerate()
        .map(ring)
        .collect())
}

/// Runs `work` as every rank at once.
fn together<T: Send>(rings: Vec<Ring>, work: impl Fn(Ring) -> T + Sync) -> Vec<T> {
    let work = &work;
    thread::scope(|scope| {
        let ranks = rings
            .into_iter()
            .map(|ring| scope.spawn(move || work(ring)))
            .collect::<Vec<_>>();
        ranks
            .into_iter()
            .map(|rank| rank.join().expect("no rank panics"))
            .collect()
    })
}

#[test]
fn a_sum_is_the_same_everywhere() -> io::Result<()> {
    // Short of one value per rank, one frame, and parts of many frames each.
    for (size, length) in [
        (1, 5),
        (2, 1),
        (3, 2),
        (4, 2400),
        (5, 2048 * 5 + 3),
        (4, 900_000),
    ] {
        let sums = together(rings(size, &Stop::default())?, |mut ring| {
            let rank = crate::model::count(ring.place().rank + 1);
            let mut values: Vec<f32> = (0..length)
                .map(|at| rank * crate::model::count(at % 1000))
                .collect();
            ring.sum(&mut values).expect("nobody is lost");
            values
        });
        let ranks = crate::model::count(size * (size + 1) / 2);
        let wanted: Vec<f32> = (0..length)
            .map(|at| ranks * crate::model::count(at % 1000))
            .collect();
        for (rank, sum) in sums.iter().enumerate() {
            assert!(sum == &wanted, "rank {rank} of {size}, {length} values");
        }
    }
    Ok(())
}

#[test]
fn a_sum_has_the_same_bits_every_time() -> io::Result<()> {
    let run = || -> io::Result<Vec<Vec<f32>>> {
        Ok(together(rings(4, &Stop::default())?, |mut ring| {
            let seed = ring.place().rank as u64;
            let mut values = crate::model::Shape { hidden: 16 }.first_weights(seed);
            ring.sum(&mut values).expect("nobody is lost");
            values
        }))
    };
    let (first, second) = (run()?, run()?);
    assert_eq!(first, second);
    assert!(first.iter().all(|values| *values == first[0]));
    Ok(())
}

#[test]
fn everybody_gets_what_rank_0_has() -> io::Result<()> {
    for (size, length) in [(1, 10), (2, 0), (3, 1), (4, 19_000), (3, FRAME_MAX * 3)] {
        let wanted: Vec<u8> = (0..=250).cycle().take(length).collect();
        let got = together(rings(size, &Stop::default())?, |mut ring| {
            let mut bytes = if ring.place().rank == 0 {
                wanted.clone()
            } else {
                b"something else".to_vec()
            };
            ring.broadcast(&mut bytes).expect("nobody is lost");
            bytes
        });
        assert!(
            got.iter().all(|bytes| *bytes == wanted),
            "{size} ranks, {length} bytes"
        );
    }
    Ok(())
}

#[test]
fn ranks_that_differ_do_not_agree() -> io::Result<()> {
    let same = together(rings(3, &Stop::default())?, |mut ring| {
        ring.agree(7).is_ok()
    });
    assert_eq!(same, [true; 3]);
    let sentences = together(rings(3, &Stop::default())?, |mut ring| {
        let value = if ring.place().rank == 1 { 8 } else { 7 };
        leave(&mut ring, |ring| ring.agree(value))
    });
    // Rank 1 sees that its value differs from that of rank 0, and cannot know which of them is right.
    assert!(
        sentences[1].contains("lost rank 0: its weights differ"),
        "{sentences:?}"
    );
    assert!(sentences[2].contains("weights differ"), "{sentences:?}");
    Ok(())
}

/// Does `work`, and on failure leaves as a trainer does; the sentence.
fn leave(ring: &mut Ring, work: impl FnOnce(&mut Ring) -> Result<(), RingError>) -> String {
    match work(ring) {
        Ok(()) => String::new(),
        Err(RingError::Asked) => "asked".to_owned(),
        Err(RingError::Lost(lost)) => {
            ring.notify_exit(Some(&lost));
            lost.to_string()
        }
    }
}

#[test]
fn every_rank_names_the_lost_rank() -> io::Result<()> {
    for size in [2, 3, 4, 6] {
        for (delay, work) in [(Duration::ZERO, 5000), (Duration::from_mins(10), 10)] {
            let sentences = together(rings(size, &Stop::default())?, |mut ring| {
                let rank = ring.place().rank;
                leave(&mut ring, |ring| {
                    for round in 0.. {
                        // Dropping the connections is what the end of a process does to them.
                        if rank == 1 && round == 3 {
                            return Ok(());
                        }
                        ring.sum(&mut vec![1.0; work])?;
                        if round == 2 && rank != 1 {
                            ring.delay_step(delay)?;
                        }
                    }
                    Ok(())
                })
            });
            for (rank, sentence) in sentences.iter().enumerate().filter(|(rank, _)| *rank != 1) {
                assert!(
                    sentence.starts_with("lost rank 1: its connection closed"),
                    "rank {rank} of {size}: {sentence}"
                );
            }
        }
    }
    Ok(())
}

#[test]
fn failed_rank_is_named() -> io::Result<()> {
    let sentences = together(rings(4, &Stop::default())?, |mut ring| {
        if ring.place().rank == 2 {
            ring.notify_exit(None);
            return String::new();
        }
        leave(&mut ring, |ring| ring.sum(&mut [1.0; 100]))
    });
    assert_eq!(sentences[3], "lost rank 2: it gave up, see its own output");
    assert_eq!(
        sentences[0],
        "lost rank 2: it gave up, see its own output, as rank 3 reports"
    );
    Ok(())
}

#[test]
fn only_the_hanging_rank_is_named() -> io::Result<()> {
    let size = 4;
    let limit = Duration::from_secs(2);
    let mut ends = connections(size)?;
    let _silent = ends.remove(2);
    let sentences = thread::scope(|scope| {
        let ranks: Vec<_> = ends
            .into_iter()
            .zip([0, 1, 3])
            .map(|((previous, next), rank)| {
                scope.spawn(move || {
                    let place = Place { rank, size };
                    let mut ring = Ring::between(place, previous, next, limit, &Stop::default());
                    leave(&mut ring, |ring| ring.sum(&mut [1.0; 100]))
                })
            })
            .collect();
        let sentences = ranks
            .into_iter()
            .map(|rank| rank.join().expect("no rank panics"));
        sentences.collect::<Vec<_>>()
    });
    for (sentence, rank) in sentences.iter().zip([0, 1, 3]) {
        let wanted = "lost rank 2: it sent nothing within the peer timeout";
        assert!(sentence.starts_with(wanted), "rank {rank}: {sentence}");
    }
    Ok(())
}

#[test]
fn stop_request_cuts_a_delay_short() -> io::Result<()> {
    let stop = Stop::default();
    stop.request();
    for mut ring in rings(2, &stop)? {
        assert_eq!(leave(&mut ring, |ring| ring.delay_step(LIMIT * 60)), "");
    }
    Ok(())
}

#[test]
fn a_stranger_in_the_ring_is_found() -> io::Result<()> {
    let mut ends = connections(2)?.into_iter();
    let (Some((previous, next)), Some((_, mut stranger))) = (ends.next(), ends.next()) else {
        return Err(io::ErrorKind::NotFound.into());
    };
    stranger.write_all(&[b'?'; 100])?;
    let place = Place { rank: 0, size: 2 };
    let mut ring = Ring::between(place, previous, next, LIMIT, &Stop::default());
    assert_eq!(
        leave(&mut ring, |ring| ring.sum(&mut [1.0; 100])),
        "lost rank 1: it sent an invalid message"
    );
    Ok(())
}

#[test]
fn shares_of_a_batch_meet_in_the_sum() -> io::Result<()> {
    let batch: Vec<usize> = (0..30).collect();
    for size in [1, 2, 3, 4] {
        let seen = together(rings(size, &Stop::default())?, |mut ring| {
            let place = ring.place();
            let mut counts = vec![0.0; 30];
            for sample in share(&batch, place.rank, place.size) {
                counts[*sample] += 1.0;
            }
            ring.sum(&mut counts).expect("nobody is lost");
            counts
        });
        assert!(
            seen.iter().all(|counts| *counts == vec![1.0; 30]),
            "{size} ranks"
        );
    }
    Ok(())
}
