//! The short form of `make kills`.

use anyhow::Result;
use testbed::bed::Bed;
use testbed::kills::{Campaign, run};

#[tokio::test]
async fn twenty_kills_do_no_harm() -> Result<()> {
    let bed = Bed::shared().await?;
    let campaign = Campaign {
        kills: 20,
        seed: rand::random(),
        lanes: 2,
        ..Campaign::default()
    };
    let tally = run(bed, campaign, &|_| ()).await?;
    let stories: Vec<&str> = tally
        .findings
        .iter()
        .map(|finding| finding.story.as_str())
        .collect();
    assert!(
        stories.is_empty(),
        "{campaign:?}\n{}\n{tally}",
        stories.join("\n\n")
    );
    assert!(tally.kills() >= campaign.kills, "{tally}");
    Ok(())
}
