//! Writes the schema of every job kind as a JSON file of its own, into the folder that is named.
//!
//! `cargo xtask bench lint` gives them to kubeconform, which reads no definitions.

use std::{env, error::Error, fs, path::Path};

use trainyard_kube::crd;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = env::args_os().nth(1).ok_or("name the folder to write to")?;
    fs::create_dir_all(&folder)?;
    for (_, definition) in crd::definitions() {
        let spec = &definition["spec"];
        let kind = spec["names"]["kind"].as_str().ok_or("a kind has a name")?;
        let versions = spec["versions"].as_array().ok_or("a kind has versions")?;
        for version in versions {
            let name = version["name"].as_str().ok_or("a version has a name")?;
            let file = format!("{}_{name}.json", kind.to_lowercase());
            let schema = serde_json::to_vec(&version["schema"]["openAPIV3Schema"])?;
            fs::write(Path::new(&folder).join(file), schema)?;
        }
    }
    Ok(())
}
