//! A TCP proxy in front of the API server, whose connections can go silent: nothing is forwarded any more and nothing is
//! closed, as behind a firewall that has forgotten them. The kernel still acknowledges every byte, so keepalives see nothing.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
};

/// A silent connection is held open for this long, so that a run cannot pile them up without a bound.
const HELD: Duration = Duration::from_mins(10);

/// One proxy.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    /// Connections of earlier generations are silent; new ones are until that time.
    silence: watch::Sender<(u64, Instant)>,
    forwarded: Arc<AtomicU64>,
}

impl Proxy {
    /// Listens on a free port of this machine, for connections to `server`.
    pub(crate) async fn start(server: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (silence, watched) = watch::channel((0, Instant::now()));
        let forwarded = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&forwarded);
        tokio::spawn(async move {
            loop {
                let Ok((client, _)) = listener.accept().await else {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                };
                count.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(connection(client, server, watched.clone()));
            }
        });
        Ok(Self {
            address,
            silence,
            forwarded,
        })
    }

    /// All connections go silent for good, and so do those that are opened in the next `time`.
    pub(crate) fn go_silent(&self, time: Duration) {
        self.silence.send_modify(|(generation, until)| {
            *generation += 1;
            *until = Instant::now() + time;
        });
    }

    /// How many connections were opened so far.
    pub(crate) fn opened(&self) -> u64 {
        self.forwarded.load(Ordering::Relaxed)
    }
}

async fn connection(
    mut client: TcpStream,
    server: SocketAddr,
    mut silence: watch::Receiver<(u64, Instant)>,
) {
    let (generation, until) = *silence.borrow_and_update();
    if Instant::now() < until {
        return tokio::time::sleep(HELD).await;
    }
    let Ok(mut upstream) = TcpStream::connect(server).await else {
        return;
    };
    let silent = async {
        while silence.borrow_and_update().0 == generation {
            if silence.changed().await.is_err() {
                // The run is over.
                return;
            }
        }
    };
    tokio::select! {
        ended = copy_bidirectional(&mut client, &mut upstream) => drop(ended),
        // Both ends stay open.
        () = silent => tokio::time::sleep(HELD).await,
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// A server that sends back what it gets.
    async fn echo() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.split();
                    drop(tokio::io::copy(&mut from, &mut to).await);
                });
            }
        });
        address
    }

    async fn answers(stream: &mut TcpStream) -> bool {
        stream.write_all(b"x").await.unwrap();
        let mut byte = [0];
        let read = stream.read_exact(&mut byte);
        matches!(
            tokio::time::timeout(Duration::from_millis(200), read).await,
            Ok(Ok(_))
        )
    }

    #[tokio::test]
    async fn silent_connections_stay_open_and_new_ones_work() {
        let proxy = Proxy::start(echo().await).await.unwrap();
        let mut old = TcpStream::connect(proxy.address).await.unwrap();
        assert!(answers(&mut old).await);
        proxy.go_silent(Duration::ZERO);
        assert!(!answers(&mut old).await);
        let mut new = TcpStream::connect(proxy.address).await.unwrap();
        assert!(answers(&mut new).await);
        assert!(!answers(&mut old).await, "it stays silent");
        assert_eq!(proxy.opened(), 2);
    }

    #[tokio::test]
    async fn connections_opened_in_silence_stay_silent() {
        let proxy = Proxy::start(echo().await).await.unwrap();
        proxy.go_silent(Duration::from_mins(1));
        let mut stream = TcpStream::connect(proxy.address).await.unwrap();
        assert!(!answers(&mut stream).await);
        proxy.go_silent(Duration::ZERO);
        assert!(!answers(&mut stream).await);
    }
}
