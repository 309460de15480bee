//! Builds directories one after the other, for comparison with what `tests/reference/kustomize build` prints.

use std::io::{Read as _, Write as _};

fn main() -> std::io::Result<()> {
    let mut names: Vec<String> = std::env::args().skip(1).collect();
    if names == ["-"] {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text)?;
        names = text.split_whitespace().map(str::to_owned).collect();
    }
    let mut out = std::io::stdout().lock();
    for name in names {
        let options = kustomize::Options::default();
        let built = kustomize::build(&kustomize::DiskFiles, &name, &options)
            .and_then(|built| built.to_yaml());
        let (state, text) = match built {
            Ok(text) => ("ok", text),
            Err(error) => ("error", error.to_string()),
        };
        writeln!(out, "{name}\t{state}\t{}\n{text}", text.len())?;
    }
    Ok(())
}
