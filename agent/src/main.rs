//! The `fleetagent` binary: parse, wire, run. Every decision is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    agent::cli::main(std::env::args_os())
}
