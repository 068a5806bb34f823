use proptest::prelude::*;
use serde_json::{Value, json};

use super::{super::read, to_yaml};

/// Documents are maps, so the value under test is put into one.
fn read_back(yaml: &str) -> Value {
    read(yaml.as_bytes())
        .unwrap_or_else(|finding| panic!("{finding:?}\n{yaml}"))
        .documents[0]
        .tree
        .to_json()
}

#[test]
fn objects_look_like_kubectl_prints_them() {
    let value = json!({
        "kind": "PyTorchJob",
        "empty": {},
        "none": [],
        "nothing": null,
        "args": ["--nproc=4", "-c", "a: b", "yes", "12", "1.5", "", "~", "# no", "x #y", "x#y"],
        "env": [{"name": "A", "value": "true"}, {"name": "B", "value": "it's"}],
        "nested": [["a", ["b"]], []],
        "script": "set -e\n\n  run\n",
        "open": "a\nb",
        "quotes": "\"hi\" \\ it's",
        "control": "a\u{7}b\tc",
        "numbers": [1, -1, 1.5, 18_446_744_073_709_551_615_u64],
        "<<": "merge",
        "on": "off",
    });
    let want = r##"kind: PyTorchJob
empty: {}
none: []
nothing: null
args:
- --nproc=4
- -c
- "a: b"
- "yes"
- "12"
- "1.5"
- ""
- "~"
- "# no"
- "x #y"
- x#y
env:
- name: A
  value: "true"
- name: B
  value: it's
nested:
- - a
  - - b
- []
script: |
  set -e

    run
open: |-
  a
  b
quotes: '"hi" \ it''s'
control: "a\u0007b\tc"
numbers:
- 1
- -1
- 1.5
- 18446744073709551615
"<<": merge
"on": "off"
"##;
    assert_eq!(to_yaml(&value), want);
    assert_eq!(read_back(want), value);
}

#[test]
fn odd_strings_come_back_as_keys_and_as_values() {
    let long = "k".repeat(3_000);
    let cases = [
        "",
        " ",
        "a ",
        " a",
        "-",
        "- a",
        "--- a",
        "...",
        "?",
        "? a",
        ":",
        "a:",
        "a: b",
        ":a",
        "a\n",
        "a\n\n",
        "\n",
        "\na",
        " a\nb",
        "a\n b\n",
        "a\r\nb",
        "a\tb",
        "\ta\nb",
        "a\n\tb\n",
        "a\n \n",
        "null",
        "0x1f",
        "1e3",
        ".inf",
        "1_000",
        "%a",
        "@a",
        "`a",
        "!a",
        "&a",
        "*a",
        "|",
        ">",
        "[a]",
        "{a}",
        "'a'",
        "\"a\"",
        "a\u{85}b",
        "a\u{2028}b",
        "\u{FEFF}a",
        "ä: b",
        "ä #b",
        "日本",
        "😀",
        "a\u{0}b",
        "\u{7f}",
        "a,b",
        "=",
        "#",
        "\\",
        "2024-01-01",
        "12:30:45",
        "\u{FFFE}",
        "\u{A0}",
        "a\n---\nb\n",
        "a\n...\n",
        "key: |\n  x\n",
        &long,
    ];
    for text in cases {
        let value = json!({ text: text, "list": [text, {text: text}], "last": [[text]] });
        let yaml = to_yaml(&value);
        assert_eq!(read_back(&yaml), value, "{text:?}\n{yaml}");
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        "[a-z]{0,6}",
        "[-0-9.eExo_+]{1,6}",
        "[ -~\n\t]{0,12}",
        "\\PC{0,8}",
        any::<String>(),
        proptest::sample::select(vec![
            "yes", "No", "null", "~", "<<", "---", ".nan", "y", "0o7"
        ])
        .prop_map(str::to_owned),
    ]
    .boxed();
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>()
            .prop_filter("finite", |f| f.is_finite())
            .prop_map(Value::from),
        text.clone().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 60, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((text.clone(), inner), 0..5)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn what_is_written_is_read_back(value in any_json()) {
        let value = json!({ "value": value });
        let yaml = to_yaml(&value);
        prop_assert_eq!(read_back(&yaml), value, "{}", yaml);
    }

    #[test]
    fn json_is_read_as_it_is(value in any_json(), pretty in any::<bool>()) {
        let value = json!({ "value": value });
        let text = if pretty {
            serde_json::to_string_pretty(&value).unwrap().replace("\n  ", "\n\t")
        } else {
            value.to_string()
        };
        prop_assert_eq!(read_back(&text), value, "{}", text);
    }
}
