//! The list of what the program is made of, as `CycloneDX` 1.6 in JSON: from `Cargo.lock`, without a network.

use super::{
    date::Moment,
    parts::{Kind, Part},
};

/// The text of the file. Every name, version and licence comes from a lock file, none of which has quotes.
pub(super) fn text(parts: &[Part], version: &str, time: u64) -> String {
    let program = address(Kind::Own, "trainyard", version);
    let time = Moment::of(time).text();
    let (own, others): (Vec<&Part>, Vec<&Part>) = parts
        .iter()
        .partition(|part| part.kind == Kind::Own && part.name == "trainyard");
    let components: Vec<String> = others
        .iter()
        .map(|part| component(part, "library"))
        .collect();
    let links: Vec<String> = own
        .iter()
        .chain(&others)
        .map(|part| {
            let mut needs: Vec<String> = part
                .needs
                .iter()
                .filter_map(|(name, version)| {
                    let found = parts.iter().find(|it| {
                        it.kind != Kind::Script && it.name == *name && it.version == *version
                    })?;
                    Some(address(found.kind, name, version))
                })
                .collect();
            // The page with its scripts is part of this crate.
            if part.name == "trainyard-web" {
                let scripts = parts.iter().filter(|it| it.kind == Kind::Script);
                needs.extend(scripts.map(|it| address(it.kind, &it.name, &it.version)));
            }
            let needs: Vec<String> = needs.iter().map(|need| format!("\"{need}\"")).collect();
            format!(
                "    {{\"ref\": \"{}\", \"dependsOn\": [{}]}}",
                address(part.kind, &part.name, &part.version),
                needs.join(", ")
            )
        })
        .collect();
    format!(
        "{{\n  \"$schema\": \"http://cyclonedx.org/schema/bom-1.6.schema.json\",\n  \"bomFormat\": \"CycloneDX\",\n  \"specVersion\": \"1.6\",\n  \
         \"version\": 1,\n  \"metadata\": {{\n    \"timestamp\": \"{time}\",\n    \"component\": {{\"type\": \"application\", \"bom-ref\": \"{program}\", \
         \"name\": \"trainyard\", \"version\": \"{version}\", \"purl\": \"{program}\", \"licenses\": [{{\"expression\": \"Apache-2.0\"}}]}}\n  }},\n  \
         \"components\": [\n{}\n  ],\n  \"dependencies\": [\n{}\n  ]\n}}\n",
        components.join(",\n"),
        links.join(",\n")
    )
}

fn component(part: &Part, kind: &str) -> String {
    let address = address(part.kind, &part.name, &part.version);
    let mut text = format!(
        "    {{\"type\": \"{kind}\", \"bom-ref\": \"{address}\", \"name\": \"{}\", \"version\": \"{}\", \"purl\": \"{address}\"",
        part.name, part.version
    );
    if let Some(checksum) = &part.checksum {
        text.extend([format!(
            ", \"hashes\": [{{\"alg\": \"SHA-256\", \"content\": \"{checksum}\"}}]"
        )]);
    }
    if !part.licence.is_empty() {
        text.extend([format!(
            ", \"licenses\": [{{\"expression\": \"{}\"}}]",
            part.licence
        )]);
    }
    text + "}"
}

/// The address of a package, by the `purl` specification: `@` before a name is escaped, `+` of a version too.
fn address(kind: Kind, name: &str, version: &str) -> String {
    let version = version.replace('+', "%2B");
    match kind {
        Kind::Own | Kind::Crate => format!("pkg:cargo/{name}@{version}"),
        Kind::Script => format!("pkg:npm/{}@{version}", name.replace('@', "%40")),
    }
}
