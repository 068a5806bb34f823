//! The stream of changes over real connections.

use trainyard_web::Topic;

use super::*;

/// A stream, and what of it has been read.
struct Reader {
    stream: TcpStream,
    text: String,
}

impl Served {
    async fn open(&self, query: &str) -> Reader {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = format!(
            "GET /api/v1/stream?{query} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {TOKEN}\r\n\r\n",
            self.address
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let text = String::new();
        Reader { stream, text }
    }
}

impl Reader {
    /// Reads until `text` has arrived.
    async fn until(&mut self, text: &str) {
        let found = timeout(PATIENCE, async { while self.more(text).await {} }).await;
        assert!(found.is_ok(), "`{text}` did not arrive: {}", self.text);
    }

    /// Reads once, where `text` has not arrived.
    async fn more(&mut self, text: &str) -> bool {
        if self.text.contains(text) {
            return false;
        }
        let mut buffer = vec![0; 64 * 1024];
        let read = self.stream.read(&mut buffer).await.unwrap();
        assert!(read > 0, "the stream ended: {}", self.text);
        self.text
            .push_str(&String::from_utf8_lossy(&buffer[..read]));
        true
    }

    /// The number of the last event.
    fn number(&self) -> u64 {
        let mut lines = self.text.lines().rev();
        let number = lines.find_map(|line| line.strip_prefix("id: "));
        number.unwrap().parse().unwrap()
    }
}

#[tokio::test]
async fn a_stream_is_resumed_without_a_gap() {
    let served = start().await;
    let mut reader = served.open("topics=jobs,run:r-1").await;
    reader.until("event: hello").await;
    let (head, _) = reader.text.split_once("\r\n\r\n").unwrap();
    let answer = parsed(format!("{head}\r\n\r\n").as_bytes());
    assert_safe(&answer);
    assert_eq!(answer.header("content-type"), "text/event-stream");
    assert_eq!(answer.header("cache-control"), "no-store, no-transform");
    assert_eq!(answer.header("x-accel-buffering"), "no");
    assert!(reader.text.contains("\"resumed\":false"));

    let run = Topic::Run("r-1".to_owned());
    served
        .hub
        .publish(&Topic::Nodes, "nodes", b"{\"other\":1}".to_vec());
    served
        .hub
        .publish(&Topic::Jobs, "job", b"{\"n\":1}".to_vec());
    reader.until("event: job\ndata: {\"n\":1}\n\n").await;
    let since = reader.number();
    served.hub.publish(&run, "run", b"{\"n\":2}".to_vec());
    reader.until("{\"n\":2}").await;
    assert!(!reader.text.contains("other"), "{}", reader.text);
    drop(reader);

    let mut reader = served
        .open(&format!("topics=jobs,run:r-1&since={since}"))
        .await;
    reader.until("{\"n\":2}").await;
    assert!(reader.text.contains("\"resumed\":true"), "{}", reader.text);
    assert!(!reader.text.contains("{\"n\":1}"), "{}", reader.text);
    let mut reader = served.open("since=1").await;
    reader.until("\"resumed\":false").await;

    served.hub.close();
    reader.until("event: bye").await;
    reader.until("0\r\n\r\n").await;
    let answer = served.get("/api/v1/stream", &[]).await;
    assert_eq!((answer.status, answer.code().as_str()), (503, "busy"));
}

#[tokio::test]
async fn later_changes_replace_earlier_ones() {
    let served = start().await;
    let mut reader = served.open("topics=jobs").await;
    reader.until("event: hello").await;
    for n in 0..1000 {
        let row = format!("{{\"n\":{n}}}").into_bytes();
        served.hub.publish_keyed(&Topic::Jobs, "job", "a", row);
    }
    reader.until("{\"n\":999}").await;
    assert_eq!(
        reader.text.matches("event: job").count(),
        2,
        "{}",
        reader.text
    );
}

#[tokio::test]
async fn a_slow_reader_gets_stale_and_holds_nobody_up() {
    let served = start().await;
    let runs: Vec<Topic> = (0..15).map(|run| Topic::Run(format!("r{run}"))).collect();
    let names: Vec<String> = (0..15).map(|run| format!("run:r{run}")).collect();
    let mut slow = served
        .open(&format!("topics=jobs,{}", names.join(",")))
        .await;
    slow.until("event: hello").await;
    let mut quick = served.open("topics=nodes").await;
    quick.until("event: hello").await;
    // 28 MiB, of which the queue of a reader holds half of one.
    let large = format!("\"{}\"", "x".repeat(60_000)).into_bytes();
    for key in 0..31 {
        for run in &runs {
            served
                .hub
                .publish_keyed(run, "fact", &key.to_string(), large.clone());
        }
    }
    served
        .hub
        .publish(&Topic::Nodes, "nodes", b"{\"quick\":1}".to_vec());
    quick.until("{\"quick\":1}").await;
    // Once there is room, the next event is preceded by the news that others were missed.
    let stale = "{\"stale\":true}";
    let found = timeout(PATIENCE, async {
        loop {
            served
                .hub
                .publish(&Topic::Jobs, "job", b"{\"next\":1}".to_vec());
            let more = timeout(Duration::from_millis(50), slow.more(stale)).await;
            if more == Ok(false) {
                return;
            }
        }
    });
    found.await.expect("the reader gets stale");
    assert!(slow.text.len() < 28 << 20, "{}", slow.text.len());
}

#[tokio::test]
async fn streams_are_bounded_and_free_their_place() {
    let served = start().await;
    let mut readers = Vec::new();
    for _ in 0..8 {
        let mut reader = served.open("topics=jobs").await;
        reader.until("event: hello").await;
        readers.push(reader);
    }
    let answer = served.get("/api/v1/stream", &[]).await;
    assert_eq!((answer.status, answer.code().as_str()), (429, "busy"));
    assert_eq!(answer.header("retry-after"), "1");
    readers.pop();
    let freed = timeout(PATIENCE, async {
        while served.hub.readers() > 7 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    freed.await.expect("a reader that leaves frees its place");
    let mut reader = served.open("topics=jobs").await;
    reader.until("event: hello").await;
    // Documents are answered beside all of them.
    assert_eq!(served.get("/api/v1/about", &[]).await.status, 200);
}
