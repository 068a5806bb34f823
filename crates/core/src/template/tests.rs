//! Every template in both profiles, and hostile answers.

use std::{collections::BTreeSet, path::PathBuf};

use proptest::prelude::*;
use serde_json::Value;

use super::{Answers, Question, Template, all, find, words::split};
use crate::{
    lint::{self, Profile},
    spec,
};

/// Every template in both profiles.
fn cases() -> impl Iterator<Item = (&'static Template, Profile)> {
    all()
        .iter()
        .flat_map(|template| Profile::ALL.map(|profile| (template, profile)))
}

/// What the linter says of a file, as lines.
fn findings(text: &str) -> Vec<String> {
    // Without a profile: the file says of itself what it is for.
    let file = spec::read(text.as_bytes()).unwrap();
    let found = lint::review(&[&file], None).concat();
    let line = |finding: &crate::finding::Finding| format!("{} {}", finding.code, finding.message);
    found.iter().map(line).collect()
}

/// The objects of a file.
fn objects(text: &str) -> Vec<Value> {
    let file = spec::read(text.as_bytes()).unwrap();
    file.documents
        .iter()
        .map(|document| document.tree.to_json())
        .collect()
}

/// The job of a file.
fn job(text: &str) -> Value {
    objects(text).pop().unwrap()
}

#[test]
fn all_template_sizes_pass_lint() {
    for (template, profile) in cases() {
        // For a demo of hundreds of GPUs the linter rightly asks for checkpoints.
        let large = match profile {
            Profile::Demo => 8,
            Profile::Production => 2_000,
        };
        for (workers, gpus) in [(1, 0), (1, 1), (2, 0), (2, 8), (3, 5), (large, 8)] {
            let mut answers = Answers::new(template, profile);
            answers
                .set(Question::Workers, &workers.to_string())
                .unwrap();
            if answers.applies(Question::Gpus) {
                answers.set(Question::Gpus, &gpus.to_string()).unwrap();
            }
            let case = format!("{} {}: {workers} × {gpus}", template.name, profile.name());
            let text = answers
                .write()
                .unwrap_or_else(|refusal| panic!("{case}: {refusal}"));
            assert_eq!(findings(&text), Vec::<String>::new(), "{case}");
        }
    }
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "golden files are read and written by this test only"
)]
fn released_versions_do_not_change() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/template");
    let update = std::env::var_os("UPDATE").is_some_and(|value| value == "1");
    let mut wanted = BTreeSet::new();
    let mut wrong = Vec::new();
    for (template, profile) in cases() {
        let name = format!("{}-{}.yaml", template.id(), profile.name());
        let got = Answers::new(template, profile).write().unwrap();
        let path = folder.join(&name);
        if update {
            std::fs::write(&path, &got).unwrap();
        }
        match std::fs::read_to_string(&path) {
            Ok(want) if want == got => {}
            Ok(_) => wrong.push(format!("{name} differs")),
            Err(error) => wrong.push(format!("{name} cannot be read: {error}")),
        }
        wanted.insert(name);
    }
    for entry in std::fs::read_dir(&folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if !wanted.contains(&name) {
            wrong.push(format!("{name} belongs to no template"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}; UPDATE=1 writes the files");
}

#[test]
fn nothing_of_the_language_is_left_over() {
    for (template, profile) in cases() {
        let text = Answers::new(template, profile).write().unwrap();
        for line in text.lines() {
            assert!(
                !line.contains("${") && !line.trim_start().starts_with('%'),
                "{line}"
            );
            assert!(line.chars().count() <= 115, "{}: {line}", template.name);
        }
        let annotations = &job(&text)["metadata"]["annotations"];
        assert_eq!(annotations["trainyard.dev/template"], template.id());
        assert_eq!(annotations["trainyard.dev/profile"], profile.name());
    }
}

#[test]
fn every_code_in_a_comment_is_a_rule() {
    let mut codes = BTreeSet::new();
    for (template, profile) in cases() {
        let text = Answers::new(template, profile).write().unwrap();
        for word in text.split(|letter: char| !letter.is_ascii_alphanumeric()) {
            if let Some(digits) = word.strip_prefix("TY").filter(|digits| digits.len() == 3) {
                assert!(lint::rule(word).is_some(), "{word}");
                codes.insert(digits.to_owned());
            }
        }
    }
    assert!(codes.len() > 20, "the comments name the rules: {codes:?}");
}

#[test]
fn templates_are_found_by_name_and_version() {
    let cases = [
        ("jax", Ok("jax@1")),
        ("jax@1", Ok("jax@1")),
        (
            "jax@2",
            Err("the template `jax` has no version `2`, only 1"),
        ),
        ("jax@", Err("the template `jax` has no version ``, only 1")),
        ("pytorch-dpd", Err("unknown template `pytorch-dpd`")),
    ];
    for (name, want) in cases {
        let got = find(name)
            .map(Template::id)
            .map_err(|refusal| refusal.to_string());
        assert_eq!(got.as_deref().map_err(String::as_str), want, "{name}");
    }
    let refusal = find("pytorch-dpd").unwrap_err();
    assert_eq!(refusal.hint(), Some("did you mean `pytorch-ddp`?"));
}

#[test]
fn invalid_answers_are_refused() {
    let long = "a".repeat(64);
    let cases = [
        (
            "jax",
            Question::Name,
            long.as_str(),
            "the name has 64 characters, at most 63 are allowed",
        ),
        (
            "jax",
            Question::Name,
            "a: b",
            "character `:` at position 2 is not allowed",
        ),
        (
            "jax",
            Question::Image,
            "a b",
            "invalid image name `a b`: it holds ' '",
        ),
        ("jax", Question::Image, "a\nb: c", "b: c`: it holds '\\n'"),
        (
            "jax",
            Question::Image,
            ":1",
            "invalid image name `:1`; expected something like",
        ),
        (
            "jax",
            Question::Workers,
            "0",
            "`0` is not a number of pods, 1 or more",
        ),
        (
            "jax",
            Question::Gpus,
            "-1",
            "`-1` is not a number of GPUs, 0 to 64",
        ),
        (
            "jax",
            Question::Command,
            "a 'b",
            "the quotation mark ' is not closed",
        ),
        (
            "jax",
            Question::Namespace,
            "A",
            "invalid namespace name `A`",
        ),
        (
            "jax",
            Question::Storage,
            "1Ti",
            "`jax` for demo has no checkpoint volume size",
        ),
        (
            "jax",
            Question::Parallelism,
            "tp=2",
            "`jax` for demo has no parallelism",
        ),
        (
            "pytorch-elastic",
            Question::LeastWorkers,
            "3",
            "`3` is not a number of pods, 1 to 2",
        ),
        (
            "megatron-3d",
            Question::Parallelism,
            "tp=3",
            "`tp=3` makes 3 ranks, the job has 4",
        ),
        (
            "megatron-3d",
            Question::Parallelism,
            "x=3",
            "the parallelism has the axes",
        ),
    ];
    for (template, question, text, want) in cases {
        let mut answers = Answers::new(find(template).unwrap(), Profile::Demo);
        let refusal = answers.set(question, text).unwrap_err().to_string();
        assert!(
            refusal.contains(want) && !refusal.contains('\n'),
            "{text}: {refusal}"
        );
    }
}

#[test]
fn whole_file_errors_are_refused() {
    let cases = [
        (
            "pytorch-ddp",
            Question::Name,
            "a".repeat(60),
            "the last pod would be named",
        ),
        (
            "pytorch-ddp",
            Question::Image,
            "team/train:latest".to_owned(),
            "has the tag `latest`",
        ),
        (
            "pytorch-ddp",
            Question::Command,
            "torchrun --nnodes 3 train.py".to_owned(),
            "`--nnodes` is `3`, the job has 4 pods",
        ),
        (
            "jax",
            Question::Workers,
            "4000000000".to_owned(),
            "`replicas` of Worker must be from 0 to 100000",
        ),
    ];
    for (template, question, text, want) in cases {
        let mut answers = Answers::new(find(template).unwrap(), Profile::Production);
        answers.set(question, &text).unwrap();
        let refusal = answers.write().unwrap_err().to_string();
        assert!(
            refusal.contains(want) && !refusal.contains('\n'),
            "{text}: {refusal}"
        );
    }
}

#[test]
fn yaml_keywords_stay_names() {
    for name in ["null", "true", "y", "on", "no", "inf", "nan"] {
        for (template, profile) in cases() {
            let mut answers = Answers::new(template, profile);
            answers.set(Question::Name, name).unwrap();
            answers.set(Question::Namespace, "123").unwrap();
            let text = answers.write().unwrap();
            for object in objects(&text) {
                let found = object["metadata"]["name"].as_str().unwrap_or_default();
                assert!(found.starts_with(name), "{text}");
                assert_eq!(object["metadata"]["namespace"], "123", "{text}");
            }
        }
    }
}

#[test]
fn quickstart_holds_no_placeholder() {
    for profile in Profile::ALL {
        let text = Answers::new(find("quickstart").unwrap(), profile)
            .write()
            .unwrap();
        assert!(
            !text.contains("placeholder") && !text.contains("example.com"),
            "{text}"
        );
        let words = command(&job(&text));
        assert_eq!(words[..2], ["trainyard", "smoke-trainer"]);
    }
}

#[test]
fn megatron_flags_match_annotation() {
    let mut answers = Answers::new(find("megatron-3d").unwrap(), Profile::Production);
    answers.set(Question::Parallelism, "tp=4,pp=2").unwrap();
    let job = job(&answers.write().unwrap());
    let annotation = &job["metadata"]["annotations"]["trainyard.dev/parallelism"];
    assert_eq!(annotation, "tp=4,dp=4,pp=2");
    let container =
        &job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0];
    let words: Vec<&str> = container["args"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    assert!(words.starts_with(&[
        "--tensor-model-parallel-size",
        "4",
        "--pipeline-model-parallel-size",
        "2",
        "--sequence-parallel",
    ]));
}

/// Where the command of the ranks stands.
fn command(job: &Value) -> Vec<String> {
    let spec = job["spec"].as_object().unwrap();
    let (_, roles) = spec
        .iter()
        .find(|(key, _)| key.ends_with("ReplicaSpecs"))
        .unwrap();
    // Where one pod trains, it may be the Master or the Chief alone.
    let role = ["Launcher", "Worker", "Master", "Chief"]
        .iter()
        .find_map(|role| roles.get(*role))
        .unwrap();
    let words = role["template"]["spec"]["containers"][0]["command"].as_array();
    words
        .unwrap()
        .iter()
        .map(|word| word.as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn single_pod_keeps_the_command() {
    for (template, profile) in cases() {
        let mut answers = Answers::new(template, profile);
        let alone = answers.set(Question::Workers, "1").is_ok();
        let takes = answers.set(Question::Command, "train --fast").is_ok();
        if let (true, true, Ok(text)) = (alone, takes, answers.write()) {
            assert!(command(&job(&text)).ends_with(&["train".to_owned(), "--fast".to_owned()]));
        }
    }
}

/// Text that looks like YAML, like the language of the templates, or like nothing.
fn hostile() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("${name}".to_owned()),
        Just("%include claim".to_owned()),
        Just("\n---\nkind: Secret\n".to_owned()),
        Just(": ".to_owned()),
        Just(" #".to_owned()),
        Just("'\"".to_owned()),
        Just("*rank".to_owned()),
        Just("&rank ".to_owned()),
        Just("!!binary ".to_owned()),
        Just("{a: [".to_owned()),
        Just("\u{2028}\u{feff}\u{85}".to_owned()),
        "[a-z0-9.:/@-]{1,8}",
        ".{0,6}",
    ];
    prop::collection::vec(piece, 1..5).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn no_answer_breaks_out_of_its_place(
        which in 0..all().len(),
        profile in prop::sample::select(&Profile::ALL[..]),
        texts in prop::collection::vec(hostile(), Question::ALL.len()),
    ) {
        let template = &all()[which];
        let mut answers = Answers::new(template, profile);
        let plain = objects(&answers.write().unwrap());
        let mut own_command = None;
        for (question, text) in Question::ALL.into_iter().zip(&texts) {
            let taken = answers.set(question, text).is_ok();
            if question == Question::Command && taken {
                own_command = split(text.trim()).ok();
            }
        }
        // What is refused is refused; what is written has the same objects, and the command word by word.
        if let Ok(text) = answers.write() {
            let found = objects(&text);
            let kinds = |objects: &[Value]| -> Vec<Value> {
                objects.iter().map(|object| object["kind"].clone()).collect()
            };
            prop_assert_eq!(kinds(&found), kinds(&plain));
            if let Some(words) = own_command {
                let own = command(found.last().unwrap());
                prop_assert!(own.ends_with(&words), "{:?} {:?}", own, words);
            }
        }
    }
}

#[test]
fn one_connection_only_without_fsdp() {
    for (parallelism, fully_sharded, want) in [
        ("tp=8,dp=2", false, true),
        ("cp=2,dp=8", false, true),
        ("dp=16", false, false),
        ("tp=8,dp=2", true, false),
        ("dp=16", true, false),
    ] {
        let template = find("megatron-3d").unwrap();
        let mut answers = Answers::new(template, Profile::Production);
        answers.set(Question::Workers, "2").unwrap();
        answers.set(Question::Gpus, "8").unwrap();
        answers.set(Question::Parallelism, parallelism).unwrap();
        answers.plan(super::Planned {
            heading: Vec::new(),
            arguments: vec!["--tensor-model-parallel-size".to_owned(), "8".to_owned()],
            save_interval: 100,
            grace: 60,
            hours_between_failures: 100.0,
            budget: 3,
            fully_sharded,
        });
        let found = answers.write().unwrap();
        assert_eq!(
            found.contains("CUDA_DEVICE_MAX_CONNECTIONS"),
            want,
            "{parallelism} {fully_sharded}"
        );
    }
}
