//! `make kills`: kills the agent in the middle of its work, again and again, and counts what that does to the releases.
//!
//! `--kills N` (200) kills in all, `--seed S` (1) chooses where, `--lanes L` (3) agents at once, `--limit
//! SECONDS` (300) how long coming right may take; `--sweep` kills after every
//! single change of every stage instead, `--only hooks/rollback` in this stage of this chart. Ends with 1 when anything was wrong; `KEEP=1` leaves the logs.
#![expect(clippy::print_stdout, reason = "the tally is for the person who started it")]

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use testbed::bed::Bed;
use testbed::kills::{Campaign, run};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode> {
    let campaign = campaign(std::env::args().skip(1))?;
    println!("kills: {campaign:?}");
    println!("kills: starting two clusters");
    let bed = Bed::start(false).await?;
    let tally = run(&bed, campaign, &|line| println!("kills: {line}")).await?;
    println!("\n{tally}");
    Ok(match tally.findings.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn campaign(mut arguments: impl Iterator<Item = String>) -> Result<Campaign> {
    let mut campaign = Campaign::default();
    while let Some(flag) = arguments.next() {
        if flag == "--sweep" {
            campaign.sweep = true;
            continue;
        }
        let value = arguments.next();
        let value = value.with_context(|| format!("{flag} wants a value"))?;
        match flag.as_str() {
            "--kills" => campaign.kills = value.parse()?,
            "--seed" => campaign.seed = value.parse()?,
            "--limit" => campaign.limit = Duration::from_secs(value.parse()?),
            "--only" => {
                let part = Campaign::part(&value);
                campaign.only = Some(part.with_context(|| format!("no stage {value}"))?);
            }
            "--lanes" => campaign.lanes = value.parse()?,
            _ => bail!("unknown argument {flag}"),
        }
    }
    Ok(campaign)
}
