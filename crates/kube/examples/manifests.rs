//! Writes the generated files of `deploy/` below the folder that is named.
//!
//! `cargo xtask gen` runs it; nothing else does.

use std::{env, error::Error, fs, path::Path};

use trainyard_core::spec::to_yaml;
use trainyard_kube::crd;

const HEAD: &str = "# Made by `cargo xtask gen`; change the types and run it again.\n";

fn main() -> Result<(), Box<dyn Error>> {
    let folder = env::args_os()
        .nth(1)
        .ok_or("name the folder to write below")?;
    for (file, definition) in crd::definitions() {
        let path = Path::new(&folder).join("deploy/crds").join(file);
        fs::create_dir_all(path.parent().ok_or("a file lies in a folder")?)?;
        fs::write(path, format!("{HEAD}{}", to_yaml(&definition)))?;
    }
    Ok(())
}
