use proptest::prelude::*;
use serde_json::json;

use super::*;

fn fault(source: &[u8]) -> String {
    match read(source) {
        Ok(file) => format!("{:?}", file.documents),
        Err(finding) => format!(
            "{} {}:{} {}",
            finding.code, finding.span.line, finding.span.column, finding.message
        ),
    }
}

fn json_of(source: &str) -> serde_json::Value {
    let file = read(source.as_bytes()).unwrap_or_else(|finding| panic!("{finding:?}\n{source}"));
    file.documents
        .iter()
        .map(|document| document.tree.to_json())
        .collect()
}

#[test]
fn every_value_has_its_place() {
    let source = "# c\na: 1\nb:\n  - x\n  - \"y z\"\nc: {d: [1, 2]}\ne:\n# tail\n";
    let file = read(source.as_bytes()).unwrap();
    let tree = &file.documents[0].tree;
    let slice = |span: Span| source.get(span.start..span.end).unwrap();
    let cases = [
        ("a", "1", (2, 4)),
        ("b", "- x\n  - \"y z\"", (4, 3)),
        ("c", "{d: [1, 2]}", (6, 4)),
        ("e", "e", (7, 1)),
    ];
    for (key, want, place) in cases {
        let entry = tree.get(key).unwrap();
        assert_eq!(slice(entry.key_span), key);
        assert_eq!(slice(entry.value.span), want, "{key}");
        let span = entry.value.span;
        assert_eq!((span.line, span.column), place, "{key}");
    }
}

#[test]
fn columns_count_characters_in_yaml_and_json() {
    for source in ["ä: {ö: é}", "{\"ä\": {\"ö\": \"é\"}}", "\u{FEFF}ä: {ö: é}"] {
        let file = read(source.as_bytes()).unwrap();
        let inner = &file.documents[0]
            .tree
            .get("ä")
            .unwrap()
            .value
            .get("ö")
            .unwrap()
            .value;
        let text = file.text.get(inner.span.start..inner.span.end).unwrap();
        assert!(text.contains('é'), "{source:?} {text:?}");
        let line: String = file
            .text
            .chars()
            .skip(inner.span.column - 1)
            .take(3)
            .collect();
        assert!(line.contains('é'), "{source:?} {:?}", inner.span);
    }
}

#[test]
fn a_file_that_cannot_be_read_gets_one_sentence() {
    let deep = format!("a: {}{}", "[".repeat(65), "]".repeat(65));
    let deep_json = "{\"a\":".repeat(65);
    let deep_alias = format!(
        "a: &a {}1{}\nb: {}*a{}",
        "[".repeat(40),
        "]".repeat(40),
        "[".repeat(40),
        "]".repeat(40)
    );
    let documents = "---\na: 1\n".repeat(1_001);
    let many = format!("a: [{}]", "1,".repeat(400_000));
    let bomb: String = (1..10).fold(
        "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned(),
        |text, level| {
            let alias = format!("*a{}, ", level - 1).repeat(10);
            text + &format!("a{level}: &a{level} [{alias}]\n")
        },
    );
    let text_bomb = format!(
        "a: &a {}\nb: [{}]",
        "x".repeat(100_000),
        "*a,".repeat(1_000)
    );
    let cases: &[(&str, &[u8], &str)] = &[
        ("empty", b"", "TY001 1:1 the file holds no document"),
        (
            "comments",
            b"# a\n---\n# b\n...\n",
            "TY001 1:1 the file holds no document",
        ),
        ("null", b"~", "TY001 1:1 the file holds no document"),
        (
            "nul",
            b"a: 1\nb\0",
            "TY002 2:2 the file is binary: byte 6 is NUL",
        ),
        (
            "utf-16",
            b"\xFF\xFEa\0",
            "TY002 1:1 the file is UTF-16, manifests are UTF-8",
        ),
        (
            "latin-1",
            b"a: 1\n\xC3\xA4b: \xE4",
            "TY003 2:5 byte 10 (`0xe4`) is not valid UTF-8",
        ),
        (
            "too large",
            &vec![b'a'; MAX_BYTES + 1],
            "TY004 1:1 the file has more than 4194304 bytes, which is as much as is read",
        ),
        (
            "deep flow",
            deep.as_bytes(),
            "TY005 1:67 lists and maps are nested more than 64 deep",
        ),
        (
            "deep json",
            deep_json.as_bytes(),
            "TY005 1:321 lists and maps are nested more than 64 deep",
        ),
        (
            "deep alias",
            deep_alias.as_bytes(),
            "TY005 2:44 lists and maps are nested more than 64 deep",
        ),
        (
            "many values",
            many.as_bytes(),
            "TY006 1:799999 the file has more than 400000 values, counting what its aliases expand to",
        ),
        (
            "bomb",
            bomb.as_bytes(),
            "TY006 6:15 the file has more than 400000 values, counting what its aliases expand to",
        ),
        (
            "text bomb",
            text_bomb.as_bytes(),
            "TY006 2:500 the file has more than 16777216 bytes of text, counting what its aliases expand to",
        ),
        (
            "undefined alias",
            b"a: *b",
            "TY008 1:4 alias `*b` has no anchor `&b` before it",
        ),
        (
            "alias of itself",
            b"a: &a [*a]",
            "TY008 1:8 the alias stands inside of the value that it names",
        ),
        (
            "alias of another document",
            b"a: &a 1\n---\nb: *a",
            "TY008 3:4 alias `*a` has no anchor `&a` before it",
        ),
        (
            "a list",
            b"- a",
            "TY009 1:3 a document must be a map with `apiVersion` and `kind`, found a list",
        ),
        (
            "a json list",
            b"[{\"a\": 1}]",
            "TY009 1:3 a document must be a map with `apiVersion` and `kind`, found a list",
        ),
        (
            "a text",
            b"hello",
            "TY009 1:1 a document must be a map with `apiVersion` and `kind`, found a text",
        ),
        (
            "second document",
            b"a: 1\n---\n12",
            "TY009 3:1 a document must be a map with `apiVersion` and `kind`, found a single value",
        ),
        (
            "duplicate key",
            b"a: 1\nb: 2\na: 3\nb: 4",
            "TY010 3:1 the key `a` is already in this map, on line 1",
        ),
        (
            "duplicate key of two spellings",
            b"a: 1\n\"a\": 3",
            "TY010 2:1 the key `a` is already in this map, on line 1",
        ),
        (
            "duplicate json key",
            b"{\"a\": 1,\n \"a\": 1}",
            "TY010 2:2 the key `a` is already in this map, on line 1",
        ),
        (
            "unknown tag",
            b"a: !thing x",
            "TY011 1:11 the tag `!thing` is not supported",
        ),
        (
            "wrong tag",
            b"a: !!int x",
            "TY011 1:10 the tag `!!int` does not fit the value `x`",
        ),
        (
            "tag of a map",
            b"a: !!set {x}",
            "TY011 1:10 the tag `!!set` is not supported",
        ),
        (
            "not a number",
            b"a: .nan",
            "TY011 1:4 `.nan` is not a JSON number",
        ),
        (
            "documents",
            documents.as_bytes(),
            "TY012 2001:1 the file has more than 1000 documents",
        ),
        (
            "template of Helm",
            b"a: 1\nb: {{ .Values.b }}\n",
            "TY014 2:4 `{{ .Values.b }}` is not YAML: the file is a template that is not filled in",
        ),
        (
            "a mark elsewhere",
            b"a: '{{ x }}'\nb: [1\n",
            "TY007 2:4 not valid YAML: unclosed bracket '['",
        ),
        (
            "template with conditions",
            b"{{- if .x }}\na: 1\n{{- end }}\n",
            "TY014 1:1 `{{- if .x }}` is not YAML: the file is a template that is not filled in",
        ),
        (
            "key of a map",
            b"? {a: 1}\n: 2",
            "TY013 1:4 a key must be text, found a map",
        ),
        (
            "key of nothing",
            b"~: 2",
            "TY013 1:1 a key must be text, found nothing",
        ),
        (
            "merge of text",
            b"a:\n  <<: x",
            "TY013 2:3 the merge key `<<` needs a map or a list of maps",
        ),
        (
            "json without comma",
            b"{\"a\": 1\n \"b\": 2}",
            "TY007 2:2 not valid JSON: `,` or `}` was needed, found `\"`",
        ),
        (
            "json cut off",
            b"{\"a\": [1, 2",
            "TY007 1:12 not valid JSON: `,` or `]` was needed, found the end of the file",
        ),
        (
            "json escape",
            b"{\"a\": \"\\q\"}",
            "TY007 1:7 not valid JSON: a string with valid escapes was needed, found `\"`",
        ),
    ];
    let wrong: Vec<String> = cases
        .iter()
        .map(|(name, source, want)| (name, fault(source), want))
        .filter(|(_, found, want)| found != *want)
        .map(|(name, found, want)| format!("{name}\n found {found}\n want  {want}"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn syntax_errors_have_their_place() {
    let cases = [
        ("a: 1\n b: 2", "TY007 2:"),
        ("a: [1, 2\nb: 3", "TY007 2:"),
        ("a: \"x", "TY007 1:"),
        ("a:\n\t- b", "TY007 2:"),
        ("a: 'b' c", "TY007 1:"),
    ];
    for (source, want) in cases {
        let found = fault(source.as_bytes());
        assert!(found.starts_with(want), "{source:?}: {found}");
    }
    let tabs = read(b"a:\n\t- b").unwrap_err();
    assert_eq!(
        tabs.hint.as_deref(),
        Some("indent with spaces, YAML allows no tabs there")
    );
}

#[test]
fn aliases_and_merge_keys_are_applied() {
    let source = "base: &base {a: 1, b: [x]}\nmore: &more {a: 2, c: 3}\nuse:\n  <<: [*base, *more]\n  b: *base\nkey: &k name\n*k : v\n";
    let want = json!([{
        "base": {"a": 1, "b": ["x"]},
        "more": {"a": 2, "c": 3},
        "use": {"b": {"a": 1, "b": ["x"]}, "a": 1, "c": 3},
        "key": "name",
        "name": "v",
    }]);
    assert_eq!(json_of(source), want);
    assert_eq!(json_of("a: {\"<<\": 1}"), json!([{"a": {"<<": 1}}]));
}

#[test]
fn documents_styles_and_tags_are_read() {
    let cases = [
        (
            "a: 1\n---\n---\n# c\n---\nb: 2\n...\n",
            json!([{"a": 1}, {"b": 2}]),
        ),
        ("%YAML 1.1\n---\na: yes\n", json!([{"a": true}])),
        (
            "a: |\n  x\n   y\nb: >-\n  x\n  y\n",
            json!([{"a": "x\n y\n", "b": "x y"}]),
        ),
        (
            "a: 'it''s'\nb: \"\\u00e4\\n\"\n",
            json!([{"a": "it's", "b": "ä\n"}]),
        ),
        (
            "a: !!str 12\nb: !!int \"12\"\nc: !!float 1\nd: ! 12\n",
            json!([{"a": "12", "b": 12, "c": 1.0, "d": "12"}]),
        ),
        (
            "on: 1\n12: 2\n1.5: 3\n",
            json!([{"true": 1, "12": 2, "1.5": 3}]),
        ),
        ("{a: b, c: [d]}", json!([{"a": "b", "c": ["d"]}])),
        ("{\"a\": 1}\n---\nb: 2\n", json!([{"a": 1}, {"b": 2}])),
        ("{\"a\": 1}\n{\"b\": 2}\n", json!([{"a": 1}, {"b": 2}])),
        (
            "{\n\t\"a\": [\n\t\t1.0,\n\t\t-2e3, true, null\n\t]\n}\n",
            json!([{"a": [1.0, -2e3, true, null]}]),
        ),
        ("a: 1\r\nb: 2\r\n", json!([{"a": 1, "b": 2}])),
    ];
    for (source, want) in cases {
        assert_eq!(json_of(source), want, "{source:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn no_text_makes_the_reader_panic(source in "[\\[\\]{},:&*!|>'\"%@`?# \n\tab01<~.-]{0,60}") {
        // A file or one finding; what counts is that it returns.
        let read = read(source.as_bytes());
        prop_assert!(read.is_ok() || read.is_err());
    }

    #[test]
    fn places_stay_inside_of_the_text(source in "[\\[\\]{},:&*|'\" \nab1é-]{0,60}") {
        let text = source_text(source.as_bytes()).into_owned();
        match read(source.as_bytes()) {
            Ok(file) => {
                for document in &file.documents {
                    let span = document.tree.span;
                    prop_assert!(text.get(span.start..span.end).is_some(), "{:?}", span);
                }
            }
            Err(finding) => {
                let span = finding.span;
                prop_assert!(text.get(span.start..span.end).is_some(), "{:?}", finding);
                prop_assert!(span.line >= 1 && span.column >= 1, "{:?}", finding);
            }
        }
    }
}
