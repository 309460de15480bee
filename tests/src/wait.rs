//! Waiting for a condition, with a deadline and the last state seen in the failure.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// How often a condition is looked at.
const INTERVAL: Duration = Duration::from_millis(100);

/// Calls `probe` until it gives a value. Until then it returns, as `Err`, the state it saw, which the failure prints.
///
/// # Errors
/// When the deadline passes.
pub async fn wait_until<T, F>(what: &str, deadline: Duration, mut probe: F) -> Result<T>
where
    F: AsyncFnMut() -> Result<T, String>,
{
    let started = Instant::now();
    loop {
        let state = match probe().await {
            Ok(value) => return Ok(value),
            Err(state) => state,
        };
        if started.elapsed() > deadline {
            bail!("waited {deadline:?} in vain for {what}; last seen:\n{state}");
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_failure_prints_the_last_state() {
        let mut looks = 0;
        let error = wait_until("the moon", Duration::ZERO, async || {
            looks += 1;
            Err::<(), _>(format!("look {looks}"))
        })
        .await
        .expect_err("the moon is out of reach");
        let text = error.to_string();
        assert!(
            text.contains("the moon") && text.ends_with(&format!("look {looks}")),
            "{text}"
        );
    }
}
