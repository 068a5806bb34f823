use super::*;

/// Every edit of every guide fits the tree; the commands are left to `cargo xtask guides`.
#[test]
fn guides_fit_the_tree() {
    let guides = guides().unwrap();
    assert!(guides.len() >= 3, "{:?}", guides.keys());
    for (name, text) in guides {
        let steps = steps(&text).unwrap_or_else(|why| panic!("{name}: {why}"));
        let mut tree = Tree {
            root: step::root(),
            changed: BTreeMap::new(),
        };
        let mut commands = 0;
        for step in &steps {
            if let Step::Run { command } = step {
                assert!(command.contains("cargo "), "{name}: {command}");
                commands += 1;
                continue;
            }
            let (path, text) = tree
                .edited(step)
                .unwrap_or_else(|why| panic!("{name}: {why:?}"));
            tree.changed.insert(path, text);
        }
        assert!(commands > 0, "{name} has no command that checks it");
    }
}

#[test]
fn steps_are_read_in_their_forms() {
    let guide = "# Guide\n\nIn short: text.\n\nCreate `a.rs`:\n\n```rust\nfn a() {}\n```\n\nIn `b.rs`, insert after `mod b;`:\n\n```rust\n    mod c;\n```\nCopy `a` to `b`.\n\
                 In `b.rs`, replace `7` with `` `8` ``.\n\n```text\noutput\n```\n\nRun:\n\n```sh\ncargo test\ncargo check\n```\n";
    let owned = str::to_owned;
    let run = |command: &str| Step::Run {
        command: owned(command),
    };
    assert_eq!(
        steps(guide).unwrap(),
        [
            Step::Create {
                path: owned("a.rs"),
                text: owned("fn a() {}\n"),
            },
            Step::Insert {
                path: owned("b.rs"),
                after: true,
                anchor: owned("mod b;"),
                text: owned("    mod c;\n"),
            },
            Step::Copy {
                from: owned("a"),
                to: owned("b"),
            },
            Step::Replace {
                path: owned("b.rs"),
                old: owned("7"),
                new: owned("`8`"),
            },
            run("cargo test"),
            run("cargo check"),
        ]
    );
}

#[test]
fn blocks_without_a_step_are_refused() {
    for (name, guide) in [
        ("no step", "Look:\n\n```rust\nfn a() {}\n```\n"),
        (
            "unknown form",
            "In `a`, put behind `b`:\n\n```rust\nx\n```\n",
        ),
        ("unknown form without a block", "In `a`, remove `b`.\n"),
        ("no block", "Create `a`:\n\nText.\n"),
    ] {
        assert!(steps(guide).is_err(), "{name}");
    }
}

#[test]
fn edits_need_exactly_one_place() {
    let mut tree = Tree {
        root: PathBuf::from("/nowhere"),
        changed: BTreeMap::new(),
    };
    let insert = |anchor: &str, after| Step::Insert {
        path: "a".to_owned(),
        after,
        anchor: anchor.to_owned(),
        text: "new\n".to_owned(),
    };
    tree.changed
        .insert("a".to_owned(), "one\n  two\n  two\n".to_owned());
    let (_, text) = tree.edited(&insert("one", true)).unwrap();
    assert_eq!(text, "one\nnew\n  two\n  two\n");
    let (_, text) = tree.edited(&insert("one", false)).unwrap();
    assert_eq!(text, "new\none\n  two\n  two\n");
    assert!(tree.edited(&insert("two", true)).is_err());
    assert!(tree.edited(&insert("three", true)).is_err());
    let replace = |old: &str| Step::Replace {
        path: "a".to_owned(),
        old: old.to_owned(),
        new: "1".to_owned(),
    };
    assert_eq!(tree.edited(&replace("one")).unwrap().1, "1\n  two\n  two\n");
    assert!(tree.edited(&replace("two")).is_err());
    let create = Step::Create {
        path: "a".to_owned(),
        text: String::new(),
    };
    assert!(tree.edited(&create).is_err(), "it exists");
}
