use super::*;

fn read(rules: &Rules, parts: &[&[u8]]) -> Source {
    let mut source = Source::new("a.log");
    for part in parts {
        source.read(rules, part, Part::End);
    }
    source.end(rules);
    source
}

#[test]
fn line_count_ignores_chunk_boundaries() {
    let text = b"one\nCUDA out of memory\nthree\nTraceback\nfive Segmentation fault".as_slice();
    let rules = Rules::builtin();
    let whole = read(&rules, &[text]);
    assert_eq!(whole.lines, 5);
    let places = |source: &Source| -> Vec<u64> {
        source.seen.values().map(|seen| seen.first_line).collect()
    };
    assert_eq!(places(&whole), [2, 5]);
    for cut in 0..text.len() {
        let (one, two) = text.split_at(cut);
        let source = read(&rules, &[one, two]);
        assert_eq!(
            (source.lines, places(&source)),
            (5, places(&whole)),
            "cut at {cut}"
        );
    }
}

#[test]
fn a_line_without_end_is_not_kept() {
    let rules = Rules::builtin();
    let mut source = Source::new("a.log");
    for _ in 0..1000 {
        source.read(&rules, &[b'x'; 4096], Part::End);
    }
    assert!(source.partial.bytes.len() <= MAX_LINE);
    source.read(&rules, b"\nCUDA out of memory\n", Part::End);
    assert_eq!(source.lines, 2);
    assert_eq!(source.seen.len(), 1);
}

#[test]
fn the_end_of_a_long_line_is_read() {
    let rules = Rules::builtin();
    let bars = "\r 7%| 7/100 [00:01<00:09, 8.00it/s]".repeat(1000);
    let end = "slurmstepd: error: *** JOB 7 ON node-1 CANCELLED AT 2026-01-02T03:04:05 ***";
    for last in ["", "\n"] {
        let text = format!("{bars}{end}{last}");
        for size in [100, 5_000, text.len()] {
            let parts: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
            assert_eq!(read(&rules, &parts).seen.len(), 1, "{size}");
        }
    }
}

#[test]
fn nuls_do_not_hide_lines() {
    let rules = Rules::builtin();
    let mut text = b"one\n".to_vec();
    text.resize(100_000, 0);
    text.extend(b"CUDA out of memory\nthree\n");
    text.resize(200_000, 0);
    for size in [1, 4_095, 4_096, 65_536, text.len()] {
        let parts: Vec<&[u8]> = text.chunks(size).collect();
        let source = read(&rules, &parts);
        assert_eq!(source.lines, 3, "{size}");
        let found: Vec<u64> = source.seen.values().map(|seen| seen.first_line).collect();
        assert_eq!(found, [2], "{size}");
        assert_eq!(source.bytes, text.len() as u64, "{size}");
    }
    // Nothing of a hole is kept or searched.
    let mut source = Source::new("a.log");
    for _ in 0..1_000 {
        source.read(&rules, &[0; 4_096], Part::End);
        assert!(source.partial.bytes.is_empty());
    }
}

#[test]
fn leading_nuls_are_counted() {
    for length in [0, 1, 15, 16, 17, 31, 32, 33, 1_000] {
        let mut bytes = vec![0; length];
        assert_eq!(leading_nuls(&bytes), length);
        bytes.extend(b"x\0\0");
        assert_eq!(leading_nuls(&bytes), length);
    }
}

#[test]
fn ranks_as_people_write_them() {
    let cases: [(&str, &[u32]); 5] = [
        ("3", &[3]),
        ("0-1,4", &[0, 1, 4]),
        ("[1, 2]", &[1, 2]),
        ("x", &[]),
        ("5-3", &[]),
    ];
    for (text, want) in cases {
        assert_eq!(numbers(text), want, "{text}");
    }
}

#[test]
fn hosts_of_peers() {
    let cases = [
        ("[10.0.0.5]:3452.", "10.0.0.5"),
        ("node-1<45074>", "node-1"),
        ("10.0.0.5", "10.0.0.5"),
        ("", ""),
    ];
    for (peer, want) in cases {
        assert_eq!(host(peer), want, "{peer}");
    }
}
