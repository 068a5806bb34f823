//! Peers that are not members of the gang change nothing.

use std::{
    io::{self, Read as _, Write as _},
    net::TcpStream,
    sync::Arc,
};

use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
};
use trainyard_core::{
    barrier::{Envelope, Hello, MemberState, StopHow},
    launch::agent::{SERVER_NAME, file},
};

use super::{Gang, JOB, PATIENCE, operator::Operator, until, worker};

fn connect(gang: &Gang) -> StreamOwned<ClientConnection, TcpStream> {
    let path = |name: &str| gang.path(name);
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_file(path(file::AUTHORITY)).unwrap();
    roots.add(authority).unwrap();
    let certificate = CertificateDer::from_pem_file(path(file::CERTIFICATE)).unwrap();
    let key = PrivateKeyDer::from_pem_file(path(file::KEY)).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![certificate], key)
        .unwrap();
    let name = ServerName::try_from(SERVER_NAME).unwrap();
    let tls = ClientConnection::new(Arc::new(config), name).unwrap();
    let socket = TcpStream::connect(gang.address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    StreamOwned::new(tls, socket)
}

fn frame(kind: u8, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len() + 1).unwrap();
    [&length.to_be_bytes()[..], &[kind], content].concat()
}

fn hello(index: u32) -> Vec<u8> {
    let envelope = Envelope {
        job: JOB.to_owned(),
        message: Hello {
            uid: format!("uid-{index}"),
            slot: worker(index),
            attempt: 1,
            state: MemberState::Running,
        },
    };
    frame(b'H', &envelope.encode().unwrap())
}

#[test]
fn bad_peers_are_closed_and_change_nothing() {
    let mut gang = Gang::new(2);
    let operator = Operator::start(gang.folder.path(), &gang.slots(), StopHow::Hang);
    gang.operator = Some(operator.address.clone());
    let runs = "echo pid $$; exec sleep 300";
    let (leader, _member) = (gang.start(0, runs), gang.start(1, runs));
    let all_report = || {
        let seen = operator.seen.lock().unwrap();
        seen.summary
            .groups
            .iter()
            .map(|group| group.slots.len())
            .sum::<u32>()
            == 2
    };
    until("both report", all_report);

    // Another job's certificate.
    let stranger = Gang {
        address: gang.address,
        ..Gang::new(2)
    };
    let refused = stranger.start(1, runs);
    until("it is refused", || {
        refused
            .err()
            .contains("no connection to the leader of the gang: ")
    });
    until("the leader says so", || {
        leader.err().contains("closed the connection of a member: ")
    });

    // The job's own certificate, and frames that no member sends.
    let other_pod = [hello(7), hello(8)].concat();
    let flood = hello(9).repeat(2_000);
    let cases: [(&str, Vec<u8>); 6] = [
        ("another kind", frame(b'Z', b"")),
        ("a kind for members", frame(b'C', b"{}")),
        ("too long", b"\xff\xff\xff\xffH".to_vec()),
        ("no message", frame(b'H', b"{}")),
        ("two pods", other_pod),
        ("a flood", flood),
    ];
    for (what, bytes) in cases {
        let mut peer = connect(&gang);
        // A flood is closed before all of it is sent.
        drop(peer.write_all(&bytes).and_then(|()| peer.flush()));
        let mut scratch = [0; 4096];
        loop {
            match peer.read(&mut scratch) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) => {
                    let kind = error.kind();
                    assert_ne!(kind, io::ErrorKind::WouldBlock, "{what}: still open");
                    break;
                }
            }
        }
    }
    let lines = leader.err().lines().count();
    assert!(lines < 20, "{}", leader.err());
    assert!(all_report(), "the gang is as before");
}
