use super::*;

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
        assert_eq!(
            (entry.value.span.line, entry.value.span.column),
            place,
            "{key}"
        );
    }
}
