//! What a crate may not depend on, where a rule of the project hangs on it.

use anyhow::{Context, Result, ensure};

use crate::requirements::root;

/// Crates of the shipped binary that may write a line of a log: all of them through `logging`, whose macros take no text from elsewhere.
#[test]
fn one_crate_alone_writes_logs() -> Result<()> {
    let manifest = std::fs::read_to_string(root()?.join("Cargo.toml"))?;
    let members = manifest.lines().find(|line| line.starts_with("members"));
    let members = members.context("members")?.split('"').skip(1).step_by(2);
    // What never runs in a cluster may listen to logs.
    let shipped = members.filter(|member| {
        let is_test = member.starts_with("tests") || member.ends_with("/fuzz");
        !is_test && *member != "deploy/image"
    });
    let mut looked_at = 0;
    for member in shipped {
        let manifest = std::fs::read_to_string(root()?.join(member).join("Cargo.toml"))?;
        let writes = |name: &str| {
            let is_it = |line: &str| line.split(['.', ' ', '=']).next() == Some(name);
            manifest.lines().any(is_it)
        };
        looked_at += 1;
        ensure!(
            !writes("log") && writes("tracing") == (member == "logging"),
            "{member} logs by itself"
        );
    }
    ensure!(looked_at > 8, "{looked_at} crates");
    Ok(())
}
