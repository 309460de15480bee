//! `fleetagent kustomize`: builds a directory and prints what `kustomize build` prints.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Args;
use kustomize::{DiskFiles, Options};

/// What is built.
#[derive(Debug, Args)]
pub struct KustomizeArgs {
    /// Directory with a kustomization.yaml
    #[arg(value_name = "DIR", default_value = ".")]
    pub directory: String,
}

/// Prints the objects; what is deprecated goes to standard error.
pub fn run(args: &KustomizeArgs) -> ExitCode {
    let mut errors = std::io::stderr();
    let built = kustomize::build(&DiskFiles, &args.directory, &Options::default());
    let text = built.and_then(|built| {
        for warning in &built.warnings {
            writeln!(errors, "{warning}").ok();
        }
        built.to_yaml()
    });
    match text {
        Ok(text) => match std::io::stdout().write_all(text.as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
        Err(error) => {
            writeln!(errors, "Error: {error}").ok();
            ExitCode::FAILURE
        }
    }
}
