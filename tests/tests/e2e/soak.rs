//! Two minutes of `make soak`.

use std::time::Duration;

use anyhow::Result;
use testbed::bed::Bed;
use testbed::soak::{Soak, run};

#[tokio::test]
async fn restless_bundles_stay_within_their_cost() -> Result<()> {
    let soak = Soak {
        bundles: 20,
        time: Duration::from_secs(120),
    };
    let outcome = run(Bed::shared().await?, soak, &|_| ()).await?;
    outcome.check()
}
