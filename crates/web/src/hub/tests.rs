use super::*;

fn jobs(since: Option<u64>) -> StreamAsk {
    StreamAsk {
        topics: [Topic::Jobs].into(),
        since,
    }
}

async fn next(stream: &mut Stream) -> String {
    let part = tokio::time::timeout(Duration::from_mins(1), stream.next());
    let part = part.await.expect("a part arrives").expect("it goes on");
    String::from_utf8(part.to_vec()).unwrap()
}

fn number(part: &str) -> u64 {
    let line = part.lines().find_map(|line| line.strip_prefix("id: "));
    line.unwrap().parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn readers_get_their_topics_and_heartbeats() {
    let hub = Arc::new(Hub::new());
    let runs = Arc::clone(&hub);
    tokio::spawn(async move { runs.run().await });
    let mut stream = hub.subscribe("a", jobs(None)).unwrap();
    let hello = next(&mut stream).await;
    assert!(
        hello.contains("event: hello\n") && hello.contains("\"resumed\":false"),
        "{hello}"
    );
    hub.publish(&Topic::Run("r".to_owned()), "run", b"{}".to_vec());
    hub.publish(&Topic::Jobs, "job", br#"{"n":1}"#.to_vec());
    hub.publish(&Topic::Jobs, "job", br#"{"n":2}"#.to_vec());
    hub.publish(&Topic::Jobs, "job", br#"{"n":3}"#.to_vec());
    assert!(next(&mut stream).await.ends_with("data: {\"n\":1}\n\n"));
    // The clock of the test moves on by itself until what is held is due.
    assert!(next(&mut stream).await.ends_with("data: {\"n\":3}\n\n"));
    assert_eq!(next(&mut stream).await, ":\n\n");
    hub.close();
    assert!(next(&mut stream).await.contains("event: bye\n"));
    assert!(stream.next().await.is_none());
    assert_eq!(
        hub.subscribe("a", jobs(None)).unwrap_err(),
        NoStream::Closed
    );
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_comes_back_misses_nothing() {
    let hub = Hub::new();
    let mut stream = hub.subscribe("a", jobs(None)).unwrap();
    let first = number(&next(&mut stream).await);
    drop(stream);
    for n in 0..3 {
        hub.publish(&Topic::Jobs, "job", format!("{n}").into_bytes());
        tokio::time::advance(Duration::from_millis(250)).await;
        hub.send_due();
    }
    let mut stream = hub.subscribe("a", jobs(Some(first + 1))).unwrap();
    let hello = next(&mut stream).await;
    assert!(hello.contains("\"resumed\":true"), "{hello}");
    assert_eq!(number(&hello), first + 1);
    let missed = next(&mut stream).await;
    let missed: Vec<u64> = missed.split_terminator("\n\n").map(number).collect();
    assert_eq!(missed, [first + 2, first + 3]);
    let mut stream = hub.subscribe("a", jobs(Some(first - 1))).unwrap();
    let hello = next(&mut stream).await;
    assert!(hello.contains("\"resumed\":false"), "{hello}");
    assert_eq!(number(&hello), first + 3);
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_becomes_stale() {
    let hub = Hub::new();
    let mut stream = hub.subscribe("a", jobs(None)).unwrap();
    for n in 0..2 * QUEUE {
        hub.publish(&Topic::Jobs, "job", format!("{n}").into_bytes());
        tokio::time::advance(Duration::from_millis(250)).await;
        hub.send_due();
    }
    assert_eq!(hub.readers(), 1, "it is not closed");
    for _ in 0..QUEUE {
        assert!(!next(&mut stream).await.contains("stale"));
    }
    hub.publish(&Topic::Jobs, "job", b"\"after\"".to_vec());
    let stale = next(&mut stream).await;
    assert!(
        stale.contains("event: job\ndata: {\"stale\":true}\n"),
        "{stale}"
    );
    assert!(next(&mut stream).await.contains("after"));
}

#[test]
fn streams_are_bounded_by_identity_and_in_all() {
    let hub = Hub::new();
    let mut streams = Vec::new();
    let identities = STREAMS / STREAMS_EACH;
    for identity in 0..identities {
        let identity = identity.to_string();
        for _ in 0..STREAMS_EACH {
            streams.push(hub.subscribe(&identity, jobs(None)).unwrap());
        }
        let more = hub.subscribe(&identity, jobs(None)).unwrap_err();
        assert_eq!(more, NoStream::TooMany(STREAMS_EACH));
    }
    let more = hub.subscribe("another", jobs(None)).unwrap_err();
    assert_eq!(more, NoStream::TooMany(STREAMS));
    // Whoever leaves makes room.
    streams.pop();
    assert_eq!(hub.readers(), STREAMS - 1);
    streams.push(hub.subscribe("another", jobs(None)).unwrap());
}

fn sight(subjects: &[&str]) -> crate::Sight {
    crate::Sight {
        all: false,
        subjects: subjects.iter().map(|it| (*it).to_owned()).collect(),
    }
}

#[tokio::test(start_paused = true)]
async fn who_may_see_some_learns_of_nothing_else() {
    let hub = Hub::new();
    let until = Instant::now() + Duration::from_mins(1);
    let (one, other): (Arc<str>, Arc<str>) = ("one".into(), "other".into());
    let mut first = hub
        .subscribe_limited(&one, jobs(Some(7)), sight(&["a"]), until)
        .unwrap();
    let mut second = hub
        .subscribe_limited(&other, jobs(None), sight(&["b"]), until)
        .unwrap();
    for stream in [&mut first, &mut second] {
        let hello = next(stream).await;
        assert!(hello.starts_with("event: hello\ndata: {") && hello.contains("\"resumed\":false"));
    }
    // What everybody with the token of a server gets reaches neither.
    hub.publish(&Topic::Jobs, "job", br#"{"row":"secret"}"#.to_vec());
    hub.notify("b", &Topic::Jobs, r#"{"n":1}"#);
    hub.notify("a", &Topic::Nodes, r#"{"n":2}"#);
    hub.notify("a", &Topic::Jobs, r#"{"n":3}"#);
    hub.notify("", &Topic::Jobs, r#"{"n":4}"#);
    // No number shows how many there were between.
    assert_eq!(next(&mut first).await, "event: job\ndata: {\"n\":3}\n\n");
    assert_eq!(next(&mut first).await, "event: job\ndata: {\"n\":4}\n\n");
    assert_eq!(next(&mut second).await, "event: job\ndata: {\"n\":1}\n\n");
    assert_eq!(next(&mut second).await, "event: job\ndata: {\"n\":4}\n\n");
    // Another sight asks for everything again, and the same one for nothing.
    hub.set_sight("one", &sight(&["a"]));
    hub.set_sight("other", &sight(&[]));
    assert_eq!(
        next(&mut second).await,
        "event: job\ndata: {\"stale\":true}\n\n"
    );
    hub.notify("b", &Topic::Jobs, r#"{"n":5}"#);
    hub.notify("a", &Topic::Jobs, r#"{"n":6}"#);
    hub.notify("", &Topic::Jobs, r#"{"n":7}"#);
    assert_eq!(next(&mut first).await, "event: job\ndata: {\"n\":6}\n\n");
    assert_eq!(next(&mut second).await, "event: job\ndata: {\"n\":7}\n\n");
    assert_eq!(hub.visitors(), [one, other].into());
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_with_the_review_of_its_token() {
    let hub = Arc::new(Hub::new());
    let runs = Arc::clone(&hub);
    tokio::spawn(async move { runs.run().await });
    let began = Instant::now();
    // Whoever sleeps until the next heartbeat wakes for it.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let until = Instant::now() + Duration::from_secs(20);
    let mut stream = hub
        .subscribe_limited(&"a".into(), jobs(None), sight(&["a"]), until)
        .unwrap();
    assert!(next(&mut stream).await.starts_with("event: hello\n"));
    assert_eq!(next(&mut stream).await, ":\n\n");
    assert!(next(&mut stream).await.starts_with("event: bye\n"));
    assert!(stream.next().await.is_none());
    assert_eq!(began.elapsed().as_secs(), 21);
    assert_eq!(hub.readers(), 0);
    let ended = hub.subscribe_limited(&"a".into(), jobs(None), sight(&[]), Instant::now());
    let mut ended = ended.unwrap();
    assert!(next(&mut ended).await.starts_with("event: hello\n"));
    assert!(next(&mut ended).await.starts_with("event: bye\n"));
}

#[tokio::test(start_paused = true)]
async fn streams_of_one_user_are_bounded() {
    let hub = Hub::new();
    let until = Instant::now() + Duration::from_mins(1);
    let mut open = Vec::new();
    for user in 0..8 {
        let user: Arc<str> = format!("u{user}").into();
        for _ in 0..STREAMS_EACH {
            let stream = hub.subscribe_limited(&user, jobs(None), sight(&[]), until);
            open.push(stream.unwrap());
        }
        let more = hub.subscribe_limited(&user, jobs(None), sight(&[]), until);
        assert_eq!(more.unwrap_err(), NoStream::TooMany(STREAMS_EACH));
    }
    let more = hub.subscribe_limited(&"u9".into(), jobs(None), sight(&[]), until);
    assert_eq!(more.unwrap_err(), NoStream::TooMany(STREAMS));
    open.pop();
    assert_eq!(hub.readers(), STREAMS - 1);
}
