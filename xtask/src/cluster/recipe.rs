//! The recipe of the operator's image, `deploy/image/Containerfile`, followed without an engine.
//!
//! Owns reading its last stage, so that pods of tests get the image that users build: the same
//! paths, user and entrypoint. It builds nothing; what the stage before it compiles is compiled here.
//!
//! Invariant: an instruction that is not followed here is a failure.

use std::fs;

use crate::{Failure, cache::cannot, step};

/// What the last stage makes of one program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Recipe {
    /// Where the program lies in the stage before it.
    pub(crate) source: String,
    /// Where it lies in the image, without the leading slash.
    pub(crate) target: String,
    /// The configuration of the image, as JSON.
    pub(crate) settings: String,
}

impl Recipe {
    /// The recipe of this checkout.
    pub(crate) fn of_project() -> Result<Self, Failure> {
        let path = step::root().join("deploy/image/Containerfile");
        let text = fs::read_to_string(&path).map_err(cannot("read", &path))?;
        Self::read(&text)
    }

    fn read(text: &str) -> Result<Self, Failure> {
        let failed = |what: &str| Failure::Failed(format!("the recipe of the image {what}"));
        let (_, stage) = text
            .rsplit_once("\nFROM scratch\n")
            .ok_or_else(|| failed("has no last stage `FROM scratch`"))?;
        let mut copied = None;
        let (mut settings, mut variables) = (Vec::new(), Vec::new());
        for line in stage.lines() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            match *line.split_whitespace().collect::<Vec<_>>() {
                ["COPY", "--from=build", source, target] if copied.is_none() => {
                    copied = Some((source, target));
                }
                ["ENV", variable] => variables.push(format!("\"{variable}\"")),
                ["USER", user] => settings.push(format!("\"User\":\"{user}\"")),
                ["ENTRYPOINT", ref words @ ..] => {
                    settings.push(format!("\"Entrypoint\":{}", words.concat()));
                }
                _ => return Err(failed(&format!("has `{line}`, which is not followed here"))),
            }
        }
        settings.push(format!("\"Env\":[{}]", variables.join(",")));
        let (source, target) = copied.ok_or_else(|| failed("copies nothing"))?;
        let target = target
            .strip_prefix('/')
            .ok_or_else(|| failed("copies to no absolute path"))?;
        Ok(Self {
            source: source.to_owned(),
            target: target.to_owned(),
            settings: format!("{{{}}}", settings.join(",")),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_last_stage_is_read() {
        let text = "FROM rust AS build\nRUN x\n\nFROM scratch\n# Why.\nCOPY --from=build /a/b /usr/b\n\
                    ENV PATH=/usr\nUSER 1:1\nENTRYPOINT [\"b\", \"c\"]\n";
        let want = Recipe {
            source: "/a/b".to_owned(),
            target: "usr/b".to_owned(),
            settings: r#"{"User":"1:1","Entrypoint":["b","c"],"Env":["PATH=/usr"]}"#.to_owned(),
        };
        assert!(matches!(Recipe::read(text), Ok(recipe) if recipe == want));
        for (wrong, why) in [
            ("FROM scratch\n", "no last stage"),
            ("\nFROM scratch\nUSER 1\n", "copies nothing"),
            ("\nFROM scratch\nRUN x\n", "not followed"),
            ("\nFROM scratch\nCOPY . .\n", "not followed"),
            (
                "\nFROM scratch\nCOPY --from=build a b\n",
                "no absolute path",
            ),
        ] {
            match Recipe::read(wrong) {
                Err(Failure::Failed(message)) => assert!(message.contains(why), "{message}"),
                other => panic!("{wrong}: {other:?}"),
            }
        }
    }

    #[test]
    fn the_recipe_builds_what_this_checkout_has() {
        let root = step::root();
        let read = |path: &str| fs::read_to_string(root.join(path)).expect(path);
        let recipe = Recipe::of_project().expect("it is read");
        let text = read("deploy/image/Containerfile");
        // The program is that of the package which the stage before builds to be small.
        let package = read("crates/cli/Cargo.toml");
        let name = package
            .lines()
            .find_map(|line| line.strip_prefix("name = "))
            .expect("the package has a name")
            .trim_matches('"');
        assert!(text.contains(&format!(
            "cargo build --profile dist --locked --package {name}\n"
        )));
        assert_eq!(recipe.source, format!("/src/target/dist/{name}"));
        assert!(text.contains("WORKDIR /src\nCOPY . .\n"));
        // With the toolchain of this checkout.
        let toolchain = read("rust-toolchain.toml");
        let channel = toolchain
            .lines()
            .find_map(|line| line.strip_prefix("channel = "))
            .expect("a channel is pinned")
            .trim_matches('"');
        let minor = channel.rsplit_once('.').map_or(channel, |(minor, _)| minor);
        let image = format!("ARG RUST_IMAGE=docker.io/library/rust:{minor}-alpine@sha256:");
        let pinned = text.lines().find_map(|line| line.strip_prefix(&image));
        let digest = pinned.expect("the image of the toolchain is pinned by its digest");
        let is_digest = digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
        assert!(is_digest, "`{digest}` is not a digest");
        // Nothing else is the base of a stage.
        let bases: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with("FROM"))
            .collect();
        assert_eq!(bases, ["FROM ${RUST_IMAGE} AS build", "FROM scratch"]);
        // As the user that the pods of the operator say they run as.
        for file in [
            "deploy/kustomize/operator/deployment.yaml",
            "deploy/helm/trainyard/templates/deployment.yaml",
        ] {
            assert!(read(file).contains("runAsUser: 65532\n"), "{file}");
        }
        assert!(recipe.settings.contains(r#""User":"65532:65532""#));
        // Pods call it by its name, which is looked for in the folders of PATH.
        let folder = Path::new("/").join(&recipe.target);
        let folder = folder.parent().expect("a file lies in a folder").display();
        assert!(recipe.settings.contains(&format!("\"PATH={folder}\"")));
        assert!(
            recipe
                .settings
                .contains(&format!("\"Entrypoint\":[\"{name}\"]"))
        );
    }
}
