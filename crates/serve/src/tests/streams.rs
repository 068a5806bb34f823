//! Replies that are written while they are read.

use std::sync::Mutex;

use bytes::Bytes;

use super::*;
use crate::{SendError, Sender};

const GET: &str = "GET / HTTP/1.1\r\nhost: test\r\n\r\n";

/// A server of streams, and the writer of each that was asked for.
fn streams(parts: usize, bytes: usize) -> (Server, Arc<Mutex<Vec<Sender>>>) {
    let writers: Arc<Mutex<Vec<Sender>>> = Arc::default();
    let kept = Arc::clone(&writers);
    let server = server(move |_| {
        let (sender, stream) = channel(parts, bytes);
        kept.lock().unwrap().push(sender);
        Reply::stream("text/event-stream", stream)
    });
    (server, writers)
}

/// The writer of the only stream.
fn writer(writers: &Mutex<Vec<Sender>>) -> Sender {
    writers.lock().unwrap().pop().unwrap()
}

#[tokio::test]
async fn parts_arrive_as_they_are_written() {
    let (mut server, writers) = streams(4, 64);
    server.bounds.answer = Duration::from_millis(50);
    server.bounds.idle = Duration::from_millis(50);
    let address = start(server);
    let mut stream = connect(address, GET).await;
    let head = read_until(&mut stream, "\r\n\r\n").await;
    assert!(head.contains("x-content-type-options: nosniff"), "{head}");
    let mut writer = writer(&writers);
    for part in ["first", "second"] {
        writer.try_send(Bytes::from(part)).unwrap();
        read_until(&mut stream, part).await;
        // A reader that takes everything is not closed, however long nothing is sent.
        tokio::time::sleep(Duration::from_millis(120)).await;
    }
    // The end of the stream is the end of the answer; then the connection is idle.
    drop(writer);
    assert_eq!(rest(&mut stream).await, "0\r\n\r\n");
}

#[tokio::test]
async fn a_slow_reader_holds_only_its_queue() {
    let (mut server, writers) = streams(4, 64 * 1024);
    // Longer than a busy machine takes to fill a queue of four parts.
    server.bounds.answer = Duration::from_secs(2);
    let traffic = server.traffic.clone();
    let address = start(server);
    let mut stream = connect(address, GET).await;
    read_until(&mut stream, "\r\n\r\n").await;
    let mut writer = writer(&writers);
    let part = Bytes::from(vec![b'a'; 64 * 1024]);
    let too_large = Bytes::from(vec![b'a'; 64 * 1024 + 1]);
    let refused = writer.try_send(too_large);
    assert_eq!(refused, Err(SendError::TooLarge(64 * 1024)));
    // The kernel takes some; then the queue fills, its writer learns of it, and the reader is closed.
    let filled = timeout(PATIENCE, async {
        loop {
            match writer.try_send(part.clone()) {
                Ok(()) => tokio::task::yield_now().await,
                Err(error) => return error,
            }
        }
    });
    let error = filled.await.expect("the queue is bounded");
    assert_eq!(error, SendError::Full);
    // The kernel may take more a little later, so it gets more until nothing is taken any more.
    let closed = timeout(PATIENCE, async {
        while writer.try_send(part.clone()) != Err(SendError::Closed) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    closed.await.expect("the reader is closed");
    until("nobody says why", || {
        traffic.closed_so_far("test", "slow_reader") == 1
    })
    .await;
    until("its place was kept", || traffic.open_now("test") == 0).await;
}

#[tokio::test]
async fn a_reader_that_leaves_frees_its_place() {
    let (server, writers) = streams(4, 64);
    let traffic = server.traffic.clone();
    let address = start(server);
    let mut stream = connect(address, GET).await;
    read_until(&mut stream, "\r\n\r\n").await;
    assert_eq!(traffic.open_now("test"), 1);
    drop(stream);
    until("its place was kept", || traffic.open_now("test") == 0).await;
    let mut writer = writer(&writers);
    assert!(writer.is_closed());
    assert_eq!(writer.try_send(Bytes::new()), Err(SendError::Closed));
}

#[tokio::test]
async fn silent_connections_close_no_stream() {
    let (server, writers) = streams(4, 64);
    let traffic = server.traffic.clone();
    let connections = server.bounds.size.connections;
    let address = start(server);
    let mut stream = connect(address, GET).await;
    read_until(&mut stream, "\r\n\r\n").await;
    let mut silent = Vec::new();
    for _ in 0..3 * connections {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    until("no connection was closed", || {
        traffic.closed_so_far("test", "room") > connections as u64
    })
    .await;
    assert!(traffic.open_now("test") <= i64::try_from(connections).unwrap());
    let mut writer = writer(&writers);
    writer.try_send(Bytes::from("still")).unwrap();
    read_until(&mut stream, "still").await;
}

#[tokio::test]
async fn streams_share_the_budget_of_bytes() {
    let (mut server, _writers) = streams(4, 4096);
    server.bounds.size.bytes = 6 * 1024;
    let traffic = server.traffic.clone();
    let address = start(server);
    let mut first = connect(address, GET).await;
    read_until(&mut first, "\r\n\r\n").await;
    let mut second = connect(address, GET).await;
    let answer = read_until(&mut second, "\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    // Each is charged 3 KiB beyond its free one; streams that are read are not closed for another.
    let answer = ask(address, GET).await;
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert_eq!(traffic.refused_so_far("test", "no_room"), 1);
}

#[tokio::test]
async fn the_head_of_a_stream_has_no_body() {
    let (server, writers) = streams(4, 64);
    let traffic = server.traffic.clone();
    let address = start(server);
    let request = "HEAD / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n";
    let answer = ask(address, request).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.ends_with("\r\n\r\n"), "{answer}");
    assert!(writer(&writers).is_closed());
    until("its place was kept", || traffic.open_now("test") == 0).await;
}

#[test]
fn only_a_stream_that_is_read_stays_open() {
    let size = Size {
        connections: 2,
        ..BOUNDS.size
    };
    let room = Room::new(size, "test", Traffic::default());
    let enter = || room.try_enter(Ipv4Addr::LOCALHOST.into());
    let (first, second) = (enter().unwrap(), enter().unwrap());
    first.set(Phase::Streaming);
    second.set(Phase::Streaming);
    assert!(enter().is_none());
    first.set(Phase::Stalled);
    let third = enter().unwrap();
    assert!(first.phase().is_none(), "it was closed for the third");
    assert!(second.phase().is_some() && third.phase().is_some());
}

#[tokio::test]
async fn a_stream_is_bounded_in_parts_and_bytes() {
    let (mut sender, mut stream) = channel(3, 10);
    let mut send = |bytes: usize| sender.try_send(Bytes::from(vec![0; bytes]));
    assert_eq!((send(6), send(5)), (Ok(()), Err(SendError::Full)));
    assert_eq!((send(4), send(0)), (Ok(()), Ok(())));
    assert_eq!(send(0), Err(SendError::Full), "three parts");
    assert_eq!(stream.next().await.map(|part| part.len()), Some(6));
    assert_eq!(send(7), Err(SendError::Full));
    assert_eq!(send(6), Ok(()));
}
