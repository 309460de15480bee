//! `make soak`: an hour of 100 bundles, among them some that give no rest, and what that costs for each of them.
//!
//! `--minutes N` (60) says how long, `--bundles N` (100) how many. Ends with 1 when a figure is exceeded; `KEEP=1` leaves the logs.
#![expect(clippy::print_stdout, reason = "the figures are for the person who started it")]

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use testbed::bed::Bed;
use testbed::soak::{Soak, run};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode> {
    let soak = soak(std::env::args().skip(1))?;
    println!("soak: {soak:?}, starting two clusters");
    let bed = Bed::start(false).await?;
    let outcome = run(&bed, soak, &|line| println!("soak: {line}")).await?;
    println!("\n{outcome}");
    Ok(match outcome.findings.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn soak(mut arguments: impl Iterator<Item = String>) -> Result<Soak> {
    let mut soak = Soak {
        bundles: 100,
        time: Duration::from_secs(60 * 60),
    };
    while let Some(flag) = arguments.next() {
        let value = arguments.next();
        let value = value.with_context(|| format!("{flag} wants a value"))?;
        match flag.as_str() {
            "--minutes" => soak.time = Duration::from_secs(60 * value.parse::<u64>()?),
            "--bundles" => soak.bundles = value.parse()?,
            _ => bail!("unknown argument {flag}"),
        }
    }
    Ok(soak)
}
