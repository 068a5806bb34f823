//! Servers that answer every request alike: a bucket or a role that does not exist, listings without end.

use std::{
    cell::Cell,
    io::{BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    thread,
};

use super::*;

/// Starts a server with one answer; its endpoint. It ends with the process.
fn answering(status: u16, body: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || answer(&stream, status, body));
        }
    });
    endpoint
}

/// None of the requests that are sent here has a body.
fn answer(mut stream: &TcpStream, status: u16, body: &str) {
    let mut lines = BufReader::new(stream).lines();
    while let Some(Ok(line)) = lines.next() {
        if line.is_empty() {
            let length = body.len();
            let text = format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n\r\n{body}");
            drop(stream.write_all(text.as_bytes()));
        }
    }
}

fn with(variables: &[(&str, &str)]) -> Objects {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let settings = variables.iter().map(owned).collect();
    Objects::connect(&address(), &settings, patience(), PART).unwrap()
}

fn with_key(endpoint: &str) -> Objects {
    with(&[
        ("AWS_ENDPOINT_URL", endpoint),
        ("AWS_ACCESS_KEY_ID", "KEY"),
        ("AWS_SECRET_ACCESS_KEY", SECRET),
    ])
}

#[test]
fn missing_bucket_is_named() {
    let endpoint = answering(404, "<Error><Code>NoSuchBucket</Code></Error>");
    let objects = Arc::new(with_key(&endpoint));
    let wanted = "the bucket `bucket` does not exist (NoSuchBucket)";
    for error in [
        objects.open("trainyard.json").unwrap_err(),
        objects.list("").unwrap_err(),
        objects.end_uploads(&|_| true).unwrap_err(),
    ] {
        assert_eq!(error.to_string(), wanted);
        assert_eq!(error.kind(), io::ErrorKind::Other);
    }
    let refused = Store::existing(objects, ManualClock::start(), 1).unwrap_err();
    assert!(refused.to_string().contains(wanted), "{refused}");
}

/// A machine without a role: its metadata service answers 404, which is not that of an object.
#[test]
fn missing_role_is_no_missing_object() {
    let server = Server::start();
    for status in [404, 403, 500] {
        let metadata = answering(status, "");
        let objects = with(&[
            ("AWS_ENDPOINT_URL", &server.endpoint()),
            ("AWS_METADATA_ENDPOINT", &metadata),
        ]);
        for error in [
            objects.open("trainyard.json").unwrap_err(),
            objects.stat("steps").unwrap_err(),
            objects.list("").unwrap_err(),
        ] {
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{status}");
            assert!(error.to_string().starts_with("no credentials"), "{error}");
        }
    }
}

#[test]
fn listings_that_do_not_advance_end() {
    let endpoint = answering(
        200,
        "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>x</NextContinuationToken></ListBucketResult>",
    );
    let error = with_key(&endpoint).list("").unwrap_err().to_string();
    assert!(error.contains("does not advance"), "{error}");
    let endpoint = answering(
        200,
        "<ListMultipartUploadsResult><IsTruncated>true</IsTruncated><NextKeyMarker>k</NextKeyMarker>\
         <NextUploadIdMarker>i</NextUploadIdMarker></ListMultipartUploadsResult>",
    );
    let error = with_key(&endpoint).end_uploads(&|_| true).unwrap_err();
    assert!(error.to_string().contains("does not advance"), "{error}");
}

#[test]
fn refused_setting_is_named() {
    for (variables, wanted) in [
        (
            vec![("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "perhaps")],
            "`AWS_VIRTUAL_HOSTED_STYLE_REQUEST` has an unknown value, or one that contradicts other variables",
        ),
        (
            vec![("AWS_REGION", "eu-1"), ("AWS_CHECKSUM_ALGORITHM", "geheim")],
            "`AWS_CHECKSUM_ALGORITHM` has an unknown value, or one that contradicts other variables",
        ),
    ] {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let settings = variables.iter().map(owned).collect();
        let refused = Objects::existing(&address(), &settings, patience()).unwrap_err();
        let wanted = format!("`s3://bucket/runs/one` cannot be opened: {wanted}");
        assert_eq!(refused.to_string(), wanted);
    }
}

/// Uploads are aborted one by one until the deadline; the next prune continues.
#[test]
fn deadline_ends_the_abort_of_uploads() {
    let server = Server::start();
    let session = begin(&server, 1).unwrap();
    save(&session, 5).unwrap();
    let storage = objects(&server);
    let mut outputs = Vec::new();
    for number in 0..4_u64 {
        let name = format!(
            "{}/00000.safetensors.tmp-{number:016x}",
            session.folder(1).path()
        );
        let file = storage.create(&name).unwrap();
        file.reserve(20_000).unwrap();
        file.write_at(0, &bytes(9_000, 1)).unwrap();
        outputs.push(file);
    }
    assert_eq!(server.uploads().len(), 4);
    let prune = |answers: u32| {
        let left = Cell::new(answers);
        let in_time = || {
            let now = left.get();
            left.set(now.saturating_sub(1));
            now > 0
        };
        let bounds = remove::Bounds {
            in_time: &in_time,
            ..remove::Bounds::default()
        };
        remove::prune_within(&session.store, None, &session.keep, false, &bounds).unwrap()
    };
    let none = prune(0);
    assert_eq!((none.uploads, server.uploads().len()), (0, 4));
    let some = prune(2);
    assert_eq!((some.uploads, server.uploads().len()), (1, 3));
    assert_eq!(
        some.failures,
        ["3 incomplete uploads are left to abort: the deadline passed"]
    );
    let rest = prune(100);
    assert_eq!((rest.uploads, rest.failures.len()), (3, 0));
    assert_eq!(server.uploads(), Vec::<String>::new());
}
